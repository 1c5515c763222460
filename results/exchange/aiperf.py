"""Per-request records of NVIDIA AIPerf (`profile_export.jsonl` of `--export-level records`), one per line.

    {"metadata": {"session_num": 45, "x_request_id": "…", "conversation_id": "…", "turn_index": 0,
                  "benchmark_phase": "profiling", …},
     "metrics": {"request_latency": {"value": 297.5, "unit": "ms"}, "output_sequence_length": {"value": 9, …}, …},
     "spec_decode_acceptance": {"engine": "vllm", "mean_acceptance_length": 3.18, "draft_acceptance_rate": 0.436,
       "acceptance_histogram": {"0": 34, "1": 22}, "num_accepted_draft_tokens": 281, "num_draft_tokens": 640,
       "num_spec_steps": 128, "num_spec_tokens": 5, "completion_tokens": …, "per_step_accepted": […]},
     "error": null}

Source: ai-dynamo/aiperf, docs/tutorials/spec-decode-metrics.md, docs/reference/spec-decode-acceptance.md,
docs/tutorials/working-with-profile-exports.md, and `SpecDecodeAcceptanceRecord` in
src/aiperf/common/models/spec_decode_models.py (commit 0786f0c; released with 0.12). The histogram is a sparse map."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from math import inf
from typing import Any

from pydantic import Field, NonNegativeInt

from results.exchange.acceptance import Acceptance, acceptance_of
from results.exchange.base import Exchanged, Failed, Read, Source
from results.exchange.lines import Fields, LineFormat, parsed
from results.exchange.measured import by_turn

LONGEST_DRAFT = 4096
"""A larger count of accepted tokens in a cycle is refused."""
SECONDS = {"ms": 1e-3, "s": 1.0, "sec": 1.0, "us": 1e-6, "ns": 1e-9}


class Record(Acceptance):
    """`spec_decode_acceptance`; the histogram maps accepted draft tokens to cycles."""

    engine: str
    acceptance_histogram: dict[str, NonNegativeInt] = Field(max_length=LONGEST_DRAFT + 1)
    completion_tokens: NonNegativeInt | None = None

    @property
    def dense(self) -> list[int]:
        """[i]: cycles with i accepted draft tokens. Raises ValueError for a key that is not a valid number."""
        for key in self.acceptance_histogram:
            if not key.isdecimal() or len(key) > 4 or int(key) > LONGEST_DRAFT:
                raise ValueError(f"acceptance_histogram.{key[:20]}: must be a number of tokens, 0 to {LONGEST_DRAFT}")
        counts = {int(key): count for key, count in self.acceptance_histogram.items()}
        return [counts.get(place, 0) for place in range(max(counts, default=-1) + 1)]


class Metadata(Fields):
    session_num: NonNegativeInt | None = None
    x_request_id: str | None = None
    conversation_id: str | None = None
    turn_index: NonNegativeInt | None = None
    benchmark_phase: str | None = None


class Line(Fields):
    metadata: Metadata
    metrics: dict[str, Any] | None = None
    spec_decode_acceptance: Record | None = None
    error: dict[str, Any] | None = None


class AIPerf(LineFormat):
    about = "per-request records of NVIDIA AIPerf (profile_export.jsonl)"

    def parse(self, data: dict[str, Any]) -> Iterator[Read]:
        line = parsed(Line, data)
        name, counts = _name(line.metadata), line.spec_decode_acceptance
        if line.error is not None:
            yield Failed(name, f"error: {line.error.get('message', line.error)}")
        elif line.metadata.benchmark_phase not in (None, "profiling"):
            yield Failed(name, f"benchmark_phase is {line.metadata.benchmark_phase}, not profiling")
        elif counts is None:
            yield Failed(name, "spec_decode_acceptance is missing or null")
        else:
            histogram = counts.dense
            counts.check(histogram)
            latency, tokens = _seconds(line.metrics, "request_latency"), _value(line.metrics, "output_sequence_length")
            tokens = counts.completion_tokens if counts.completion_tokens is not None else tokens
            prompt = _value(line.metrics, "input_sequence_length")
            yield Exchanged(
                id=name, tokens=None if tokens is None else [int(tokens)],
                seconds=None if latency is None else [latency], prefill_s=_seconds(line.metrics, "time_to_first_token"),
                prompt_tokens=None if prompt is None else int(prompt), **counts.shared(histogram), extra=_rest(data))

    def objects(self, source: Source, answers: Iterable[Exchanged]) -> Iterator[Mapping[str, Any] | None]:
        for session, whole in enumerate(answers):
            for turn, answer in enumerate(by_turn(whole)):
                held = acceptance_of(answer)
                if held is None:
                    yield None
                    continue
                counters, histogram = held
                counts = {**counters, "acceptance_histogram": {str(i): n for i, n in enumerate(histogram) if n}}
                if source.format == "aiperf":
                    further = answer.extra["spec_decode_acceptance"]
                    yield {**answer.extra, "spec_decode_acceptance": {**counts, **further}}
                else:
                    yield _line(answer, whole.id, session, turn, counts)


def _line(answer: Exchanged, conversation: str, session: int, turn: int, counts: dict[str, Any]) -> dict[str, Any]:
    """A record of what a store holds: without timestamps and AIPerf's worker names."""
    tokens = sum(answer.tokens) if answer.tokens else None
    values = {
        "input_sequence_length": (answer.prompt_tokens, "tokens"), "output_sequence_length": (tokens, "tokens"),
        "request_latency": (1000 * sum(answer.seconds) if answer.seconds else None, "ms"),
        "time_to_first_token": (None if answer.prefill_s is None else 1000 * answer.prefill_s, "ms")}
    known = {name: {"value": value, "unit": unit} for name, (value, unit) in values.items() if value is not None}
    return {
        "metadata": {"session_num": session, "x_request_id": answer.id, "conversation_id": conversation,
                     "turn_index": turn, "benchmark_phase": "profiling", "was_cancelled": False},
        "metrics": known,
        "spec_decode_acceptance": {"engine": "leeway", **counts,
                                   **({} if tokens is None else {"completion_tokens": tokens})},
        "error": None}


def _name(metadata: Metadata) -> str:
    """The request's id, else its conversation and turn, else its number."""
    if metadata.x_request_id is not None:
        return metadata.x_request_id
    if metadata.conversation_id is not None:
        return f"{metadata.conversation_id}#{metadata.turn_index or 0}"
    return f"{metadata.session_num}#{metadata.turn_index or 0}"


def _value(metrics: Mapping[str, Any] | None, name: str) -> float | None:
    """The value of a metric; None if it is missing or null. Raises ValueError if it is not a number."""
    metric = (metrics or {}).get(name)
    value = metric.get("value") if isinstance(metric, Mapping) else metric
    if value is not None and (isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < inf):
        raise ValueError(f"metrics.{name}.value: must be a non-negative number, not {str(value)[:20]}")
    return None if value is None else float(value)


def _seconds(metrics: Mapping[str, Any] | None, name: str) -> float | None:
    """A time in seconds. Raises ValueError for an unknown unit."""
    value = _value(metrics, name)
    if value is None:
        return None
    metric = (metrics or {})[name]
    unit = metric.get("unit", "ms") if isinstance(metric, Mapping) else "ms"
    if unit not in SECONDS:
        raise ValueError(f"metrics.{name}.unit: {str(unit)[:20]!r} is not a unit of time; use {', '.join(SECONDS)}")
    return value * SECONDS[unit]


def _rest(data: dict[str, Any]) -> dict[str, Any]:
    """The record without the counts that `Exchanged` holds; AIPerf's other fields are kept."""
    ours = {*Acceptance.model_fields, "acceptance_histogram"}
    counts = data["spec_decode_acceptance"].items()
    kept = {name: value for name, value in counts if name not in ours or value is None}
    return {**data, "spec_decode_acceptance": kept}
