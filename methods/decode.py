"""The one decode loop: prefill, then (draft -> verify -> accept -> commit) until every row is done.

Autoregressive decoding is the same loop with an empty draft, so a speedup never compares two code paths."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field

import torch
from torch import Tensor

from methods.engine.cache import SlotCache
from methods.method import Method
from methods.prompt_rng import PromptRng
from methods.pruning import root_entropy
from methods.rules.verification import Verification
from methods.rules.walk import walk
from methods.sampling import draw
from methods.trees.draft import Draft


class TooLong(IndexError):
    """A prompt and its answer do not fit the positions of a model. The message is one line."""


@dataclass(frozen=True, slots=True)
class Request:
    """A prompt's token ids, and the name of its own random stream."""

    input_ids: list[int]
    key: str


@dataclass(frozen=True, slots=True)
class Limits:
    """Where a generation ends: `max_new_tokens`, any of `eos_ids`, or before the first of the strings `stop`."""

    max_new_tokens: int
    eos_ids: frozenset[int]
    stop: tuple[str, ...] = ()


@dataclass(slots=True)
class Generation:
    """What one row produced. Tokens after the end are dropped from text *and* from counts.

    output_ids  emitted tokens, the end-of-sequence token included; the first comes from the prefill.
    committed   tokens committed in each cycle, correction or bonus included: len(output_ids) == 1 + sum(committed).
    accepted    draft tokens accepted in each cycle.
    counts      "relaxed": emitted tokens that the strict rule would have rejected; "drafted" and "pruned" tokens,
                where drafts are pruned; and whatever else the rule notes of the contexts of emitted tokens.
    prefill_s, decode_s  seconds of wall time, the batch's divided by its rows.
    finish      "eos", "length" or "stop".
    """

    output_ids: list[int] = field(default_factory=list)
    committed: list[int] = field(default_factory=list)
    accepted: list[int] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    prefill_s: float = 0.0
    decode_s: float = 0.0
    finish: str = ""

    @property
    def relaxed(self) -> int:
        return self.counts.get("relaxed", 0)


Probe = Callable[[str], AbstractContextManager]
"""Called with a phase's name ("draft", "verify", "accept", "commit"); the timed pass uses one that does nothing."""


def no_probe(_: str) -> AbstractContextManager:
    return _NOTHING


_NOTHING = nullcontext()


@torch.inference_mode()
def generate(method: Method, requests: Sequence[Request], limits: Limits, probe: Probe = no_probe) -> list[Generation]:
    """Decode one batch. Raises TooLong when a prompt and its answer do not fit the model's positions."""
    target, rows = method.target, [list(request.input_ids) for request in requests]
    slots = _slots(method, rows, limits)
    nodes, uniforms = method.drafter.nodes(method.draft.length), method.drafter.num_uniforms(method.draft.length)
    rng = PromptRng([r.key for r in requests], nodes + 1 + uniforms, target.device)
    generations = [Generation() for _ in rows]

    start = _clock(target.device)
    cache, wanted = target.new_cache(len(rows), slots), method.drafter.features(target)
    first = target.prefill(rows, cache, features=wanted)
    token = draw(method.sampling.probs(first.logits[:, 0]), rng.cycle()[:, -1])
    entropy = None if method.pruning is None else root_entropy(first.logits[:, 0])
    proposer = method.drafter.start(target, method.model, method.draft, rows, slots)
    proposer.attach_target_cache(cache)
    if wanted:
        proposer.on_features(first.features, [range(len(row)) for row in rows])
    for row, generation, new in zip(rows, generations, token.tolist(), strict=True):
        _emit(row, generation, [new], limits, target)
    began = _clock(target.device)

    while not all(g.finish for g in generations):
        u = rng.cycle()
        with probe("draft"):
            draft = proposer.propose(rows, u[:, nodes + 1:])
            if method.pruning is not None:
                draft = prune(method, draft, entropy, generations)
        with probe("verify"):
            v, features, answers = verify(method, draft, cache, u, wanted)
        with probe("accept"):
            paths = accept(method, v, u[:, nodes], answers)
            if method.pruning is not None:
                entropy = root_entropy(v.at(v.logits, torch.tensor([p.nodes[-1] for p in paths], device=target.device)))
        with probe("commit"):
            kept = commit(rows, generations, cache, paths, limits, method)
            if wanted:
                proposer.on_features(features, kept)
            if draft.extra_nodes:
                proposer.on_extra_outputs([path.answers for path in paths])
    ended = _clock(target.device)
    for generation in generations:
        generation.prefill_s = (began - start) / len(rows)
        generation.decode_s = (ended - began) / len(rows)
    return generations


def prune(method: Method, draft: Draft, entropy: Tensor, generations: list[Generation]) -> Draft:
    """The draft without its unlikely branches, `entropy` [B] being the target's where the root was predicted; counts
    "drafted" and "pruned" tokens of the rows at work."""
    pruned = method.pruning.prune(draft, entropy)
    for generation, drafted, dropped in zip(generations, pruned.drafted, pruned.dropped, strict=True):
        if not generation.finish:
            for name, count in (("drafted", drafted), ("pruned", dropped)):
                generation.counts[name] = generation.counts.get(name, 0) + count
    return pruned.draft


def verify(method: Method, draft: Draft, cache: SlotCache, u: Tensor,
           features: tuple[int, ...] = ()) -> tuple[Verification, Tensor | None, Tensor | None]:
    """One target forward over all nodes of the draft: what the rule sees, and where the drafter wants them the features
    [B, N, F*H] and the target's argmax behind each extra node [B, E]."""
    tree = {} if draft.chain else {"ancestors": draft.ancestors, "depth": draft.depth}
    out = method.target.forward(draft.tokens, cache, hidden=method.rule.needs_hidden, features=features, **tree)
    logits, hidden, answers = out.logits, out.hidden, None
    if draft.extra_nodes:
        draft = draft.candidates()
        answers = logits[:, draft.nodes:].argmax(-1)
        logits, hidden = logits[:, :draft.nodes], None if hidden is None else hidden[:, :draft.nodes]
    return Verification(draft, logits, method.sampling, u[:, :draft.nodes], hidden), out.features, answers


@dataclass(frozen=True, slots=True)
class Path:
    """One row's outcome of a cycle: the kept node indices (root first), the tokens to commit (accepted drafts, then the
    correction or bonus), for each mark of the walk which of those tokens have it, and what the target says behind the
    draft's extra nodes."""

    nodes: list[int]
    tokens: list[int]
    flags: dict[str, list[bool]]
    answers: list[int]


def accept(method: Method, v: Verification, u: Tensor, answers: Tensor | None = None) -> list[Path]:
    """The rule's decision, the walk, and the token after it. The cycle's one wait for the device is here."""
    path = walk(v, method.rule.decide(v))
    token = method.rule.next_token(v, path.last, u)
    drafted = torch.where(path.kept, v.draft.tokens, -1)
    columns = [drafted, token[:, None], *path.flags.values()]
    table = torch.cat(columns if answers is None else [*columns, answers], 1).tolist()
    size, found = v.draft.nodes, []
    ends = range(size + 1, size + 1 + size * len(path.flags) + 1, size)
    for row in table:
        kept = [i for i, t in enumerate(row[:size]) if t >= 0]
        marks = {}
        for name, begin in zip(path.flags, ends[:-1], strict=True):
            at = [bool(row[begin + i]) for i in kept]
            marks[name] = [*at[1:], False] if name == "relaxed" else at
        found.append(Path(kept, [row[i] for i in kept[1:]] + [row[size]], marks, row[ends[-1]:]))
    return found


def commit(rows: list[list[int]], generations: list[Generation], cache: SlotCache,
           paths: list[Path], limits: Limits, method: Method) -> list[list[int]]:
    """Append what was accepted to the rows, their statistics and the cache. Finished rows stay as they are.

    Returns the node indices that the cache keeps in each row."""
    kept = []
    for row, generation, path in zip(rows, generations, paths, strict=True):
        if generation.finish:
            kept.append([])
            continue
        emitted = _emit(row, generation, path.tokens, limits, method.target)
        generation.committed.append(emitted)
        generation.accepted.append(min(emitted, len(path.tokens) - 1))
        for name, marked in path.flags.items():
            generation.counts[name] = generation.counts.get(name, 0) + sum(marked[:emitted])
        kept.append([] if generation.finish else path.nodes)
    cache.commit(kept)
    return kept


def _emit(row: list[int], generation: Generation, tokens: list[int], limits: Limits, target) -> int:
    """Append `tokens` up to the generation's end; returns how many were kept."""
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
    row.extend(generation.output_ids[before:])
    return len(generation.output_ids) - before


def _cut_at_stop(generation: Generation, before: int, stop: tuple[str, ...], target) -> None:
    """End at the token that completes a stop string; the text is cut before the string when it is read."""
    text = target.decode(generation.output_ids)
    if not any(s in text for s in stop):
        return
    for end in range(before + 1, len(generation.output_ids) + 1):
        text = target.decode(generation.output_ids[:end])
        if any(s in text for s in stop):
            del generation.output_ids[end:]
            generation.finish = "stop"
            return


def text_of(generation: Generation, stop: tuple[str, ...], target) -> str:
    """The generation's text, special tokens left out, ended before the first stop string."""
    text = target.decode(generation.output_ids)
    return text[:min((text.find(s) for s in stop if s in text), default=len(text))]


def check_fit(method: Method, prompt_tokens: int, limits: Limits) -> None:
    """Raises TooLong when the positions of a model do not suffice for a prompt and its answer."""
    model = min((m for m in (method.target, method.model) if m is not None), key=lambda m: m.max_positions)
    room = model.max_positions - prompt_tokens
    if limits.max_new_tokens <= room:
        return
    prompt, positions = f"{model.source}: a prompt of {prompt_tokens} tokens", f"its {model.max_positions} positions"
    if room < 1:
        raise TooLong(f"{prompt} leaves no room for an answer in {positions}; shorten the prompt (earlier turns and "
                      "examples count), or take a model with more positions")
    raise TooLong(f"{prompt} and {limits.max_new_tokens} new ones exceed {positions}; lower decoding.max_new_tokens "
                  f"to {room} or less")


def _slots(method: Method, rows: list[list[int]], limits: Limits) -> int:
    """Cache slots a row may need. Raises TooLong."""
    longest = max(map(len, rows))
    check_fit(method, longest, limits)
    return longest + limits.max_new_tokens + method.drafter.nodes(method.draft.length) + 1


def _clock(device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()
