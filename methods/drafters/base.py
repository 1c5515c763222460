"""The interface of a drafter: it proposes a tree from the committed tokens and sees the outcome."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import BaseModel, ConfigDict
from torch import Tensor

from methods.sampling import Sampling
from methods.trees.draft import Draft

if TYPE_CHECKING:  # transformers is slow to import, and a command is checked before anything is loaded
    from methods.engine.cache import SlotCache
    from methods.engine.language_model import LanguageModel


@dataclass(frozen=True, slots=True)
class DraftSettings:
    """What all drafters share: `length` K, the decoding settings, and whether drafts must carry their distribution and
    the hidden states behind their tokens."""

    length: int
    sampling: Sampling
    needs_q: bool
    needs_hidden: bool = False


class Proposer(ABC):
    """A drafter at work on one batch of prompts.

    `rows` are the committed token ids of each row (host lists, the last one is the root: committed, not yet seen by
    any cache); the decode loop appends to them, proposers only read them."""

    @abstractmethod
    def propose(self, rows: list[list[int]], u: Tensor) -> Draft:
        """One draft for the batch; `u` [B, Drafter.num_uniforms(K)] are uniforms of the prompts' own streams."""

    def attach_target_cache(self, cache: SlotCache) -> None:  # noqa: B027
        """The target's own cache, told once after the prefill, for a drafter that runs layers of the target.

        Before each draft it holds all committed tokens of a row but the root. What a drafter writes behind them, the
        verification writes again; `cache.lengths` must be as before when `propose` returns."""

    def on_logits(self, logits: Tensor, node: Tensor) -> None:  # noqa: B027
        """The target's raw logits [B, N, V] of its last forward, and the node [B] in whose context the next root is
        predicted. Called after the prefill (N = 1) and after each cycle's acceptance."""

    def pruning_counts(self, row: int, cycles: int) -> tuple[int, int]:
        """How many tokens were drafted in the first `cycles` cycles of a row, and how many of them pruned; (0, 0) for
        drafts that are not pruned."""
        return 0, 0

    def on_extra_outputs(self, answers: Sequence[Sequence[int]]) -> None:  # noqa: B027
        """The target's argmax behind each extra node of the last draft (`Draft.extra_nodes`), a list a row."""

    def on_features(self, features: Tensor, kept: Sequence[Sequence[int]]) -> None:  # noqa: B027
        """The target's features [B, N, F*H] of its last forward and the node indices kept in each row.

        Called after the prefill, where every prompt token is a node that is kept, and after each cycle, where a
        finished row keeps nothing; only for a drafter that names `features`. The feature of a kept node belongs to the
        position before a committed token: the last len(kept[b]) tokens of rows[b] are the ones that followed."""


class Drafter(BaseModel, ABC):
    """The options of a drafter: one file in methods/drafters, one subclass in it."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    model_role: ClassVar[str | None] = None
    """The part of a pair (`pair.<model_role>`) whose model the drafter runs, or None."""
    has_q: ClassVar[bool] = False
    """Whether drafts carry a distribution."""
    has_hidden: ClassVar[bool] = False
    """Whether drafts can carry the hidden states behind their tokens."""

    @classmethod
    def load(cls, source: str, target: LanguageModel, *, revision: str | None, dtype: str, device: str,
             trust_remote_code: bool = False) -> Any:
        """For drafters that are trained heads: the head `pair.<model_role>` of this target. Raises ModelError."""
        raise TypeError(f"{cls.__name__} is no head: its pair.{cls.model_role} is loaded as a causal LM")

    def features(self, target: LanguageModel) -> tuple[int, ...]:
        """HF hidden_states indices of the target that `Proposer.on_features` is to see, concatenated in this order."""
        return ()

    def samples(self, sampling: Sampling) -> bool:
        """Whether candidates are drawn from the draft's distribution under these decoding settings."""
        return False

    def nodes(self, length: int) -> int:
        """The largest tree, root included."""
        return length + 1

    def num_uniforms(self, length: int) -> int:
        """Random numbers a cycle needs for drafting."""
        return 0

    def check_target(self, target: LanguageModel) -> None:
        """Raise ModelError, one line, where this drafter cannot work on the target."""

    @abstractmethod
    def start(self, target: LanguageModel, model: Any, settings: DraftSettings, rows: list[list[int]],
              slots: int) -> Proposer:
        """Begin work on the prompts `rows`; at most `slots` tokens a row will ever be held. `model` is the drafter's:
        a LanguageModel, the head that `load` returned, or None without a `model_role`."""
