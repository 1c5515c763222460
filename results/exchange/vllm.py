"""Responses of a vLLM server with per-request acceptance metrics, one per line.

    {"id": "chatcmpl-…", "object": "chat.completion", "choices": […], "usage": {"completion_tokens": 128, …},
     "metrics": {"time_to_first_token_ms": 85.2, "generation_time_ms": 1240.5, …,
                 "speculative_decoding": {"mean_acceptance_length": 1.23, "draft_acceptance_rate": 0.078,
                   "acceptance_histogram": [39, 1, 0, 3], "num_spec_steps": 43, "num_accepted_draft_tokens": 10,
                   "num_draft_tokens": 129, "num_spec_tokens": 3, "per_step_accepted": […], "per_step_drafted": […]}}}

Source: vLLM's documentation, features/speculative_decoding/acceptance_metrics and features/per_request_metrics (0.32;
`--per-request-spec-decode-metrics summary|detailed`, pull request 48915; vLLM calls the shape experimental). A file
holds what a client received: whole responses, or the last chunk of a stream, which carries `usage` and `metrics`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from pydantic import Field, NonNegativeFloat, NonNegativeInt

from results.exchange.acceptance import Acceptance, acceptance_of
from results.exchange.base import Exchanged, Failed, Read, Source
from results.exchange.lines import Fields, LineFormat, parsed
from results.exchange.measured import by_turn

LONGEST_DRAFT = 4096
"""A histogram with longer drafts is refused."""
FINISH = {"eos": "stop", "stop": "stop", "length": "length"}


class Speculative(Acceptance):
    """`metrics.speculative_decoding`; [i] of the histogram: cycles with i accepted draft tokens."""

    acceptance_histogram: list[NonNegativeInt] = Field(max_length=LONGEST_DRAFT + 1)


class Metrics(Fields):
    speculative_decoding: Speculative | None = None
    time_to_first_token_ms: NonNegativeFloat | None = None
    generation_time_ms: NonNegativeFloat | None = None


class Usage(Fields):
    prompt_tokens: NonNegativeInt | None = None
    completion_tokens: NonNegativeInt | None = None


class Response(Fields):
    id: str
    metrics: Metrics | None = None
    usage: Usage | None = None
    choices: list[dict[str, Any]] = Field(default_factory=list)


class VLLM(LineFormat):
    about = "vLLM responses with per-request acceptance metrics (JSONL)"

    def parse(self, data: dict[str, Any]) -> Iterator[Read]:
        response = parsed(Response, data)
        metrics, usage = response.metrics or Metrics(), response.usage or Usage()
        if (counts := metrics.speculative_decoding) is None:
            yield Failed(response.id, "metrics.speculative_decoding is missing or null")
            return
        counts.check(counts.acceptance_histogram)
        first, rest = metrics.time_to_first_token_ms, metrics.generation_time_ms
        shared = counts.shared(counts.acceptance_histogram)
        yield Exchanged(
            id=response.id, texts=_texts(response.choices), prompt_tokens=usage.prompt_tokens,
            tokens=None if usage.completion_tokens is None else [usage.completion_tokens],
            seconds=None if first is None or rest is None else [(first + rest) / 1000],
            prefill_s=None if first is None else first / 1000, **shared, extra=_rest(data))

    def objects(self, source: Source, answers: Iterable[Exchanged]) -> Iterator[Mapping[str, Any] | None]:
        for whole in answers:
            for answer in by_turn(whole):
                held = acceptance_of(answer)
                yield None if held is None else _response(answer, source, *held)


def _response(answer: Exchanged, source: Source, counters: dict[str, Any], histogram: list[int]) -> dict[str, Any]:
    """A response object; for an answer read from a response, that response."""
    length = max(len(histogram), (answer.draft_length or 0) + 1)
    counts = {"mean_acceptance_length": counters.pop("mean_acceptance_length"),
              "draft_acceptance_rate": counters.pop("draft_acceptance_rate"),
              "acceptance_histogram": [*histogram, *[0] * (length - len(histogram))], **counters}
    if source.format == "vllm":
        rest = answer.extra
        further = rest["metrics"].get("speculative_decoding", {})
        return {**rest, "metrics": {**rest["metrics"], "speculative_decoding": {**counts, **further}}}
    finish = [FINISH.get(one, one) for one in answer.finish or []]
    usage = {"prompt_tokens": answer.prompt_tokens, "completion_tokens": sum(answer.tokens) if answer.tokens else None}
    timing = {} if not answer.seconds or answer.prefill_s is None else {
        "time_to_first_token_ms": 1000 * answer.prefill_s,
        "generation_time_ms": 1000 * (sum(answer.seconds) - answer.prefill_s)}
    return {"id": answer.id, "object": "chat.completion", "model": source.name,
            "choices": [{"index": 0, "message": {"role": "assistant", "content": "\n\n".join(answer.texts or [])},
                         "finish_reason": finish[-1] if finish else None}],
            "usage": {name: value for name, value in usage.items() if value is not None},
            "metrics": {**timing, "speculative_decoding": counts}}


def _texts(choices: list[dict[str, Any]]) -> list[str] | None:
    """The text of the only choice, of a chat or a completion; None if there is none, as in a stream's last chunk."""
    if len(choices) != 1:
        return None
    message = choices[0].get("message")
    text = message.get("content") if isinstance(message, Mapping) else choices[0].get("text")
    return [text] if isinstance(text, str) else None


def _rest(data: dict[str, Any]) -> dict[str, Any]:
    """The response without the counts that `Exchanged` holds; fields of later versions are kept."""
    metrics = dict(data["metrics"])
    counts = metrics.pop("speculative_decoding")
    unknown = {name: value for name, value in counts.items()
               if name not in Speculative.model_fields or value is None}
    return {**data, "metrics": {**metrics, **({"speculative_decoding": unknown} if unknown else {})}}
