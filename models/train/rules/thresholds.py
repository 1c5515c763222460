"""`python -m models.train thresholds`: the draft length and three thresholds of FSD for a pair and
a task, chosen as in Appendix D of its paper (conf/thresholds.yaml)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field, PositiveInt

from bench.config.paths import portable
from bench.config.schema import LONGEST_DRAFT
from bench.run.answer import answer, think_end_of
from bench.run.locks import machine
from bench.run.models import NativeMethod
from methods.decode import Limits
from methods.drafters.model import ModelDrafter
from methods.engine.texts import check_same_vocabulary, shared_rows
from methods.method import autoregressive, build_method
from methods.rules.fsd import Fsd
from methods.rules.lossless import Lossless
from methods.sampling import Sampling
from models.train.options import PairOptions, map_batches
from results.store.errors import redacted_plain
from results.store.files import check_writable_file
from results.store.sample import FailedSample
from tasks.base import TaskError

if TYPE_CHECKING:
    from methods.method import Method
    from methods.rules.base import Rule
    from tasks.base import Prompt

LEVELS = ("Low", "Med.", "High")
WARM_UP = 32  # tokens before the clock counts: the first forwards of a shape are slow
Row = dict[str, list[float]]
"""Name of a method -> accepted and drafted tokens, all tokens, seconds and the sum of the scores of
all trials."""


class Thresholds(PairOptions):
    """conf/thresholds.yaml, which explains every field."""

    prompts: PositiveInt
    scored: PositiveInt | None
    trials: PositiveInt
    lengths: list[Annotated[int, Field(ge=1, le=LONGEST_DRAFT)]] = Field(min_length=1)
    thresholds: list[Annotated[float, Field(gt=0)]] = Field(min_length=len(LEVELS))
    loss: float = Field(gt=0, le=1)
    temperature: float = Field(gt=0)
    top_p: float = Field(gt=0, le=1)
    top_k: int = Field(ge=0)
    repetition_penalty: float = Field(1.0, gt=0, le=10, exclude_if=lambda penalty: penalty == 1)
    max_new_tokens: PositiveInt | None
    batch: PositiveInt
    seed: int


class Trials:
    """Answers the task's prompts with methods on the pair, and keeps what is needed of them in
    `settings.work`."""

    def __init__(self, settings: Thresholds) -> None:
        self.settings, self.task = settings, settings.load_task()
        if fault := self.task.unscorable():
            raise TaskError(f"task={settings.task.name}: answers cannot be scored here: {fault}")
        target, draft = settings.load_model("target"), settings.load_model("draft")
        check_same_vocabulary(target, draft)
        if (rows := shared_rows(target, draft)) is not None:
            target, draft = (
                model.narrowed(rows) if model.vocab_size > rows else model
                for model in (target, draft)
            )
        self.target, self.draft = target, draft
        self.sampling = Sampling(
            settings.temperature,
            settings.top_k,
            settings.top_p,
            repetition_penalty=settings.repetition_penalty,
        )
        self.greedy = ModelDrafter.model_validate({"sample": False})
        limit = settings.max_new_tokens or settings.task.options.max_new_tokens
        think_end = think_end_of(settings.task.options, target)
        self.limits = Limits(limit, target.eos_ids, self.task.stop, think_end)
        self._identity = {
            "target": target.fingerprint,
            "draft": draft.fingerprint,
            "version": self.task.version,
            "task": settings.task.model_dump(mode="json"),
            "dtype": settings.engine.dtype,
            "limit": limit,
            **settings.model_dump(
                include={
                    "trials",
                    "temperature",
                    "top_p",
                    "top_k",
                    "repetition_penalty",
                    "seed",
                }
            ),
        }

    def drafting(self, rule: Rule, length: int) -> Method:
        """Greedy drafts of `length` tokens, judged by the rule."""
        return build_method(self.target, self.draft, self.greedy, rule, self.sampling, length)

    def alone(self) -> dict[str, Method]:
        """The draft and the target model, each by itself."""
        return {
            "M_D": autoregressive(self.draft, self.sampling),
            "M_T": autoregressive(self.target, self.sampling),
        }

    def timed(self, arms: Mapping[str, Method], prompts: Sequence[Prompt]) -> Row:
        """As `sums`, one prompt at a time, alone on this machine and with warm caches."""
        with machine(alone=True):
            for method in arms.values():
                answer(
                    NativeMethod(method),
                    prompts[:1],
                    replace(self.limits, max_new_tokens=WARM_UP),
                    partial(self._stream, 0),
                )
            return self.sums(arms, prompts, 1, "speed of SD")

    def sums(
        self, arms: Mapping[str, Method], prompts: Sequence[Prompt], batch: int, title: str
    ) -> Row:
        """Each method's row, summed over prompts and trials; the methods take turns. Raises
        TaskError for an answer that failed or has no score."""
        identity = {**self._identity, "arms": list(arms), "batch": batch}
        rows = map_batches(
            self.settings.work, identity, prompts, partial(self._rows, arms), title, batch
        )
        return {
            name: [sum(numbers) for numbers in zip(*(row[name] for _, row in rows), strict=True)]
            for name in arms
        }

    def _rows(self, arms: Mapping[str, Method], batch: Sequence[Prompt]) -> list[Row]:
        rows: list[Row] = [{name: [0.0] * 5 for name in arms} for _ in batch]
        limits = replace(self.limits, shrink=len(batch) > 1)
        for trial in range(self.settings.trials):
            for name, method in arms.items():
                answered = answer(NativeMethod(method), batch, limits, partial(self._stream, trial))
                for prompt, row in zip(batch, rows, strict=True):
                    turns = answered[prompt.id]
                    if isinstance(turns, FailedSample):
                        raise TaskError(f"task={self.task.name}, prompt {prompt.id}: {turns.error}")
                    score = self.task.score(prompt, [turn.text for turn in turns]).value
                    if score is None:
                        raise TaskError(
                            f"task={self.task.name}: its answers have no score; give a task that "
                            "has one"
                        )
                    new = (
                        sum(sum(t.accepted) for t in turns),
                        sum(sum(t.nodes) for t in turns),
                        sum(len(t.output_ids) for t in turns),
                        sum(t.prefill_s + t.decode_s for t in turns),
                        score,
                    )
                    row[name] = [a + b for a, b in zip(row[name], new, strict=True)]
        return rows

    def _stream(self, trial: int, prompt: Prompt, turn: int) -> str:
        return f"{self.settings.seed}/thresholds/{prompt.id}/{trial}/{turn}"


def choose(settings: Thresholds, trials: Trials) -> dict[str, Any]:
    """What Appendix D measures, and what follows from it: `length`, and `levels`, the three
    thresholds.

    The paper does not say how Low, Med. and High are taken from the thresholds it evaluates: here
    the first, the middle and the last; at least three are evaluated."""
    few, many = (trials.task.prompts(n, settings.seed) for n in (settings.prompts, settings.scored))
    sd = trials.timed(
        {f"SD {n}": trials.drafting(Lossless(q_mode="draft"), n) for n in settings.lengths}, few
    )
    speeds = {n: sd[f"SD {n}"][2] / sd[f"SD {n}"][3] for n in settings.lengths}
    length = max(speeds, key=speeds.__getitem__)
    fsd = {
        t: (f"FSD {t} L {length}", trials.drafting(Fsd(threshold=t), length))
        for t in sorted({*settings.thresholds})
    }
    judged = trials.sums(dict(fsd.values()), few, settings.batch, "acceptance of FSD")
    shares = {t: judged[name][0] / max(judged[name][1], 1) for t, (name, _) in fsd.items()}
    wanted = sd[f"SD {length}"][0] / max(sd[f"SD {length}"][1], 1)
    equal = min(shares, key=lambda t: abs(shares[t] - wanted))

    def accuracy(name: str, method: Method) -> float:
        [row] = trials.sums({name: method}, many, settings.batch, f"scoring {name}").values()
        return row[4] / (len(many) * settings.trials)

    alone = {name: accuracy(name, method) for name, method in trials.alone().items()}
    least = alone["M_T"] - settings.loss * max(0.0, alone["M_T"] - alone["M_D"])
    first = min(list(fsd).index(equal), len(fsd) - len(LEVELS))
    accuracies: dict[float, float] = {}
    for t in list(fsd)[first:]:
        accuracies[t] = accuracy(*fsd[t])
        if len(accuracies) >= len(LEVELS) and accuracies[t] <= least:
            break
    tried = list(accuracies)
    return {
        "length": length,
        "levels": dict(zip(LEVELS, (tried[0], tried[len(tried) // 2], tried[-1]), strict=True)),
        "sd_tokens_per_s": speeds,
        "sd_acceptance": wanted,
        "fsd_acceptance": shares,
        "equal_threshold": equal,
        "accuracy": {**alone, **accuracies},
        "least_accuracy": least,
        "prompts": len(few),
        "scored": len(many),
    }


def run(config: Mapping[str, Any]) -> None:
    """Measure, choose, write the file. Raises ValueError, ModelError, TaskError."""
    settings = Thresholds.from_config(config)
    check_writable_file(settings.out, "out")
    chosen = choose(settings, Trials(settings))
    made = portable(
        redacted_plain(settings.model_dump(mode="json", exclude={"out", "work", "batch"}))
    )
    settings.out.write_text(
        json.dumps({**chosen, "made_with": made}, indent=1) + "\n", encoding="utf-8"
    )
    speeds = ", ".join(f"{n}: {speed:.1f}" for n, speed in chosen["sd_tokens_per_s"].items())
    levels = ",".join(f"{t:g}" for t in sorted({*chosen["levels"].values()}))
    accuracies = ", ".join(f"{name}: {value:.1%}" for name, value in chosen["accuracy"].items())
    print(
        "\n".join(
            [
                f"{settings.out}: L = {chosen['length']} (SD, tokens/s by L: {speeds})",
                f"  SD accepts {chosen['sd_acceptance']:.1%} of its drafts, FSD at "
                f"{chosen['equal_threshold']:g} "
                f"{chosen['fsd_acceptance'][chosen['equal_threshold']]:.1%}",
                f"  accuracy: {accuracies}; thresholds rise to {chosen['least_accuracy']:.1%}",
                "  " + ", ".join(f"{level} {t:g}" for level, t in chosen["levels"].items()),
                f"  python -m bench -m method=fsd pair={settings.pair.name} "
                f"task={settings.task.name} draft.length={chosen['length']} "
                f"rule.threshold={levels} decoding.temperature={settings.temperature:g} "
                f"decoding.top_p={settings.top_p:g} decoding.top_k={settings.top_k}",
            ]
        )
    )
