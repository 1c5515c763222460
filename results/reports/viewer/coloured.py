"""Answers as HTML that stands alone: tokens coloured as on the page, with their numbers as tooltips."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

NUMBERED = ("p", "max p", "processed p", "q", "u", "score")
"""Names of the numbers of a traced token, in the order of `turns_of`."""
KINDS: Mapping[str, tuple[str, str]] = {
    "s": ("background:#cfe8d9", "drafted, the lossless test keeps it"),
    "a": ("background:#cfe0f2;text-decoration:underline dashed 1px", "drafted, kept as the target's first choice"),
    "r": ("background:rgba(213,94,0,{alpha:.2f});text-decoration:underline 2px #d55e00",
          "drafted, kept by the relaxation alone"),
    "k": ("background:#dcebe0", "drafted and kept, not traced"),
    "d": ("", "drawn by the target"),
}
"""Letter of `CODES` -> style and words, as in viewer.css and answer.js."""
FAR = 0.3
"""How far a relaxed token is taken to be from the target's first choice where p(x) ÷ max p is not known."""
STYLE = ("body{font:14px/1.6 sans-serif;color:#1b1b1b;background:#fff}table{border-collapse:collapse}"
         "th,td{text-align:left;vertical-align:top;padding:.4em .8em .4em 0;border-bottom:1px solid #ddd}"
         "td:last-child{white-space:pre-wrap;overflow-wrap:anywhere}")


def coloured(turns: Sequence[Mapping[str, Any]]) -> str:
    """The turns of `turns_of` as spans with their own style, turns separated by a rule; everything is escaped."""
    return "<hr>".join("".join(_span(text, kind, numbers) for text, kind, numbers in
                               zip(turn["t"], turn["k"], turn.get("m") or [[]] * len(turn["t"]), strict=True))
                       for turn in turns)


def answers_page(columns: Sequence[str], rows: Sequence[tuple[Sequence[Any], str]]) -> str:
    """A document: what the colours mean, and a table of (values, coloured answer), one row per answer."""
    legend = " ".join(f'<span style="{style.format(alpha=0.25 + 0.6 * FAR)}">{words}</span><br>'
                      for style, words in KINDS.values())
    head = "".join(f"<th>{escape(name)}</th>" for name in [*columns, "answer"])
    body = "".join("<tr>" + "".join(f"<td>{escape(_shown(value))}</td>" for value in values) + f"<td>{html}</td></tr>"
                   for values, html in rows)
    return (f'<!doctype html><html><head><meta charset="utf-8"><style>{STYLE}</style></head>'
            f"<body><p>{legend}</p><table><tr>{head}</tr>{body}</table></body></html>")


def _shown(value: Any) -> str:
    return "" if value is None else f"{value:.2f}" if isinstance(value, float) else str(value)


def _span(text: str, kind: str, numbers: Sequence[Any]) -> str:
    style, words = KINDS[kind]
    shown = [f"{name} = {value:g}" for name, value in zip(NUMBERED, numbers, strict=False) if value is not None]
    title = escape(", ".join([words, *shown]))
    return f'<span style="{style.format(alpha=0.25 + 0.6 * _far(numbers))}" title="{title}">{escape(text)}</span>'


def _far(numbers: Sequence[Any]) -> float:
    """1 − p(x) ÷ max p of a traced token."""
    p, most = (*numbers[:2], None, None)[:2]
    return FAR if p is None or not most else 1 - min(1.0, p / most)
