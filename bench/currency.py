"""`python -m bench.currency [KEY=VALUE …]`: how far rounded weights and other temperatures take the
target's distribution, in the unit of a rule's distortion (conf/currency.yaml, docs/audit.md)."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from pydantic import PositiveFloat
from rich.table import Table

from bench.cli.command import Options, parted, run_command
from bench.config.command import with_base
from bench.config.compose import composer
from bench.config.errors import ConfigError
from bench.config.help import answered
from bench.run.console import console
from results.store.files import check_writable


class Currency(Options):
    """The command's own options, as conf/currency.yaml explains them."""

    forms: tuple[str, ...]
    temperatures: tuple[PositiveFloat, ...]
    base: tuple[str, ...]


def measured(words: Sequence[str]) -> int:
    """Measure what a command line asks for; write and print it. Raises ConfigError, ModelError."""
    from bench.run.auditing.cells import from_cells
    from bench.run.auditing.currency import WARMER, altered_nats, temperature_of
    from bench.run.models import load_language_model, use_threads

    config, overrides = parted(words, "currency")
    options = Currency.from_args(config)
    with composer(words) as hydra:
        point = hydra.point(with_base(overrides, options.base))
    cell, folder = point.cell, point.settings.output.dir
    if cell.decoding.sampling.greedy:
        raise ConfigError("decoding.temperature=0: a point mass has no distance; give one above 0")
    altered = [*options.forms, *(f"{WARMER}{t:g}" for t in options.temperatures)]
    for name in altered:
        temperature_of(name)  # refuses it before anything is decoded
    check_writable(folder, "output.dir")
    use_threads(cell.engine)
    target = load_language_model(cell.pair, cell.engine, "target")
    texts = from_cells(cell, point.settings, 1, target).texts
    nats, notes = altered_nats(target, altered, texts, cell.decoding.sampling)
    tokens = np.array([len(text.output_ids) for text in texts])
    names = np.unique([text.prompt for text in texts], return_inverse=True)[1]
    rows = [row_of(name, of_texts.numpy(), tokens, names) for name, of_texts in nats.items()]
    frame = pd.DataFrame(rows)
    folder.mkdir(parents=True, exist_ok=True)
    frame.to_csv(folder / "currency.csv", index=False)
    table = Table("the target with", "D, nats per token", "95% interval", "nats per answer")
    for row in rows:
        interval = f"[{row['low']:.4f}, {row['high']:.4f}]"
        table.add_row(row["target"], f"{row['D']:.4f}", interval, f"{row['answer']:.3f}")
    console().print(table)
    for note in [*notes.values(), f"{tokens.sum()} tokens; written: {folder / 'currency.csv'}"]:
        console().print(note, highlight=False, soft_wrap=True)
    return 0


def row_of(name: str, nats: np.ndarray, tokens: np.ndarray, prompts: np.ndarray) -> dict[str, Any]:
    """A row of currency.csv: the mean over tokens, with an interval over prompts."""
    from scipy.stats import t

    mean = nats.sum() / tokens.sum()
    effects = np.bincount(prompts, nats - mean * tokens) / tokens.sum()
    count = len(effects)
    half = t.ppf(0.975, count - 1) * np.sqrt((effects**2).sum() * count / (count - 1))
    return {
        "target": name,
        "D": mean,
        "low": mean - half,
        "high": mean + half,
        "answer": nats.mean(),
        "tokens": int(tokens.sum()),
        "prompts": count,
    }


def main(argv: Sequence[str] | None = None) -> int:
    """Exit status: 0 done, 2 the command is wrong."""
    words = list(sys.argv[1:] if argv is None else argv)
    return run_command(lambda: 0 if answered("currency", words) else measured(words))


if __name__ == "__main__":
    sys.exit(main())
