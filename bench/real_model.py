"""`python -m bench.real_model`: fetch and convert the models of pair=smollm2, or of another pair with GGUF files."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from bench.commands.command import run_command
from bench.config.compose import composer
from methods.engine import gguf
from methods.engine.source import Source

PAIR = "smollm2"
USAGE = """usage: python -m bench.real_model [pair=NAME] [pair.ROLE=FILE.gguf] …

Fetch and convert the GGUF models of a pair, pair=smollm2 unless another is given, and print their folders.
What was fetched and converted before is kept in ~/.cache/leeway; LEEWAY_CACHE=DIR names another folder."""


def prepare(overrides: Sequence[str]) -> None:
    """Fetch and convert every GGUF model of the pair that the overrides name, and print where each lies.

    Raises ValueError, ModelError."""
    with composer() as hydra:
        pair = hydra.pair([f"pair={PAIR}", *overrides])
    models = {role: checkpoint for role, checkpoint in pair.checkpoints.items() if Source.of(checkpoint.source).is_gguf}
    if not models:
        raise ValueError(f"pair={pair.name} has no GGUF model: there is nothing to fetch or convert; give "
                         "pair=smollm2, or a pair with a .gguf file")
    for role in models:
        pair.check(role)
    for role, checkpoint in models.items():
        file = gguf.file_of(checkpoint.source, checkpoint.revision)
        print(f"pair.{role}: {gguf.converted(file)}, dequantised from {gguf.origin(file)}")
    print(f"next: python -m bench pair={pair.name} method=pld task=mt_bench n=8")


def main(argv: Sequence[str] | None = None) -> int:
    given = list(sys.argv[1:] if argv is None else argv)
    if "-h" in given or "--help" in given:
        print(USAGE)
        return 0
    return run_command(lambda: prepare(given))


if __name__ == "__main__":
    sys.exit(main())
