"""Rules on dropout heads: copies of the LM head that read a randomly masked hidden state."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, Self

import torch
from pydantic import Field, PrivateAttr
from torch import Tensor

from methods.rules.base import (
    Decision,
    Model,
    NamedTensors,
    Rule,
    Sampling,
    Target,
    ThresholdView,
    Verification,
)
from methods.rules.lossless import lossless_test
from methods.sampling import draw

WORD = 1 << 32


def hashed(x: Tensor) -> Tensor:
    """A well mixed bijection of 32-bit words, as int64 (multipliers below 2^31, so that no product
    overflows)."""
    for multiplier in (0x21F0AAAD, 0x735A2D97):
        x = ((x ^ (x >> 15)) * multiplier) & (WORD - 1)
    return x ^ (x >> 15)


def words(u: Tensor, counters: Tensor) -> Tensor:
    """Words in [0, 2^32), int64 [..., C]: one for each uniform number u [...] and counter [C]
    (int64 below 2^32)."""
    seed = hashed((u * (1 << 24)).long() + 1)
    return hashed((seed[..., None] + counters) & (WORD - 1))


class _Dropout(Rule):
    """A rule on dropout heads; `p_drop` is the share of hidden units that each drops."""

    p_drop: float = Field(0.3, ge=0.0, lt=1.0)
    _head: Callable[[Tensor], Tensor] | None = PrivateAttr(None)

    def bind(self, target: Target, model: Model | None) -> Self:
        bound = self.model_copy()
        bound._head = target.head
        return bound

    def needs_hidden(self) -> bool:
        return True

    def has_own_randomness(self) -> bool:
        return self.p_drop > 0

    def masked_logits(self, hidden: Tensor, u: Tensor, first: int, count: int) -> Tensor:
        """[..., count, V] float32 logits of the heads number `first`, … in contexts with final
        states [..., H] and uniform numbers [...]."""
        assert self._head is not None, "the rule is not bound to a target"
        size = hidden.shape[-1]
        units = torch.arange(count * size, device=hidden.device) + first * size
        kept = (words(u, units) >= round(self.p_drop * WORD)).unflatten(-1, (count, size))
        return self._head((hidden / (1.0 - self.p_drop))[..., None, :] * kept)


class Dropmatch(_Dropout):
    """DropMatch: accept a draft token that the target could have emitted under dropout before its
    LM head.

    h is the target's final hidden state (behind the final norm) in the context of the child x, W
    its LM head, m_i a mask that drops each of h's units with probability p_drop. Section 3.1: K
    heads from one forward,

        h_i = h * m_i / (1 - p_drop),   l_i = W h_i  (with the model's own cap or scale of logits),
                                        p_i = softmax(l_i)

    variant
      naive     accept x  iff  x is the token of some head (eq. 4). Needs no q; the paper's rule
                with EAGLE-3.
      js        centroid c = softmax(mean of l_i) (eq. 5); accept  iff  JS(q||c) <= max_i JS(p_i||c)
                (eq. 6)  or  x is the majority token (eq. 7, Algorithm 1). The paper's rule with a
                draft model. q is the raw softmax of the draft, JS in nats. On a tree, eq. 6 speaks
                of the context: it goes on with the draft's best child.
      majority  accept x  iff  most heads' token is x (eq. 7 alone); of equal counts, the first
                head's.
    selection  a head's token: argmax l_i, or nucleus: drawn from the smallest set of tokens with
               `nucleus` of the mass of p_i at the decoding temperature (at temperature 0, of p_i as
               it is).

    Correction and bonus are the plain target's, without dropout: its argmax at temperature 0, a
    draw from p otherwise. With p_drop = 0 every head is the target, and with argmax selection naive
    and majority are greedy matching.

    Masks are functions of (the context's own uniform number, head, unit) through a 32-bit integer
    hash, computed on the device: they belong to the prompt's random stream, so a run repeats
    exactly, in any batch and order.

    heads: K. p_drop: share of hidden units dropped in each head."""

    variant: Literal["naive", "js", "majority"] = "js"
    heads: int = Field(5, ge=1, le=1024)
    selection: Literal["argmax", "nucleus"] = "argmax"
    nucleus: float = Field(0.9, gt=0.0, le=1.0)

    def has_own_randomness(self) -> bool:
        return super().has_own_randomness() or self.selection == "nucleus"

    def needs_q(self, sampling: Sampling) -> bool:
        return self.variant == "js"

    def decide(self, v: Verification) -> Decision:
        logits = self.head_logits(v)
        tokens = self._tokens(logits, v)
        if self.variant == "naive":
            return Decision(_matches(v, tokens).any(-1), lossless_test(v))
        accept = _matches(v, _majority(tokens)[0]).any(-1)
        if self.variant == "js":
            js = self._divergences(logits, v.draft_logits[:, : logits.shape[1]])
            accept = accept | v.at_parent(_whole(v, js[:, :, 0] <= js[:, :, 1:].amax(-1)))
        return Decision(accept, lossless_test(v))

    def threshold_view(self, v: Verification) -> ThresholdView | None:
        """naive: the votes for the token, of which one is enough. js: by how much eq. 6 may be
        missed, in nats; the majority's token is kept whatever it is."""
        logits = self.head_logits(v)
        tokens = self._tokens(logits, v)
        if self.variant == "naive":
            return ThresholdView("votes", ">=", 1.0, self._votes(v, tokens), ~v.none, v.none)
        if self.variant == "majority":
            return None
        js = self._divergences(logits, v.draft_logits[:, : logits.shape[1]]) / 2
        missed = v.at_parent(_whole(v, js[:, :, 0] - js[:, :, 1:].amax(-1)))
        return ThresholdView(
            "slack", "<=", 0.0, missed, ~v.none, _matches(v, _majority(tokens)[0]).any(-1)
        )

    def statistics(self, v: Verification) -> NamedTensors:
        """votes: heads with the node's token. Of the context: `majority` heads agree on one token,
        whose mean probability is majority_p; js_heads, js_heads_max: mean and largest JS of a head
        to the centroid; js_centroid: JS of the draft to it, where drafts carry logits. Nats."""
        logits = self.head_logits(v)
        tokens = self._tokens(logits, v)
        majority, count = _majority(tokens)
        mean_p = (
            logits.softmax(-1)
            .gather(-1, majority[..., None, :].expand(*tokens.shape, 1))
            .mean((-1, -2))
        )
        draft = logits[:, :, 0] if v.draft.logits is None else v.draft_logits[:, : logits.shape[1]]
        js = self._divergences(logits, draft) / 2
        per_context = {
            "majority": count,
            "majority_p": mean_p,
            "js_heads": js[:, :, 1:].mean(-1),
            "js_heads_max": js[:, :, 1:].amax(-1),
        }
        if v.draft.logits is not None:
            per_context["js_centroid"] = js[:, :, 0]
        per_node = {
            name: v.at_parent(_whole(v, numbers.float())) for name, numbers in per_context.items()
        }
        return {"votes": self._votes(v, tokens), **per_node}

    @staticmethod
    def _votes(v: Verification, tokens: Tensor) -> Tensor:
        """[B, N] how many of the heads' `tokens` [B, n, K] are the node's own."""
        return _matches(v, tokens).sum(-1).float()

    def head_logits(self, v: Verification) -> Tensor:
        """[B, n, K, V] float32 logits of the dropout heads in the contexts that may have children:
        all of a tree's, all but the last of a chain's."""
        hidden, u = (x[:, : v.draft.nodes - v.draft.chain] for x in (v.hidden, v.u))
        return self.masked_logits(hidden, u, 0, self.heads)

    def _tokens(self, logits: Tensor, v: Verification) -> Tensor:
        """[B, n, K] each head's token."""
        if self.selection == "argmax":
            return logits.argmax(-1)
        size = v.hidden.shape[-1]
        # behind the numbers of the masks
        numbers = torch.arange(self.heads, device=logits.device) + self.heads * size
        temperature = 1.0 if v.sampling.greedy else v.sampling.temperature
        probs = Sampling(temperature, top_p=self.nucleus).probs(logits)
        return draw(probs, words(v.u[:, : logits.shape[1]], numbers) / WORD)

    @staticmethod
    def _divergences(logits: Tensor, draft_logits: Tensor) -> Tensor:
        """[B, n, 1 + K] twice the JS to the centroid, of the draft first, then of each head (eq.
        6). One logarithm and one exponential an entry: this is most of the rule's cost."""
        log_c = logits.mean(2).log_softmax(-1)[:, :, None]
        log_p = torch.cat([draft_logits[:, :, None], logits], 2).log_softmax(-1)
        # a head's draft vocabulary: p = 0 adds nothing
        log_p = log_p.clamp_(min=torch.finfo(log_p.dtype).min)
        p, c = log_p.exp(), log_c.exp()
        log_m = ((p + c) / 2).clamp_(min=torch.finfo(p.dtype).tiny).log_()
        return (p * (log_p - log_m)).sum(-1) + (c * (log_c - log_m)).sum(-1)


def _majority(tokens: Tensor) -> tuple[Tensor, Tensor]:
    """The token of most heads, the first of equal counts, [B, n, 1], and how many heads have it,
    [B, n]."""
    votes = (tokens[..., None] == tokens[..., None, :]).sum(-1)
    return tokens.gather(-1, votes.argmax(-1, keepdim=True)), votes.amax(-1)


def _whole(v: Verification, per_context: Tensor) -> Tensor:
    """[B, n, ...] -> [B, N, ...]; what is put in for contexts without children is never read."""
    rows, contexts, *rest = per_context.shape
    missing = v.draft.nodes - contexts
    return (
        torch.cat([per_context, per_context.new_zeros(rows, missing, *rest)], 1)
        if missing
        else per_context
    )


def _matches(v: Verification, tokens: Tensor) -> Tensor:
    """[B, N, K] bool: which of the `tokens` [B, n, K] of its context is the node's token."""
    return v.draft.tokens[..., None] == v.at_parent(_whole(v, tokens))


class DropoutHead(_Dropout):
    """One dropout head in place of the target: decode with DropMatch's i-th head alone (DropMatch,
    Table 1).

    With the head's logits l_i as in `dropmatch` (one mask a token), at temperature 0:

        accept x  iff  x = argmax l_i   in the context of its parent;   correction and bonus: argmax
                  l_i

    Each context of the text has one mask, drawn independently, so the text has the distribution of
    autoregressive decoding with the head, except for its first token, which the prefill draws from
    the plain target. With p_drop = 0 this is greedy decoding of the target. A control, not a
    method: "relaxed" counts tokens that differ from the target's argmax.

    head: i, from 1; heads differ only in their random masks. p_drop: share of hidden units
    dropped."""

    greedy_only = True
    head: int = Field(1, ge=1, le=1024)

    def emits_argmax(self, sampling: Sampling) -> bool:
        return False  # the head's argmax, not the target's

    def decide(self, v: Verification) -> Decision:
        return Decision(v.draft.tokens == v.at_parent(self.tokens(v.hidden, v.u)), v.is_argmax)

    def emit(self, v: Verification, node: Tensor) -> Tensor:
        token = self.tokens(v.at(v.hidden, node), v.at(v.u, node))
        return v.one_hot(token)

    def tokens(self, hidden: Tensor, u: Tensor) -> Tensor:
        """The head's token in each context: hidden states [..., H] and their uniform numbers [...]
        -> [...]."""
        return self.masked_logits(hidden, u, self.head - 1, 1)[..., 0, :].argmax(-1)
