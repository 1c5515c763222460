"""One self-contained page of a run: tables, figures, missing cells, definitions of the metrics, environment."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from markupsafe import Markup

from results.metrics.catalog import METRICS
from results.metrics.metric import Metric
from results.reports import formats
from results.reports.grid import Grid, Outcome, unmeasured
from results.reports.layout import lay_out_all
from results.reports.spec import Coords, FigureSpec, TableSpec
from results.reports.table import Table
from results.reports.viewer.groups import Group, parts_of
from results.reports.viewer.listing import NAME as LISTING
from results.reports.viewer.listing import listing, listing_facts
from results.reports.viewer.parts import Holder, embedded_size, script_json
from results.store.reasons import printable


@dataclass(frozen=True)
class Item:
    """A report on the page.

    spec      the report.
    grid      the outcomes of its points.
    paths     the files rendered from it.
    command   the command that makes it; `python -m bench report=NAME` if empty.
    cells     coordinates of a point -> the name of its cell, and the command that measures it alone.
    """

    spec: TableSpec | FigureSpec
    grid: Grid
    paths: Sequence[Path] = ()
    command: str = ""
    cells: Mapping[Coords, tuple[str, str]] = field(default_factory=dict)

    @cached_property
    def tables(self) -> list[Table]:
        """The tables of the report; none of a figure."""
        return lay_out_all(self.spec, self.grid) if isinstance(self.spec, TableSpec) else []

    @property
    def conclusion(self) -> str:
        """The first thing that the tables say; empty where they say nothing in words."""
        return next((finding for table in reversed(self.tables) for finding in table.findings[:1]), "")

    def drawn(self) -> Markup:
        """The table, or the figure as inline SVG; empty for a figure without one."""
        if self.tables:
            return Markup(formats.html(self.tables))
        file = self.files.get(".svg")
        return Markup("") if file is None else inline_svg(file, self.spec.name, self.spec.title)

    @property
    def files(self) -> dict[str, Path]:
        """Suffix -> file."""
        return {path.suffix: path for path in self.paths}

    @property
    def facts(self) -> dict[str, dict[str, Any]]:
        """Point -> what the page tells of its numbers beside what is printed."""
        facts: dict[str, dict[str, Any]] = {}
        for coords, outcome in self.grid.items():
            name, command = self.cells.get(coords, (None, None))
            summary, conditions = outcome.summary, outcome.conditions
            sessions = conditions.plain()["session"] if conditions else None
            held = {"n": summary and summary.n, "timed": summary and summary.timed, "session": sessions, "cell": name,
                    "command": command}
            facts[printable(formats.POINT.join(coords))] = {
                key: printable(str(value)) for key, value in held.items() if value is not None}
        return facts

    @property
    def unmeasured(self) -> list[tuple[str, Outcome]]:
        return unmeasured(self.spec, self.grid)

    @property
    def downloads(self) -> list[Path]:
        """The files that the page offers; JSON would repeat the CSV file at twice its size."""
        return [path for path in self.paths if path.suffix not in (".html", ".json")]


@dataclass(frozen=True, slots=True)
class Section:
    """A report as the page's template takes it: its content, and (suffix, address) of each file."""

    item: Item
    content: Markup
    downloads: list[tuple[str, str]]

    @classmethod
    def of(cls, item: Item, drawn: Markup, holder: Holder) -> Section:
        """A drawing that is too large for the page, or that there is not, is shown as PNG."""
        png = item.files.get(".png")
        if isinstance(item.spec, FigureSpec) and png is not None and (not drawn or holder.is_too_large(len(drawn))):
            drawn = Markup('<img src="{}" alt="{}">').format(holder.link(png), item.spec.title)
        missing = Markup('<p class="missing">The figure was not drawn.</p>')
        return cls(item, drawn or missing, [(path.suffix[1:], holder.link(path)) for path in item.downloads])


def write_index(
    out_dir: str | Path, items: Sequence[Item], environment: Mapping[str, Any], *, title: str = "Leeway",
    opening: Markup | None = None, groups: Sequence[Group] = (), listed: bool = False
) -> Path:
    """Write <out_dir>/index.html and return its path. It needs no network, and no other file unless it would take more
    than 3 MB: its data and its large files are then in a folder beside it, and a large drawing is shown as PNG.
    `environment` is plain data; `opening` comes before the reports, which are then folded;
    `groups` holds the cells whose answers it shows; `listed`: a table of them comes before the answers."""
    path = Path(out_dir) / "index.html"
    path.parent.mkdir(parents=True, exist_ok=True)
    facts = {item.spec.name: item.facts for item in items} | ({LISTING: listing_facts(groups)} if listed else {})
    parts = {"facts": facts} | (parts_of(groups) if groups else {})
    texts, drawings = {name: script_json(data) for name, data in parts.items()}, [item.drawn() for item in items]
    size = sum(map(len, [*texts.values(), *drawings, opening or ""]))
    size += sum(embedded_size(file) for item in items for file in item.downloads)
    holder = Holder(path.parent, size)
    sections = [Section.of(item, drawn, holder) for item, drawn in zip(items, drawings, strict=True)]
    page = formats.TEMPLATES.get_template("index.html.j2").render(
        title=title, items=items, sections=sections, environment=list(_flat(environment)),
        metrics=_used_metrics(items), opening=opening, groups=groups,
        listing=listing(groups, folded=opening is not None) if listed else None,
        parts=list(holder.elements(texts)))
    path.write_text(printable(page), encoding="utf-8")
    return path


def _used_metrics(items: Sequence[Item]) -> list[Metric]:
    """The metrics that these reports show, and always speedup and τ."""
    used = {"speedup", "tau"}.union(*(item.spec.metrics() for item in items))
    return [metric for name, metric in METRICS.items() if name in used]


def _flat(data: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    for name, value in data.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name} · ")
        elif isinstance(value, list | tuple):
            yield f"{prefix}{name}", " ".join(map(str, value)) or "none"
        else:
            yield f"{prefix}{name}", "unknown" if value is None else str(value)


def inline_svg(path: Path, name: str, title: str) -> Markup:
    """The drawing without its XML prolog. Its ids are prefixed with the report's name, so that they are unique on the
    page, and its colours become variables with themselves as default, so that the dark theme can lighten them."""
    svg = path.read_text(encoding="utf-8")
    svg = svg[svg.index("<svg"):]
    for pattern in (r'(\bid=")', r"(url\(#)", r'(href="#)'):
        svg = re.sub(pattern, rf"\g<1>{name}-", svg)
    svg = re.sub(r": #([0-9a-f]{6})\b", r": var(--c-\1, #\1)", svg)
    named = f'<svg role="img" aria-label="{Markup.escape(title)}" class="plot"'
    return Markup(f'<div class="scroll">{svg.replace("<svg", named, 1)}</div>')
