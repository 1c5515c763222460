"""`python -m bench.audit [KEY=VALUE …]`: whether an engine's texts can be the target's own, from
the texts alone (conf/audit.yaml, docs/audit.md)."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from pydantic import Field, PositiveFloat, PositiveInt
from rich.table import Table

from bench.cli.command import FAILED, Options, parted, run_command
from bench.config.command import key_of, with_base
from bench.config.compose import composer
from bench.config.errors import ConfigError
from bench.config.help import answered
from bench.config.settings import key_in
from bench.run.console import console
from results.metrics import audit as statistics
from results.store.errors import USAGE_ERROR, redacted
from results.store.files import check_writable, replace_text
from results.store.records import json_text

if TYPE_CHECKING:
    from bench.config.cell import Cell
    from bench.config.settings import Settings
    from bench.run.auditing.answers import Answer, Asked, Source
    from methods.engine.language_model import LanguageModel
    from results.metrics.audit import Audit, Part, Tokens

SHOWN = 10
"""Prompts that are listed, the furthest from the target first."""
LEAST_PROMPTS = 2 * statistics.FOLDS
CONSISTENT, NOT_LOSSLESS, TOO_FEW = "consistent", "not lossless", "too few tokens"
STATUS = {CONSISTENT: 0, NOT_LOSSLESS: FAILED, TOO_FEW: USAGE_ERROR}


class Auditing(Options):
    """The command's own options, as conf/audit.yaml explains them."""

    texts: Path | None
    url: str | None = Field(pattern="^https?://")
    model: str | None
    key_env: str
    transformers: Literal["plain", "assisted", "prompt_lookup"] | None
    arguments: dict[str, Any]
    control: Path | None
    control_url: str | None = Field(pattern="^https?://")
    ends: Literal["auto", "kept", "dropped"]
    detect: PositiveFloat
    samples: PositiveInt
    use_draft: bool
    concurrency: PositiveInt
    timeout_s: PositiveFloat
    retries: int = Field(ge=0)
    wait_s: float = Field(ge=0)
    base: tuple[str, ...]

    def check(self) -> None:
        """Raises ConfigError for options that exclude each other."""
        named = {"texts": self.texts, "url": self.url, "transformers": self.transformers}
        chosen = [name for name, value in named.items() if value is not None]
        if len(chosen) > 1:
            raise ConfigError(f"{chosen[0]}: the texts come from {chosen[1]}; give one of them")
        if self.control is not None and self.control_url is not None:
            raise ConfigError("control: the control is control_url's; give one of them")
        if self.model is None and (self.url or self.control_url):
            raise ConfigError("model: missing; give the name by which the server knows its model")
        if self.arguments and not (self.url or self.transformers):
            raise ConfigError("arguments: belong to url= or transformers=; give one of them")


def requests_of(cell: Cell, target: LanguageModel, samples: int) -> list[Asked]:
    """The first turn of each prompt, each sample with a seed of its own."""
    from bench.run.answer import context
    from bench.run.auditing.answers import Asked

    prompts = [(prompt.id, context(target, prompt, [])) for prompt in cell.prompts()]
    return [
        Asked(name, sample, ids, (cell.seed << 20) + sample * len(prompts) + number)
        for sample in range(samples)
        for number, (name, ids) in enumerate(prompts)
    ]


def asked_of(cell: Cell, options: Auditing, **more: Any) -> dict[str, Any]:
    """What decides the answers: answers on file to anything else are not taken."""
    return {
        "target": cell.fingerprints()["target"],
        "task": cell.task.model_dump(mode="json"),
        "decoding": cell.decoding.model_dump(mode="json"),
        "seed": cell.seed,
        "arguments": options.arguments,
        **more,
    }


def from_server(
    cell: Cell, options: Auditing, url: str, folder: Path, name: str, target: LanguageModel
) -> Source:
    """The answers of a server, kept in `folder`. Raises ServerError, AnswersError."""
    from bench.run.auditing.answers import AnswerFile
    from bench.run.auditing.server import Server, repeated
    from bench.run.endpoint import Endpoint

    key = key_in(options.key_env, "key_env")
    server = Server(
        Endpoint(url, key, options.timeout_s, options.retries, options.wait_s),
        options.model or "",
        target,
        cell.decoding.sampling,
        cell.max_new_tokens,
        options.arguments,
    )
    requests = requests_of(cell, target, options.samples)
    asked = asked_of(cell, options, url=redacted(url), model=options.model)
    file = AnswerFile(folder, name, asked)
    server.answer(requests, file, options.concurrency)
    answers = file.of(requests)
    distinct = repeated(answers)
    if len(distinct) < len(answers):
        server.notes.append(
            f"{len(answers) - len(distinct)} answers repeat an earlier one to the same prompt, "
            "whatever the seed; they are left out"
        )
    source = source_of(server.name, distinct, cell, options, target)
    source.notes += server.notes + [f"not answered: {line}" for line in server.failed]
    return source


def from_transformers(cell: Cell, options: Auditing, folder: Path, target: LanguageModel) -> Source:
    """The answers of transformers' generate. Raises AnswersError."""
    from bench.run.auditing.answers import AnswerFile
    from bench.run.auditing.generated import Generated

    way = options.transformers or "plain"
    asked = asked_of(cell, options, transformers=way, length=cell.draft.length)
    file = AnswerFile(folder, "answers", asked)
    generated = Generated(cell, way, options.arguments)
    requests = requests_of(cell, target, options.samples)
    generated.answer(requests, file)
    answers = file.of(requests)
    source = source_of(f"transformers={way}", answers, cell, options, target)
    source.notes += [f"not answered: {line}" for line in generated.failed]
    return source


def from_file(file: Path, cell: Cell, options: Auditing, target: LanguageModel) -> Source:
    """Raises AnswersError."""
    from bench.run.auditing.answers import read

    return source_of(str(file), read(file), cell, options, target)


def source_of(
    name: str, answers: Sequence[Answer], cell: Cell, options: Auditing, target: LanguageModel
) -> Source:
    """The answers as token ids. Raises AnswersError."""
    from bench.run.answer import context
    from bench.run.auditing.answers import tokenised

    prompts: dict[str, list[int]] = {}
    if any(answer.prompt_ids is None and answer.prompt is None for answer in answers):
        prompts = {prompt.id: context(target, prompt, []) for prompt in cell.prompts()}
    return tokenised(name, answers, target, prompts, options.ends)


def tokens_of(
    source: Source, names: Sequence[str], cell: Cell, models: Sequence[LanguageModel]
) -> Tokens:
    """What the target says of the texts. `names`: of prompts, numbered."""
    from methods.audit import scored

    target, draft = models[0], models[1] if len(models) > 1 else None
    arrays = scored(target, source.texts, cell.decoding.sampling, draft, source.without_end)
    numbers = {name: number for number, name in enumerate(names)}
    prompts = np.array([numbers[text.prompt] for text in source.texts])
    return statistics.Tokens(prompt=prompts[arrays["text"]], **arrays)


@dataclass(frozen=True, slots=True)
class Judged:
    """An audit with its verdict.

    names       of prompts, by their numbers in the audit.
    detectable  nats per token that these tokens would show: of a change of temperature, of a rule.
    """

    audit: Audit
    source: Source
    control: Source | None
    names: Sequence[str]
    detectable: tuple[float, float]
    verdict: str


def judged(
    source: Source,
    control: Source | None,
    cell: Cell,
    detect: float,
    models: Sequence[LanguageModel],
) -> Judged:
    """Score the texts and judge them. Raises ConfigError for too few prompts."""
    sources = [source] if control is None else [source, control]
    names = sorted({text.prompt for each in sources for text in each.texts})
    tables = [tokens_of(each, names, cell, models) for each in sources]
    for each, table in zip(sources, tables, strict=True):
        count = len(np.unique(table.prompt))
        if count < LEAST_PROMPTS:
            raise ConfigError(
                f"{each.name}: {count} prompts have answers; give at least {LEAST_PROMPTS}, which "
                "errors over prompts need"
            )
    audit = statistics.audited(*tables)
    counts = [len(table) for table in tables]
    visible = statistics.detectable(sum(counts) if control is None else harmonic(counts))
    if not audit.is_consistent:
        verdict = NOT_LOSSLESS
    elif audit.z is not None and visible[1] > detect:
        verdict = TOO_FEW
    else:
        verdict = CONSISTENT
    return Judged(audit, source, control, names, visible, verdict)


def harmonic(counts: Sequence[int]) -> int:
    """Tokens of one run that tell as much as the difference of several."""
    return int(1 / sum(1 / count for count in counts))


def plain(result: Judged, cell: Cell, detect: float) -> dict[str, Any]:
    """audit.json."""
    audit, bound = result.audit, result.audit.bound
    low, high = (None, None) if bound is None else bound.interval
    return {
        "verdict": result.verdict,
        "source": result.source.name,
        "control": None if result.control is None else result.control.name,
        "target": redacted(str(cell.pair.target.source)),
        "decoding": cell.decoding.model_dump(mode="json"),
        "tokens": audit.tokens,
        "answers": audit.answers,
        "prompts": audit.prompts,
        "p": audit.p,
        "z": audit.z,
        "score_p": audit.score_p,
        "bound": None if bound is None else bound.value,
        "low": low,
        "high": high,
        "control_bound": None if audit.control is None else audit.control.value,
        "temperature": audit.temperature and audit.temperature[0],
        "temperature_interval": audit.temperature and audit.temperature[1:],
        "outside": audit.outside,
        "edge": audit.edge,
        "lost": audit.lost if cell.decoding.sampling.greedy else None,
        "exact": result.source.exact,
        "detect": detect,
        "detectable": {"temperature": result.detectable[0], "rule": result.detectable[1]},
        "answer_bound": None if bound is None else bound.value * audit.tokens / audit.answers,
        "places": plain_parts(audit.places),
        "entropies": plain_parts(audit.entropies),
        "worst": [
            {"prompt": result.names[prompt], "tokens": count, "nats": gain, "z": z}
            for prompt, count, gain, z in audit.worst[:SHOWN]
        ],
        "notes": result.source.notes,
    }


def plain_parts(parts: Mapping[str, Part]) -> dict[str, Any]:
    return {
        name: {
            "tokens": part.tokens,
            "z": part.z,
            "bound": part.gain,
            "share": finite(part.share),
        }
        for name, part in parts.items()
    }


def finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def printed(report: Mapping[str, Any]) -> None:
    """Print a short table, the verdict last."""
    count = f"{report['tokens']} tokens of {report['answers']} answers to {report['prompts']}"
    say(f"{report['source']}: {count} prompts, scored by {report['target']}")
    table = Table("", "value", "95% interval")
    for row in rows_of(report):
        table.add_row(*row)
    console().print(table)
    print_parts("place in the answer", report["places"])
    if report["verdict"] == NOT_LOSSLESS and report["entropies"]:
        print_parts("entropy of p", report["entropies"])
    if report["verdict"] == NOT_LOSSLESS:
        worst = ", ".join(f"{row['prompt']} ({row['nats']:.1f})" for row in report["worst"][:5])
        say(f"furthest from the target, nats: {worst}")
    for note in report["notes"]:
        say(f"- {note}")
    say(said(report))


def print_parts(title: str, parts: Mapping[str, Mapping[str, Any]]) -> None:
    table = Table(title, "tokens", "z", "D ≥", "share")
    for name, row in parts.items():
        share = number(row["share"], ".0%")
        table.add_row(
            name, str(row["tokens"]), number(row["z"], "+.1f"), number(row["bound"], ".4f"), share
        )
    console().print(table)


def rows_of(report: Mapping[str, Any]) -> Iterable[tuple[str, str, str]]:
    """Name, value and interval of each number that is known."""
    if report["z"] is not None:
        less = "" if report["control"] is None else " less the control's"
        interval = f"[{report['low']:+.4f}, {report['high']:+.4f}]"
        heat = "[{:.2f}, {:.2f}]".format(*report["temperature_interval"])
        yield "z" + less, f"{report['z']:+.1f}", "±2.0 if they are its own"
        yield f"D ≥, nats per token{less}", f"{report['bound']:+.4f}", interval
        yield "the same, nats per answer", f"{report['answer_bound']:+.3f}", ""
        yield "nearest temperature", f"{report['temperature']:.2f}", heat
    else:
        yield "nats lost per token", f"{report['lost']:.4f}", ""
    yield "p-value", f"{report['p']:.2g}", ""
    if report["exact"] is not None:
        yield "D of the rule's exact law", f"{report['exact']:.4f}", ""
    if report["outside"] or report["edge"]:
        yield "tokens that its settings exclude", str(report["outside"]), ""
        yield "…within rounding", str(report["edge"]), ""


def said(report: Mapping[str, Any]) -> str:
    """The verdict in a sentence."""
    visible = report["detectable"]
    seen = (
        f"{report['tokens']} tokens show a D of {visible['temperature']:.3f} that is another "
        f"temperature, and one of about {visible['rule']:.2f} of a relaxed rule"
    )
    if report["verdict"] == NOT_LOSSLESS:
        return f"not lossless: the target's own texts are this far off with p = {report['p']:.1g}"
    if report["verdict"] == TOO_FEW:
        return f"too few tokens for detect={report['detect']:g}: {seen}; give more prompts"
    if report["z"] is None:
        return "consistent with greedy decoding of the target"
    return f"consistent with the target's distribution: {seen}"


def say(line: str) -> None:
    console().print(line, highlight=False, soft_wrap=True, markup=False)


def number(value: float | None, form: str) -> str:
    return "–" if value is None else format(value, form)


def audit(words: Sequence[str]) -> int:
    """Audit what a command line asks for. Raises ConfigError, ModelError, AnswersError,
    ServerError."""
    config, overrides = parted(words, "audit")
    options = Auditing.from_args(config)
    options.check()
    with composer(words) as hydra:
        point = hydra.point(on_base(overrides, options))
    settings, cell = point.settings, point.cell
    if cell.decoding.sampling.repetition_penalty != 1:
        raise ConfigError(
            f"decoding.repetition_penalty={cell.decoding.sampling.repetition_penalty:g}: an audit "
            "compares with p without a penalty; audit answers that were made at 1"
        )
    folder = settings.output.dir
    check_writable(folder, "output.dir")
    models = loaded(cell, options)
    source = source_for(options, cell, settings, models[0])
    control = None
    if options.control is not None:
        control = from_file(options.control, cell, options, models[0])
    elif options.control_url is not None:
        control = from_server(cell, options, options.control_url, folder, "control", models[0])
    if not source.texts:
        raise ConfigError(f"{source.name}: no answer holds a token")
    result = judged(source, control, cell, options.detect, models)
    report = plain(result, cell, options.detect)
    replace_text(folder / "audit.json", json_text(report, 1) + "\n")
    printed(report)
    say(f"written: {folder / 'audit.json'}")
    return STATUS[result.verdict]


def on_base(overrides: Sequence[str], options: Auditing) -> list[str]:
    """The overrides behind those of the base that they leave to it, and that an engine other than
    Leeway's needs."""
    base = list(options.base)
    if "pair.target" in map(key_of, overrides):
        base.append("pair=local")
    if options.texts or options.url or options.transformers:  # another engine drafts
        base += ["drafter=none", "rule=lossless"]
    return with_base(overrides, base)


def source_for(options: Auditing, cell: Cell, settings: Settings, target: LanguageModel) -> Source:
    from bench.run.auditing.cells import from_cells

    folder = settings.output.dir
    if options.texts is not None:
        return from_file(options.texts, cell, options, target)
    if options.url is not None:
        return from_server(cell, options, options.url, folder, "answers", target)
    if options.transformers is not None:
        return from_transformers(cell, options, folder, target)
    return from_cells(cell, settings, options.samples, target)


def loaded(cell: Cell, options: Auditing) -> list[LanguageModel]:
    """The target, and the draft model where the pair has one that reads the same tokens. Raises
    ModelError."""
    from bench.run.models import load_language_model, use_threads
    from methods.engine.texts import check_same_vocabulary

    native = cell.engine.model_copy(update={"name": "native"})
    use_threads(native)
    models = [load_language_model(cell.pair, native, "target")]
    if options.use_draft and cell.pair.draft is not None:
        draft = load_language_model(cell.pair, native, "draft", models[0])
        check_same_vocabulary(models[0], draft)
        models.append(draft)
    return models


def main(argv: Sequence[str] | None = None) -> int:
    """Exit status: 0 consistent with the target's distribution, 1 not lossless, 2 all else: too few
    tokens, a server that is gone, a wrong command."""
    words = list(sys.argv[1:] if argv is None else argv)
    return run_command(lambda: 0 if answered("audit", words) else audit(words))


if __name__ == "__main__":
    sys.exit(main())
