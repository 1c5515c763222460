"""The one decode loop: prefill, then (draft -> verify -> accept -> commit) until every row is done.

Autoregressive decoding is the same loop with an empty draft, so a speedup never compares two code
paths."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from methods.batch import Batch, Generation
from methods.drafters.base import TokenRows
from methods.engine.cache import SlotCache
from methods.engine.device import now, padded
from methods.method import Method
from methods.prompt_rng import PromptRng
from methods.rules.base import Rule
from methods.rules.verification import State, Verification
from methods.rules.walk import Decision, Walk, walk
from methods.sampling import Sampling, draw
from methods.trees.draft import Draft

if TYPE_CHECKING:  # transformers is slow to import
    from methods.engine.graphs import Graphs
    from methods.engine.language_model import ForwardOutput, LanguageModel


class TooLong(IndexError):
    """A prompt and its answer do not fit the positions of a model. The message is one line."""


@dataclass(frozen=True, slots=True)
class Request:
    """A prompt's token ids, and the name of its own random stream."""

    input_ids: list[int]
    key: str


@dataclass(frozen=True, slots=True)
class Limits:
    """Where a generation ends: `max_new_tokens`, any of `eos_ids`, or before the first of the
    strings `stop`.

    think_end  what stands before the last of these marks is reasoning, which `text_of` leaves out.
    shrink  rows that have ended leave the batch: less work, the same tokens, but cycles of uneven
            cost. A timed batch keeps its rows, and so does one whose forwards are recorded graphs.
    laws    the quality pass compares the law of each emitted token with the target's
            (`methods.distortion`)."""

    max_new_tokens: int
    eos_ids: frozenset[int]
    stop: tuple[str, ...] = ()
    think_end: tuple[str, ...] = ()
    shrink: bool = False
    laws: bool = False


class Observer:
    """Watches a decode, for untimed passes such as traces. It may wait for the device. What it does
    not override, it ignores."""

    def on_first(self, logits: Tensor, token: Tensor) -> None:
        """Called once, after the prefill: its raw logits [B, V] and the first token [B] of every
        request."""

    def on_cycle(
        self,
        v: Verification,
        decision: Decision,
        path: Walk,
        token: Tensor,
        u: Tensor,
        requests: Sequence[int],
    ) -> None:
        """Called once a cycle, after the rule decided and before anything is committed: `token` [B]
        is the token after the kept path, drawn with `u` [B]; `requests` are the places of the
        batch's rows among the requests. Rows that have ended may still be in the batch."""


Probe = Callable[[str], AbstractContextManager[None]]
"""Called with a phase's name ("draft", "verify", "accept", "commit"); the timed pass uses one that
does nothing."""

Settled = tuple[Decision, Walk, Tensor, State]


@torch.inference_mode()
def generate(
    method: Method,
    requests: Sequence[Request],
    limits: Limits,
    probe: Probe = lambda _: nullcontext(),
    observers: Sequence[Observer] = (),
) -> list[Generation]:
    """Decode one batch. Raises TooLong when a prompt and its answer do not fit the model's
    positions."""
    target = method.target
    rows = [list(request.input_ids) for request in requests]
    slots = _slots(method, rows, limits)
    nodes = method.drafter.nodes(method.draft.length)
    uniforms = method.drafter.num_uniforms(method.draft.length)
    rng = PromptRng([r.key for r in requests], nodes + 1 + uniforms, target.device)
    generations = [Generation(prompt_tokens=len(row)) for row in rows]

    start = now(target.device)
    cache, wanted = target.new_cache(len(rows), slots), method.drafter.features(method.model)
    first, token = _prefill(method, rows, cache, rng, wanted, observers)
    proposer = method.proposer(rows, slots)
    proposer.attach_target_cache(cache)
    proposer.on_logits(first.logits, torch.zeros_like(token))
    if first.features is not None:
        proposer.on_features(first.features, [range(len(row)) for row in rows])
    for row, generation, new in zip(rows, generations, token.tolist(), strict=True):
        row.extend(emit(generation, [new], limits, target))
    batch = Batch(rows, generations, cache, rng, proposer, method.rule.start(rows, target.device))
    began = now(target.device)

    while batch.unfinished:
        if limits.shrink:
            batch.shrink()
        u = rng.cycle()
        for_tests, for_bonus, for_draft = u[:, :nodes], u[:, nodes], u[:, nodes + 1 :]
        with probe("draft"):  # a tree of candidates behind each row's last token
            draft = proposer.propose(batch.rows, for_draft)
        with probe("verify"):  # one forward of the target over all of them
            v, features, extra_argmax = verify(
                method, draft, cache, for_tests, wanted, batch.state, batch.rows
            )
        with probe("accept"):  # the rule keeps a path; a correction or bonus token follows it
            decision, path, token, batch.state = accept(
                method.rule, v, for_bonus, None if observers else cache.graphs
            )
            if not v.draft.chain:
                cache.compact(path.by_depth(v.draft))
            outcomes = read_outcomes(v, path, token, extra_argmax)
            proposer.on_logits(v.logits, path.last)
        for observer in observers:
            observer.on_cycle(v, decision, path, token, for_bonus, batch.requests)
        with probe("commit"):  # rows, counts and cache take the path up to each row's end
            kept = commit(batch.rows, batch.generations, cache, outcomes, limits, target)
            if features is not None:
                proposer.on_features(features, kept)
            if draft.extra_nodes:
                proposer.on_extra_outputs([outcome.extra_argmax for outcome in outcomes])
    prefill_s, decode_s = (began - start) / len(rows), (now(target.device) - began) / len(rows)
    batch.count_pruned()
    return [
        replace(generation, prefill_s=prefill_s, decode_s=decode_s) for generation in generations
    ]


def _prefill(
    method: Method,
    rows: TokenRows,
    cache: SlotCache,
    rng: PromptRng,
    wanted: tuple[int, ...],
    observers: Sequence[Observer],
) -> tuple[ForwardOutput, Tensor]:
    """The target's output for the prompts, with the features `wanted`, and the first tokens [B],
    drawn from it."""
    first = method.target.prefill(rows, cache, features=wanted)
    if method.sampling.penalises:
        earlier = padded(rows, first.logits.device)[:, None]
        first = replace(first, logits=method.sampling.penalised(first.logits, earlier))
    token = draw(method.sampling.probs(first.logits[:, 0]), rng.cycle()[:, -1])
    for observer in observers:
        observer.on_first(first.logits[:, 0], token)
    return first, token


def verify(
    method: Method,
    draft: Draft,
    cache: SlotCache,
    u: Tensor,
    features: tuple[int, ...] = (),
    state: State | None = None,
    rows: TokenRows | None = None,
) -> tuple[Verification, Tensor | None, Tensor | None]:
    """One target forward over all nodes of the draft: what the rule sees, its `state` of the
    requests included, and where the drafter wants them the features [B, N, F*H] and the target's
    argmax behind each extra node [B, E]. `rows`: the tokens so far, for a repetition penalty."""
    tree = {} if draft.chain else {"ancestors": draft.ancestors, "depth": draft.depth}
    out = method.target.forward(
        draft.tokens, cache, hidden=method.rule.needs_hidden(), features=features, **tree
    )
    logits, hidden, extra_argmax = out.logits, out.hidden, None
    if method.sampling.penalises:
        logits = method.sampling.penalised(logits, behind_nodes(rows or [], draft))
    if draft.extra_nodes:
        draft = draft.candidates()
        extra_argmax = logits[:, draft.nodes :].argmax(-1)
        logits = logits[:, : draft.nodes]
        hidden = None if hidden is None else hidden[:, : draft.nodes]
    v = Verification(draft, logits, method.sampling, u[:, : draft.nodes], hidden, state)
    return v, out.features, extra_argmax


def behind_nodes(rows: TokenRows, draft: Draft) -> Tensor:
    """[B, N, n] the tokens in the context of each node: those of its row and of its path, some of
    them several times."""
    tokens = draft.tokens
    path = torch.where(draft.ancestors, tokens[:, None], tokens[:, :1, None])
    row = padded(rows, tokens.device)[:, None].expand(-1, tokens.shape[1], -1)
    return torch.cat([row, path], -1)


def accept(rule: Rule, v: Verification, u: Tensor, graphs: Graphs | None = None) -> Settled:
    """The rule's decision, the kept path, the token [B] after it, drawn with `u` [B], and the
    rule's state behind it. Nothing here waits for the device. As a replayed graph where `graphs` of
    the target's cache are given; not where it is observed: an observer may read what the rule noted
    in `v`."""
    if graphs is not None:
        return graphs.run(
            _accept_parts, rule, v.sampling, v.draft, v.logits, v.u, v.hidden_or_none, v.state, u
        )
    decision = rule.decide(v)
    path = walk(v, decision)
    token = rule.next_token(v, path.last, u)
    return decision, path, token, rule.next_state(v, path, token)


def _accept_parts(
    rule: Rule,
    sampling: Sampling,
    draft: Draft,
    logits: Tensor,
    u: Tensor,
    hidden: Tensor | None,
    state: State,
    after: Tensor,
) -> Settled:
    return accept(rule, Verification(draft, logits, sampling, u, hidden, state), after)


@dataclass(frozen=True, slots=True)
class CycleOutcome:
    """One row's outcome of a cycle, on the host.

    kept          indices of the kept nodes, root first.
    tokens        tokens to commit: the accepted draft tokens, then the correction or bonus.
    relaxed       for each accepted draft token: the lossless test rejects it, and it is not the
                  target's argmax.
    greedier      for each accepted draft token: the lossless test rejects it, and it is the
                  target's argmax.
    flags         name of a rule's flag -> for each of `tokens`, whether it was set in the token's
                  context.
    extra_argmax  the target's argmax behind each of the draft's extra nodes.
    nodes         draft tokens that the target verified, extra nodes included.
    levels        depth of the deepest candidate.
    """

    kept: list[int]
    tokens: list[int]
    relaxed: list[bool]
    greedier: list[bool]
    flags: dict[str, list[bool]]
    extra_argmax: list[int]
    nodes: int
    levels: int


def read_outcomes(
    v: Verification, path: Walk, token: Tensor, extra_argmax: Tensor | None = None
) -> list[CycleOutcome]:
    """Bring a cycle's outcome to the host, row by row. The cycle's one wait for the device is
    here."""
    return unpack_outcomes(pack_outcomes(v, path, token, extra_argmax), list(path.flags))


def pack_outcomes(
    v: Verification, path: Walk, token: Tensor, extra_argmax: Tensor | None = None
) -> list[Tensor]:
    """A cycle's outcome as small tensors [B, …] on the device, which keep nothing of the logits."""
    kept_tokens = torch.where(path.kept, v.draft.tokens, -1)
    nothing = kept_tokens[:, :0]
    deepest = (v.draft.depth * v.draft.valid).amax(1, keepdim=True)
    return [
        kept_tokens,
        token[:, None],
        v.drafted[:, None],
        deepest,
        nothing if extra_argmax is None else extra_argmax,
        nothing if path.relaxed is None else path.relaxed,
        nothing if path.greedier is None else path.greedier,
        *path.flags.values(),
    ]


def unpack_outcomes(columns: Sequence[Tensor], flag_names: Sequence[str]) -> list[CycleOutcome]:
    """What `pack_outcomes` packed, on the host."""
    outcomes = []
    for drafted, [after], [nodes], [levels], extra, relaxed, greedier, *flags in _to_host(columns):
        kept = [node for node, drafted_token in enumerate(drafted) if drafted_token >= 0]
        outcomes.append(
            CycleOutcome(
                kept,
                [*(drafted[node] for node in kept[1:]), after],
                [bool(relaxed[node]) for node in kept[1:]] if relaxed else [],
                [bool(greedier[node]) for node in kept[1:]] if greedier else [],
                {
                    name: [bool(flag[node]) for node in kept]
                    for name, flag in zip(flag_names, flags, strict=True)
                },
                extra,
                nodes + len(extra),
                levels,
            )
        )
    return outcomes


def _to_host(columns: Sequence[Tensor]) -> Iterator[tuple[list[int], ...]]:
    """Several integer or bool tensors [B, width of its own] in one copy: for each row, its part of
    each as a list."""
    ends = accumulate((column.shape[1] for column in columns), initial=0)
    parts = [slice(*part) for part in pairwise(ends)]
    return (
        tuple(row[part] for part in parts)
        for row in torch.cat([column.long() for column in columns], 1).tolist()
    )


def commit(
    rows: TokenRows,
    generations: list[Generation],
    cache: SlotCache,
    outcomes: list[CycleOutcome],
    limits: Limits,
    target: LanguageModel,
) -> list[list[int]]:
    """Append what was accepted to the rows, their statistics and the cache's lengths; its kept
    nodes are in place. Finished rows stay as they are. Returns the node indices that the cache
    keeps in each row."""
    kept: list[list[int]] = []
    for row, generation, outcome in zip(rows, generations, outcomes, strict=True):
        if not generation.finish:
            row.extend(count_cycle(generation, outcome, limits, target))
        kept.append([] if generation.finish else outcome.kept)
    cache.commit(map(len, kept))
    return kept


def count_cycle(
    generation: Generation, outcome: CycleOutcome, limits: Limits, target: LanguageModel
) -> list[int]:
    """Add a cycle to an unfinished generation, cut where the generation ends. Returns the tokens it
    adds."""
    tokens = emit(generation, outcome.tokens, limits, target)
    emitted = len(tokens)
    generation.committed.append(emitted)
    generation.nodes.append(outcome.nodes)
    generation.levels.append(outcome.levels)
    generation.accepted.append(min(emitted, len(outcome.tokens) - 1))
    generation.relaxed += sum(outcome.relaxed[:emitted])
    generation.greedier += sum(outcome.greedier[:emitted])
    for name, flag in outcome.flags.items():
        generation.flags[name] = generation.flags.get(name, 0) + sum(flag[:emitted])
    return tokens


def emit(
    generation: Generation, tokens: Sequence[int], limits: Limits, target: LanguageModel
) -> list[int]:
    """Append `tokens` up to the generation's end; returns those that were kept."""
    before = len(generation.output_ids)
    for token in tokens:
        generation.output_ids.append(token)
        if token in limits.eos_ids:
            generation.finish = "eos"
        elif len(generation.output_ids) == limits.max_new_tokens:
            generation.finish = "length"
        if generation.finish:
            break
    if limits.stop:
        _cut_at_stop(generation, before, limits.stop, target)
    return generation.output_ids[before:]


def _cut_at_stop(
    generation: Generation, before: int, stop: tuple[str, ...], target: LanguageModel
) -> None:
    """End at the token that completes a stop string; the text is cut before the string when it is
    read."""
    ids = generation.output_ids
    if not _holds(target, ids, stop):
        return
    end = next(end for end in range(before + 1, len(ids) + 1) if _holds(target, ids[:end], stop))
    del ids[end:]
    generation.finish = "stop"


def _holds(target: LanguageModel, ids: list[int], stop: Sequence[str]) -> bool:
    """Whether one of the strings is in the text of the ids. One with a control token is looked for
    in the text that shows those."""
    shown = [string for string in stop if target.control_tokens.first(string)]
    text = target.decode(ids)
    if any(string in text for string in stop):
        return True
    return bool(shown) and any(string in target.decode(ids, special=True) for string in shown)


def text_of(
    generation: Generation,
    stop: tuple[str, ...],
    target: LanguageModel,
    *,
    opens: bool = False,
    think_end: tuple[str, ...] = (),
) -> str:
    """The generation's text, special tokens left out: what stands behind the last of its marks
    `think_end`, without space at its beginning (all, if there is none), and before the first stop
    string. It continues the prompt's, or `opens` one, as a message does."""
    is_shown = target.control_tokens.first
    ids = generation.output_ids
    for mark in filter(is_shown, think_end):
        ids = target.behind(ids, mark)
    text = target.decode(ids, opens=opens)
    if any(map(is_shown, stop)):
        text = _before_control(target, ids, tuple(filter(is_shown, stop)), opens)
    answer = text
    for mark in think_end:
        answer = answer.rpartition(mark)[2]
    if len(answer) < len(text) or len(ids) < len(generation.output_ids):
        answer = answer.lstrip()
    return answer[: min((answer.find(s) for s in stop if s in answer), default=len(answer))]


def _before_control(
    target: LanguageModel, ids: list[int], stop: tuple[str, ...], opens: bool
) -> str:
    """The text of the ids before the first of these strings, which hold control tokens."""

    def shown(end: int) -> str:
        return target.decode(ids[:end], opens=opens, special=True)

    whole = shown(len(ids))
    at = min((whole.find(string) for string in stop if string in whole), default=len(whole))
    end = bisect_right(range(len(ids) + 1), at, key=lambda end: len(shown(end))) - 1
    return target.decode(ids[:end], opens=opens) + whole[len(shown(end)) : at]


def check_fit(method: Method, prompt_tokens: int, limits: Limits) -> None:
    """Raises TooLong when the positions of a model do not suffice for a prompt and its answer."""
    model = min(
        (m for m in (method.target, method.model) if m is not None), key=lambda m: m.max_positions
    )
    room = model.max_positions - prompt_tokens
    if limits.max_new_tokens <= room:
        return
    prompt = f"{model.source}: a prompt of {prompt_tokens} tokens"
    positions = f"its {model.max_positions} positions"
    if room < 1:
        raise TooLong(
            f"{prompt} leaves no room for an answer in {positions}; shorten the prompt (earlier "
            "turns and examples count), or take a model with more positions"
        )
    raise TooLong(
        f"{prompt} and {limits.max_new_tokens} new ones exceed {positions}; lower "
        f"decoding.max_new_tokens to {room} or less"
    )


def _slots(method: Method, rows: TokenRows, limits: Limits) -> int:
    """Cache slots a row may need. Raises TooLong."""
    for row in rows:
        check_fit(method, len(row), limits)
    longest = max(map(len, rows))
    return longest + limits.max_new_tokens + method.drafter.nodes(method.draft.length) + 1
