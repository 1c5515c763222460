"""`python -m bench.conformance FILE [rule=NAME] [rule.OPTION=VALUE …]`: does an engine verify as it says?

FILE holds tokens and probabilities recorded from an engine or a function, one cycle a line (docs/serving.md). Its
acceptances, corrections and bonus tokens are compared with those of a rule of this project, its first tokens with the
target's distribution. rule=lossless unless another is named. Exit status: 0 consistent, 1 not, 2 the command is wrong.

    python -m bench.conformance results/measured/conformance/assisted.jsonl.gz
    python -m bench.conformance results/measured/conformance/ensemble.jsonl.gz rule=ensemble rule.w=0.8

engine=vllm records verified drafts inside vLLM's worker and tests them at once:

    python -m bench.conformance engine=vllm pair=tiny drafter=eagle3 drafter.tree=chain decoding.temperature=1
        decoding.top_k=50 task=mini_gsm rule=mars rule.theta=0.9"""

from __future__ import annotations

import argparse
import gzip
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, ValidationError

from bench.commands.command import run_command
from bench.config.rule_text import rule_of
from methods.conformance import FEWEST, Check, Cycle, Distribution, examine
from methods.sampling import Sampling
from results.store.errors import Arguments

if TYPE_CHECKING:
    from methods.rules.base import Rule

Row = list[float] | dict[int, float]


class Record(BaseModel):
    """A line of a file: see docs/serving.md. Several draws of one context share p and q."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)
    p: list[Row]
    q: list[Row] | None = None
    drafted: list[int] | list[list[int]]
    emitted: list[int] | list[list[int]]
    u: list[float] | list[list[float]] | None = None
    log_mass: list[float] | None = None

    def cycles(self) -> Iterator[Cycle]:
        """Raises ValueError, one line, where the draws do not fit together."""
        p, q = [_sparse(row) for row in self.p], None if self.q is None else [_sparse(row) for row in self.q]
        many = isinstance(self.emitted[0], list) if self.emitted else False
        emitted: list[Any] = list(self.emitted) if many else [self.emitted]
        given = bool(many and not (self.drafted and isinstance(self.drafted[0], list)))
        drafted: list[Any] = [self.drafted] * len(emitted) if given or not many else list(self.drafted)
        u: list[Any] = [None] * len(emitted) if self.u is None else list(self.u) if many else [self.u]
        if not len(emitted) == len(drafted) == len(u):
            raise ValueError(f"{len(emitted)} draws emitted, {len(drafted)} drafted, {len(u)} lists of u: give as many "
                             "of each, or one draft for all")
        for draft, out, numbers in zip(drafted, emitted, u, strict=True):
            yield Cycle(p, q, draft, out, numbers, not given, self.log_mass)


def _sparse(row: Row) -> Distribution:
    return {token: x for token, x in (row.items() if isinstance(row, dict) else enumerate(row)) if x != 0.0}


def read(path: Path) -> list[Cycle]:
    """The cycles of a JSONL file, compressed if its name ends in .gz. Raises ValueError, one line, with its number."""
    opener: Callable[..., IO[str]] = gzip.open if path.suffix == ".gz" else open
    cycles: list[Cycle] = []
    with opener(path, "rt", encoding="utf-8") as file:
        for number, line in enumerate(file, start=1):
            try:
                for cycle in Record.model_validate_json(line).cycles():
                    cycle.check()
                    cycles.append(cycle)
            except ValidationError as error:
                first = error.errors()[0]
                where = ".".join(map(str, first["loc"]))
                raise ValueError(f"{path}, line {number}: {where}: {first['msg']}") from error
            except ValueError as error:
                raise ValueError(f"{path}, line {number}: {error}") from error
    return cycles


def verdict(rule: Rule, checks: Sequence[Check], level: float) -> list[str]:
    """The parts that contradict the rule. `emitted` counts for a lossless rule alone; the level is shared by all parts
    that were judged (Bonferroni)."""
    lossless = rule.is_lossless(Sampling(1.0))
    judged = [check for check in checks if check.p_value is not None and (check.part != "emitted" or lossless)]
    if not judged:
        raise ValueError(f"too few cycles to judge any part: each part needs ≥ {FEWEST} observations; record several "
                         "hundred cycles")
    return [check.part for check in judged if (check.p_value or 0.0) < level / len(judged)]


def report(title: str, rule: Rule, cycles: Sequence[Cycle], level: float) -> int:
    """Print every part and the verdict. Returns 1 where the records contradict the rule."""
    checks = examine(rule, cycles)
    failed = verdict(rule, checks, level)
    print(f"{title}: {len(cycles)} cycles, compared with {rule!r}")
    for check in checks:
        shown = "too few" if check.p_value is None else f"p = {check.p_value:.2g}"
        print(f"  {check.part:14} n = {check.n:6}   {shown}")
    first = next(check for check in checks if check.part == "emitted")
    if first.p_value is not None and not rule.is_lossless(Sampling(1.0)):
        print(f"  the first tokens are {'consistent with' if first.p_value >= level else 'not those of'} the target's "
              "distribution")
    print(f"NOT {rule!r}: {', '.join(failed)}" if failed else f"consistent with {rule!r} at level {level:g}")
    return 1 if failed else 0


def run_engine(overrides: Sequence[str], cycles: int, level: float, sampler: str, out: Path | None) -> int:
    """Record verified drafts in an engine and test them: a rule of this project in it, and the engine's own sampler,
    which claims to be lossless. Returns 1 where either contradicts what it claims."""
    from bench.config.compose import composer
    from bench.run.vllm.conformance import recorded

    with composer() as hydra:
        cell = hydra.point(list(overrides)).cell
    if cell.engine.name != "vllm" or cell.decoding.sampling.greedy:
        raise ValueError("give engine=vllm and decoding.temperature=1: other engines record no cycles, and at "
                         "temperature 0 nothing is drawn")
    status = 0
    for by_rule, title, rule in ((True, f"{cell.label} in vLLM", cell.rule.options),
                                 (False, "vLLM's own sampler", rule_of(["rule=lossless"]))):
        if sampler not in ("both", "rule" if by_rule else "engine"):
            continue
        lines = list(recorded(cell, cycles, by_rule))
        if out is not None:
            write(out.with_name(f"{'rule' if by_rule else 'engine'}-{out.name}"), lines)
        found = [cycle for line in lines for cycle in Record.model_validate(line).cycles()]
        status |= report(title, rule, found, level)
    return status


def write(path: Path, lines: Iterable[Mapping[str, Any]]) -> None:
    """Write records to `path` (.jsonl.gz)."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as raw, gzip.GzipFile("", "wb", fileobj=raw, mtime=0) as file:
        for line in lines:
            file.write((json.dumps(line, separators=(",", ":")) + "\n").encode())


def main(argv: Sequence[str] | None = None) -> int:
    """Exit status: 0 consistent, 1 not, 2 the command is wrong."""
    parser = Arguments(prog="python -m bench.conformance", description=__doc__.split("\n\n", 1)[1],
                       formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("given", nargs="+", metavar="FILE|NAME=VALUE",
                        help="a file of records, .jsonl or .jsonl.gz, and rule=NAME rule.OPTION=VALUE …, default "
                             "rule=lossless; or engine=vllm and the options of a cell")
    parser.add_argument("--level", type=float, default=1e-3, help="of the test as a whole (default 0.001)")
    parser.add_argument("--cycles", type=int, default=1500, help="with engine=vllm: how many")
    parser.add_argument("--sampler", choices=("both", "rule", "engine"), default="both",
                        help="with engine=vllm: what is tested, the rule, the engine's own sampler or both")
    parser.add_argument("--out", type=Path, help="with engine=vllm: keep the records in rule-NAME and engine-NAME")
    args = parser.parse_args(argv)
    if any(one.startswith("engine=") for one in args.given):
        return run_command(lambda: run_engine(args.given, args.cycles, args.level, args.sampler, args.out))
    path, overrides = Path(args.given[0]), list(args.given[1:])
    return run_command(lambda: report(str(path), rule_of(overrides), read(path), args.level))


if __name__ == "__main__":
    sys.exit(main())
