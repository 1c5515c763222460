"""The cells of a store in the terms of the exchange formats."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from itertools import accumulate, pairwise
from typing import Any

from results.exchange.base import Exchanged, Prompts, Source
from results.store.cells import CellFolder, Store
from results.store.sample import Sample
from results.store.timed import Timed


def measured_sources(store: Store, prompts: Prompts) -> Iterator[Source]:
    """Every cell of a store that has answers, one after another. `prompts`: all answers, or only the timed ones of
    timed cells. Raises StoreError."""
    for folder in store.cells():
        config = folder.config() or {}
        if not (folder.path / "samples.jsonl").exists():
            continue
        summary = folder.summary()
        baseline = store.cell(str(config.get("baseline", folder.key)))
        yield Source(folder.key, None, _name(config, "task"), None if summary is None else summary.metric,
                     about_of(folder, config), partial(_answers, folder, _draft_length(config), prompts),
                     partial(_baseline, folder, baseline), folder)


def about_of(folder: CellFolder, config: Mapping[str, Any]) -> dict[str, Any]:
    """What ran, without the paths of this machine."""
    environment = folder.environment() or {}
    return {
        "pair": _name(config, "pair"), "drafter": config.get("drafter"), "rule": config.get("rule"),
        "draft": config.get("draft"), "decoding": config.get("decoding"), "task": _name(config, "task"),
        "seed": config.get("seed"), "models": config.get("fingerprints"), "since": environment.get("since"),
        "commit": (environment.get("git") or {}).get("commit"), "packages": environment.get("packages"),
    }


def exchanged(sample: Sample, timed: Timed | None, metric: str, draft_length: int | None) -> Exchanged:
    """A sample in common terms. `tokens` belongs to the measured time: if the timed run decoded another number than
    the quality pass, that number. Without pruning, `draft_length` draft tokens are counted per cycle: the store
    holds how many were accepted, not how many were proposed."""
    run = None if timed is None else timed.own
    parted = run is not None and run.tokens != len(sample.output_ids)
    cycles = len(sample.committed)
    proposed = None if draft_length is None or sample.drafted else [draft_length] * cycles
    return Exchanged(
        id=sample.id, texts=sample.texts, tokens=[run.tokens] if run is not None and parted else sample.turn_tokens,
        steps=cycles_of_turns(sample.turn_tokens, sample.committed) or [cycles],
        seconds=None if run is None else [run.prefill_s + run.decode_s],
        prefill_s=None if run is None else run.prefill_s, committed=sample.committed, accepted=sample.accepted,
        proposed=proposed, drafted=sample.drafted or (None if proposed is None else sum(proposed)),
        draft_length=draft_length, prompt_tokens=sample.prompt_tokens, finish=sample.finish,
        scores=sample.details if sample.score is None else {metric: sample.score, **sample.details},
        answer=sample.answer)


def cycles_of_turns(turn_tokens: list[int], committed: list[int]) -> list[int] | None:
    """Cycles of each turn: a turn's first token comes from the prefill, the others from its cycles. None if the numbers
    do not add up."""
    ends = list(accumulate(max(0, tokens - 1) for tokens in turn_tokens))
    totals = [0, *accumulate(committed)]
    if not ends or totals[-1] != ends[-1] or any(end not in totals for end in ends):
        return None
    places = [0, *(totals.index(end) for end in ends)]
    return [after - before for before, after in pairwise(places)]


def by_turn(answer: Exchanged) -> Iterator[Exchanged]:
    """An answer as one answer per turn, for formats of one request per line. Time and prompt length are known only for
    all turns together, so an answer of several turns loses them; one whose cycles cannot be divided stays whole."""
    turns, steps = len(answer.texts or answer.tokens or [0]), answer.steps or []
    if turns == 1 or len(steps) != turns or len(answer.tokens or []) != turns:
        yield answer
        return
    ends = list(accumulate(steps))
    for turn, (end, count) in enumerate(zip(ends, steps, strict=True)):
        part = slice(end - count, end)
        proposed = _part(answer.proposed, part)
        yield Exchanged(
            id=f"{answer.id}#{turn}", category=answer.category, choice=answer.choice, texts=_one(answer.texts, turn),
            tokens=_one(answer.tokens, turn), steps=[count], committed=_part(answer.committed, part),
            accepted=_part(answer.accepted, part), proposed=proposed,
            drafted=None if proposed is None else sum(proposed), draft_length=answer.draft_length,
            finish=_one(answer.finish, turn))


def _answers(folder: CellFolder, draft_length: int | None, prompts: Prompts) -> Iterator[Exchanged]:
    summary = folder.summary()
    metric = "score" if summary is None else summary.metric
    timed = {row.id: row for row in folder.timed()}
    for sample in folder.good_samples():
        if prompts == "timed" and timed and sample.id not in timed:
            continue
        yield exchanged(sample, timed.get(sample.id), metric, draft_length)


def _baseline(folder: CellFolder, baseline: CellFolder) -> Iterator[Exchanged]:
    """The autoregressive runs timed beside the cell's, with the baseline's texts. A prompt without such a text is
    left out."""
    samples = {sample.id: sample for sample in baseline.good_samples()}
    for timed in folder.timed():
        run, sample = timed.runs[1], samples.get(timed.id)
        if sample is not None:
            tokens = sample.turn_tokens if run.tokens == len(sample.output_ids) else [run.tokens]
            yield Exchanged(
                id=timed.id, texts=sample.texts, tokens=tokens,
                steps=cycles_of_turns(tokens, [1] * run.cycles) or [run.cycles],
                seconds=[run.prefill_s + run.decode_s], prefill_s=run.prefill_s, committed=[1] * run.cycles,
                accepted=[0] * run.cycles, finish=sample.finish)


def _name(config: Mapping[str, Any], section: str) -> str:
    part = config.get(section)
    return str(part.get("name")) if isinstance(part, Mapping) else "?"


def _draft_length(config: Mapping[str, Any]) -> int | None:
    """The most draft tokens of a cycle; None for autoregressive decoding."""
    draft = config.get("draft")
    length = draft.get("length") if isinstance(draft, Mapping) and _name(config, "drafter") != "none" else None
    return length if isinstance(length, int) else None


def _one(values: list[Any] | None, place: int) -> list[Any] | None:
    return None if values is None or place >= len(values) else [values[place]]


def _part(values: list[Any] | None, part: slice) -> list[Any] | None:
    return None if values is None else values[part]
