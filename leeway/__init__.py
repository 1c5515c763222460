"""Leeway from Python: three names for a script or a notebook.

    from leeway import evaluate, screen

    screen("rule=floor.py:Floor", "rule.floor=0.2,0.5,0.8", n=32)  # from one lossless decode
    evaluate("rule=floor.py:Floor", "drafter=eagle3", task="mini_chat", n=32)

Every word is an override of `python -m bench`, and so is every keyword: n=32 is "n=32". Values
separated by commas are several settings. `evaluate` resumes: what the same code decoded is read
back. `Rule` is what an acceptance rule subclasses (docs/adding_a_rule.md)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from methods.rules.base import Rule

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Rule", "evaluate", "screen"]
METRICS = ("tau", "speedup", "distortion", "accuracy", "acceptance_rate", "tokens_per_s")


def screen(*overrides: str, **options: Any) -> pd.DataFrame:
    """Accept length and distortion that rules are expected to have on the drafts of one lossless
    decode; without `rule=` every rule (docs/screen.md has the columns).

    A row for each setting, the longest accept length (tokens per cycle) first, `distortion` in nats
    per token. Also writes screen.csv and screen.png into `output.dir`. Raises ConfigError and
    ModelError, one line."""
    from bench.screen import screen as run

    frame, _, _ = run(_words(overrides, options))
    return frame


def evaluate(*overrides: str, **options: Any) -> pd.DataFrame:
    """Decode, score and time settings, as `python -m bench` does.

    A row for each setting: `overrides`, then for each of `METRICS` the value and the ends of its
    95% interval, `_low` and `_high` (tau in tokens per cycle, speedup over plain decoding,
    distortion in nats per token, accuracy a share), then the number `n` of prompts and `failed`
    ones. NaN where nothing was measured. Raises ConfigError, ModelError and StoreError, one
    line."""
    import pandas as pd

    from bench.config.compose import composer
    from bench.run.run import run
    from bench.run.session import Session

    words = _words(overrides, options)
    with composer(words) as hydra:
        command = hydra.command(words)
        cells = command.cells
        session = Session(command.settings)
        session.check(cells)
        run(cells, session)
        rows = []
        for point, cell in zip(command.points, cells, strict=True):
            row: dict[str, Any] = {"overrides": " ".join(point.overrides)}
            rows.append(row)
            summary = session.compared(cell)
            if summary is None:
                continue
            for name in METRICS:
                low, high = summary.interval(name) or (None, None)
                row |= {name: summary.value(name), f"{name}_low": low, f"{name}_high": high}
            row |= {"n": summary.n, "failed": summary.failed}
    return pd.DataFrame(rows)


def _words(overrides: tuple[str, ...], options: dict[str, Any]) -> list[str]:
    """The words of a command line: several settings where an override has several values."""
    words = [*overrides, *(f"{key}={value}" for key, value in options.items())]
    outside_brackets = ["," in word.partition("=")[2].partition("[")[0] for word in words]
    return ["-m", *words] if any(outside_brackets) else words
