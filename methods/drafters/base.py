"""Interface of a drafter: it proposes a tree after the committed tokens and is informed of the
outcome."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from pydantic import Field
from torch import Tensor

from methods.options import StrictOptions
from methods.sampling import Sampling
from methods.trees import static
from methods.trees.draft import Draft
from methods.trees.shaped import Branching

# transformers is slow to import, and a command is checked before anything is loaded
if TYPE_CHECKING:
    from methods.engine.cache import SlotCache
    from methods.engine.language_model import LanguageModel


TokenRows = list[list[int]]
"""The committed token ids of each row of a batch."""


@dataclass(frozen=True, slots=True)
class DraftSettings:
    """Settings common to all drafters.

    length        K, the draft length.
    sampling      how candidates are drawn where they are.
    needs_q       drafts must carry their distribution.
    needs_hidden  drafts must carry the hidden states of their tokens.
    bonus_q       drafts must carry the distribution behind their last token as well.
    """

    length: int
    sampling: Sampling
    needs_q: bool
    needs_hidden: bool = False
    bonus_q: bool = False


class Layered(Protocol):
    """A model of which only the number of its layers matters: `LanguageModel`, or one that was not
    loaded."""

    @property
    def source(self) -> str: ...

    @property
    def layers(self) -> int: ...


class Proposer(ABC):
    """A drafter running on one batch of prompts.

    `rows` are the committed token ids of each row (host lists). The last one is the root:
    committed, but not yet in any cache. The decode loop appends to the lists; proposers only read
    them."""

    @abstractmethod
    def propose(self, rows: TokenRows, u: Tensor) -> Draft:
        """One draft for the batch; `u` [B, Drafter.num_uniforms(K)]: uniforms from each prompt's
        random stream."""

    def attach_target_cache(self, cache: SlotCache) -> None:  # noqa: B027
        """Receive the target's cache, once, after the prefill; for drafters that run layers of the
        target.

        Before each draft it holds all committed tokens of a row but the root. Verification
        overwrites what a drafter writes after them. `propose` must leave `cache.lengths`
        unchanged."""

    def on_logits(self, logits: Tensor, node: Tensor) -> None:  # noqa: B027
        """Receive the raw logits [B, N, V] of the target's last forward, and the node [B] in whose
        context the next root is predicted. Called after the prefill (N = 1) and after each cycle's
        acceptance."""

    def keep(self, places: list[int]) -> None:  # noqa: B027
        """Only the rows at these places, in this order, go on; called before a draft. The target's
        cache has already been cut down."""

    def pruning_counts(self, row: int, cycles: int) -> tuple[int, int]:
        """Tokens drafted in the first `cycles` cycles of a row, and how many of them were pruned;
        (0, 0) without pruning."""
        return 0, 0

    def on_extra_outputs(self, answers: Sequence[Sequence[int]]) -> None:  # noqa: B027
        """Receive the target's argmax after each extra node (`Draft.extra_nodes`) of the last
        draft, a list per row."""

    def on_features(self, features: Tensor, kept: Sequence[Sequence[int]]) -> None:  # noqa: B027
        """Receive the features [B, N, F*H] of the target's last forward and the node indices kept
        in each row.

        Called after the prefill, where every prompt token is a kept node, and after each cycle,
        where a finished row keeps nothing; only for a drafter whose `features` is not empty. The
        feature of a kept node belongs to the position before a committed token: the last
        len(kept[b]) tokens of rows[b] are the tokens that follow."""


class Drafter(StrictOptions, ABC):
    """Options of a drafter. Each file in methods/drafters defines one subclass."""

    model_role: ClassVar[str | None] = None
    """Role in the pair (`pair.<model_role>`) of the model that the drafter runs, or None."""
    has_q: ClassVar[bool] = False
    """Whether drafts carry a distribution."""
    has_bonus_q: ClassVar[bool] = False
    """Whether drafts can carry the distribution behind their last token."""
    loader: ClassVar[str] = ""
    """For a trained head: its module in methods/heads and, behind a dot, the function there that
    loads it."""
    shaped_by: ClassVar[str] = "drafter.tree"
    """What decides the shape of drafts where an option is idle, for messages."""

    def is_chain(self) -> bool:
        """Whether every draft is a chain."""
        return False

    def has_hidden(self) -> bool:
        """Whether drafts can carry the hidden states of their tokens."""
        return False

    @property
    def idle(self) -> frozenset[str]:
        """Options that decide nothing beside the others, `length` for draft.length."""
        return frozenset()

    @classmethod
    def load(
        cls, source: str, target: LanguageModel, *, revision: str | None, dtype: str, device: str
    ) -> Any:
        """Load the trained head `pair.<model_role>` of this target. Raises ModelError."""
        module, _, function = cls.loader.partition(".")
        load = getattr(import_module(f"methods.heads.{module}"), function)
        return load(source, target, revision=revision, dtype=dtype, device=device)

    def features(self, model: Any) -> tuple[int, ...]:
        """HF hidden_states indices of the target that `Proposer.on_features` receives, concatenated
        in this order; `model` is the drafter's, as in `start`."""
        features: tuple[int, ...] = getattr(model, "features", ())
        return features

    def samples(self, sampling: Sampling) -> bool:
        """Whether candidates are drawn from the draft's distribution under these decoding
        settings."""
        return False

    def distinct(self, sampling: Sampling) -> bool:
        """Whether drawn siblings are drawn without replacement."""
        return (
            self.samples(sampling)
            and not self.is_chain()
            and not getattr(self, "replacement", True)
        )

    def nodes(self, length: int) -> int:
        """Size of the largest tree, root included."""
        return length + 1

    def num_uniforms(self, length: int) -> int:
        """Uniform random numbers needed for drafting per cycle."""
        return 0

    def forwards(self, length: int, levels: int) -> tuple[int, ...]:
        """What a cycle runs of the drafter's own model for draft.length K and a draft of so many
        levels: the tokens of each forward, in order, for one row. Empty without a model. A cost
        model needs it (results/metrics/cost.py); the first forward, which reads what the last cycle
        committed, counts as one token."""
        return ()

    def check_target(self, target: Layered) -> None:
        """Raise ModelError, one line, if this drafter cannot run on the target."""

    def check_model(self, model: Any) -> None:
        """Raise ModelError, one line, if this drafter cannot run with its own model, as `start`
        receives it."""

    @abstractmethod
    def start(
        self,
        target: LanguageModel,
        model: Any,
        settings: DraftSettings,
        rows: TokenRows,
        slots: int,
    ) -> Proposer:
        """Start on the prompts `rows`; a row never exceeds `slots` tokens. `model` is the
        drafter's: a LanguageModel, the head that `load` returned, or None without a
        `model_role`."""


class Branches(Drafter):
    """A drafter whose siblings can be drawn.

    branching    siblings of each node, from the root's depth on; 1 behind the last. Empty: a chain.
    replacement  siblings are independent draws; false: each is drawn without the tokens of those
                 before it.
    """

    # unused: a cell's identity lacks it
    branching: Branching = Field([], exclude_if=lambda factors: not factors)
    replacement: bool = Field(False, exclude_if=lambda replacement: not replacement)

    def regular(self, length: int) -> static.StaticTree:
        """The shape of a tree of `length` levels with these factors."""
        return static.regular(tuple(self.branching), length)


class StaticDrafter(Drafter):
    """A head that drafts a static tree.

    tree  name of a shape in methods/trees/shapes, or path of a YAML file.
    """

    has_q = True
    tree: static.TreeOption

    @property
    def idle(self) -> frozenset[str]:
        return frozenset({"length"})

    @property
    def shape(self) -> static.StaticTree:
        return static.load(self.tree)

    def nodes(self, length: int) -> int:
        return self.shape.nodes
