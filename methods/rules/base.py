"""What a rule file imports: the interface of an acceptance rule, what it sees, and what it checks
of a drafter."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol

import torch
from torch import Tensor

from methods.options import StrictOptions
from methods.registry import name_of
from methods.rules.verification import NamedTensors, State, Verification
from methods.rules.walk import Decision, Walk
from methods.sampling import Sampling, draw

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "Decision",
    "DraftCapabilities",
    "Model",
    "NamedTensors",
    "Rule",
    "Sampling",
    "State",
    "Target",
    "ThresholdView",
    "Verification",
    "Walk",
]

Relation = Literal[">", ">=", "<", "<="]
_COMPARE = {">": torch.gt, ">=": torch.ge, "<": torch.lt, "<=": torch.le}


@dataclass(frozen=True, slots=True)
class ThresholdView:
    """A rule's local decision as a function of one threshold, used to replay traces at other
    thresholds.

    A node is kept iff `inside` where `score relation threshold` holds, and iff `outside` elsewhere
    (NaN never holds).

    name      the rule's option that is the threshold.
    relation  comparison of score and threshold.
    value     the threshold in this run.
    score     [B, N] float per node.
    inside    [B, N] bool per node: the decision where the comparison holds.
    outside   [B, N] bool per node: the decision elsewhere.
    """

    name: str
    relation: Relation
    value: float
    score: Tensor
    inside: Tensor
    outside: Tensor

    @property
    def holds(self) -> Tensor:
        """[B, N] bool: `score relation value`."""
        return _COMPARE[self.relation](self.score, self.value)

    @property
    def kept(self) -> Tensor:
        """[B, N] bool: the decision."""
        return torch.where(self.holds, self.inside, self.outside)


@dataclass(frozen=True, slots=True)
class DraftCapabilities:
    """Properties of a drafter that a rule checks before a run.

    drafter          its name, for messages.
    has_q            drafts carry a distribution.
    sampled          candidates are drawn from that distribution.
    full_vocabulary  the distribution covers every token; False for heads with a reduced draft
                     vocabulary.
    chain            every draft is a chain.
    bonus_q          drafts can carry the distribution behind their last token
                     (`Rule.bonus_needs_q`).
    distinct         sampled siblings are drawn without replacement.
    """

    drafter: str
    has_q: bool
    sampled: bool
    full_vocabulary: bool = True
    chain: bool = True
    bonus_q: bool = False
    distinct: bool = False


class Model(Protocol):
    """A loaded model, as far as a rule's files ask for it."""

    @property
    def source(self) -> str: ...
    @property
    def fingerprint(self) -> str: ...


class Target(Model, Protocol):
    """What a rule may take of the target: input embeddings [V, H], LM head, device, and the torch
    module itself."""

    model: Any

    @property
    def vocab_size(self) -> int: ...
    @property
    def device(self) -> torch.device: ...
    @property
    def embedding(self) -> Tensor: ...
    def head(self, hidden: Tensor) -> Tensor: ...


class Rule(StrictOptions, ABC):
    """An acceptance rule: a subclass in a file of methods/rules; its fields are the rule's options.

    `decide` is the local decision for all nodes at once; `emit` gives the weights from which the
    token after the kept path is drawn (the correction where a rule rejects, the bonus at a leaf).
    Neither may wait for the device.

    What is the same for all options is an attribute of the class, set plainly in a subclass
    (`chain_only = True`); what options may decide is a method."""

    chain_only: ClassVar[bool] = False
    """Whether the rule is defined for chains only; drafters of trees are then refused."""
    greedy_only: ClassVar[bool] = False
    """Whether the rule is defined at temperature 0 only."""
    sampled_only: ClassVar[bool] = False
    """Whether, above temperature 0, the rule is defined only for candidates drawn from the draft
    distribution."""
    local: ClassVar[bool] = True
    """Whether a node is decided from its own context and siblings. A rule that looks along the path
    or has a state is not local and cannot be combined with another."""
    judges_paths: ClassVar[bool] = False
    """Whether a decision on a node depends on the random numbers of others on its path."""

    def needs_hidden(self) -> bool:
        """Whether the rule reads `Verification.hidden`."""
        return False

    def needs_draft_hidden(self) -> bool:
        """Whether the rule reads `draft.hidden`; known once it is bound."""
        return False

    def has_law(self) -> bool:
        """Whether the draft determines the distribution of a context's next token, so that
        `methods.distortion` can compute it; false where the random numbers of other nodes
        matter."""
        return self.is_memoryless()

    def drawn_law(self, p: Tensor, q: Tensor) -> Tensor | None:
        """[M, V] distribution of the next token where one candidate is drawn from q [M, V], for a
        rule that states it; p [M, V]. Default: None, and `methods.distortion` integrates over the
        candidates."""
        return None

    def has_own_randomness(self) -> bool:
        """Whether a decision depends on randomness beyond the node's own number, such as masks;
        `methods.distortion` then averages over draws."""
        return False

    @property
    def name(self) -> str:
        """The rule's name on the command line, which its class gives."""
        return name_of(type(self))

    def is_memoryless(self) -> bool:
        """Whether, with these options, the decision on a token depends on its context only."""
        return self.local

    def is_lossless(self, sampling: Sampling) -> bool:
        """Whether the emitted tokens follow the target's processed distribution exactly. Default:
        no."""
        return False

    def needs_q(self, sampling: Sampling) -> bool:
        """Whether the rule reads `draft.logits` or `draft.q` even of deterministic candidates."""
        return False

    def bonus_needs_q(self, sampling: Sampling) -> bool:
        """Whether `emit` reads `draft.logits` behind the last token of a fully accepted chain. The
        drafter then reads that token too: one more forward per cycle."""
        return False

    def emits_argmax(self, sampling: Sampling) -> bool:
        """Whether the emitted token is always the target's argmax, so that nothing has to be
        drawn."""
        return sampling.greedy

    def check(self, candidates: DraftCapabilities, sampling: Sampling) -> None:
        """Raise ValueError, one line, for a combination that cannot run."""
        if self.needs_q(sampling) and not candidates.has_q:
            raise ValueError(
                f"rule={self.name} compares with the draft distribution, and "
                f"drafter={candidates.drafter} has none: use a drafter that is a model or a "
                "head, or another rule"
            )
        if self.greedy_only and not sampling.greedy:
            raise ValueError(
                f"rule={self.name} decodes at temperature 0 only, not {sampling.temperature}: set "
                "decoding.temperature=0 or rule=lossless"
            )
        if self.chain_only and not candidates.chain:
            raise ValueError(
                f"rule={self.name} is defined for chains, and drafter={candidates.drafter} "
                "drafts trees: use drafter=model or another drafter of chains, or rule=lossless"
            )
        if self.bonus_needs_q(sampling) and not candidates.bonus_q:
            raise ValueError(
                f"rule={self.name} draws its bonus with the draft distribution behind the last "
                f"token, and drafter={candidates.drafter} does not compute it: use drafter=model "
                "or early_exit"
            )
        if self.sampled_only and not (candidates.sampled or sampling.greedy):
            raise ValueError(
                f"rule={self.name} is defined for tokens drawn from the draft distribution, and "
                f"drafter={candidates.drafter} draws none: use drafter=model or early_exit"
            )

    def bind(self, target: Target, model: Model | None) -> Rule:
        """The rule bound to these models, `model` being the drafter's: reads its files and keeps
        the weights it needs. Default: itself. Raises ValueError, one line."""
        return self

    def start(self, rows: Sequence[Sequence[int]], device: torch.device) -> State:
        """The state of each request before its first draft; `rows` are its prompt and the first
        token of its answer. Default: none."""
        return {}

    def next_state(self, v: Verification, path: Walk, token: Tensor) -> State:
        """The state after a draft of which `path` was kept and `token` [B] emitted behind it. A new
        dictionary: `v` keeps the old one. Must not wait for the device. Default: unchanged."""
        return v.state

    @abstractmethod
    def decide(self, v: Verification) -> Decision:
        """Decide for every node whether it is kept if it is tested."""

    def statistics(self, v: Verification) -> NamedTensors:
        """Further quantities for the trace that only the rule can compute: name -> [B, N] numbers
        per node. Only called in an untimed pass."""
        return {}

    def threshold_view(self, v: Verification) -> ThresholdView | None:
        """The decision as a function of the rule's threshold; None for a rule without one. Equal to
        `decide` at the threshold of the run. Only called in an untimed pass."""
        return None

    def threshold_on(
        self, option: str, relation: Relation, score: Tensor, outside: Tensor
    ) -> ThresholdView:
        """The view that keeps every node where `score relation` the value of `option` holds, and
        `outside` elsewhere."""
        inside = torch.ones_like(outside)
        return ThresholdView(option, relation, getattr(self, option), score, inside, outside)

    def by_threshold(self, v: Verification) -> Tensor:
        """[B, N] bool: the node is accepted only because of the rule's threshold; without it the
        rule would not accept the token, regardless of the lossless test. Only called in an untimed
        pass.

        Default: what the `threshold_view` adds to its `outside`; for a rule without a view, what
        the rule accepts and the lossless test does not."""
        view = self.threshold_view(v)
        if view is None:
            decision = self.decide(v)
            return decision.accept & ~decision.lossless
        return view.holds & view.inside & ~view.outside

    def emit(self, v: Verification, node: Tensor) -> Tensor:
        """Weights [B, V], unnormalised, in the context of the last kept node [B]. Default: the
        target's p."""
        if self.emits_argmax(v.sampling):
            return v.one_hot(v.at(v.argmax, node))
        return v.p_at(node)

    def next_token(self, v: Verification, node: Tensor, u: Tensor) -> Tensor:
        """The token [B] after the last kept node [B]: drawn from `emit` with u [B], or the argmax
        without a draw."""
        if self.emits_argmax(v.sampling):
            return v.at(v.argmax, node)
        return draw(self.emit(v, node), u)
