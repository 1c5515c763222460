"""A method: drafter x acceptance rule on a target, under decoding settings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from methods.drafters.base import Drafter, DraftSettings, Proposer, TokenRows
from methods.drafters.lookup import NoneDrafter
from methods.pruning import PrunedProposer, Pruning
from methods.rules.base import DraftCapabilities, Rule
from methods.rules.lossless import Greedy, Lossless
from methods.sampling import Sampling

if TYPE_CHECKING:
    from methods.engine.language_model import LanguageModel
    from methods.heads.head import Head


@dataclass(frozen=True)
class Method:
    """Everything a decode loop needs to know.

    model     the drafter's own, None for drafters without one.
    sampling  of the target; the draft's own is in `draft`.
    """

    target: LanguageModel
    model: LanguageModel | Head | None
    drafter: Drafter
    rule: Rule
    sampling: Sampling
    draft: DraftSettings
    pruning: Pruning | None = None

    def proposer(self, rows: TokenRows, slots: int) -> Proposer:
        """The drafter at work on the prompts `rows`, its drafts pruned where the method prunes; at
        most `slots` tokens a row will ever be held."""
        proposer = self.drafter.start(self.target, self.model, self.draft, rows, slots)
        return proposer if self.pruning is None else PrunedProposer(proposer, self.pruning)


def autoregressive(target: LanguageModel, sampling: Sampling | None = None) -> Method:
    """Decoding with the target alone; greedy unless `sampling` is given."""
    sampling = sampling or Sampling(0.0)
    return build_method(
        target, None, NoneDrafter(), Greedy() if sampling.greedy else Lossless(), sampling, 1
    )


def capabilities(
    drafter: Drafter, name: str, sampling: Sampling, full_vocabulary: bool = True
) -> DraftCapabilities:
    """What `Rule.check` and `Pruning.check` read of a drafter, before anything is loaded."""
    return DraftCapabilities(
        name,
        drafter.has_q,
        drafter.samples(sampling),
        full_vocabulary,
        drafter.is_chain(),
        drafter.has_bonus_q,
        drafter.distinct(sampling),
    )


def build_method(
    target: LanguageModel,
    model: LanguageModel | Head | None,
    drafter: Drafter,
    rule: Rule,
    sampling: Sampling,
    draft_length: int,
    pruning: Pruning | None = None,
) -> Method:
    """Put a method together. Raises ModelError when the drafter cannot work on target and model,
    when target and draft do not share a vocabulary, or when a head drafts from a part of it only
    and the rule needs all of it."""
    from methods.engine.source import ModelError

    drafter.check_target(target)
    drafter.check_model(model)
    if model is not None and model.vocab_size != target.vocab_size:
        raise ModelError(
            f"pair.{drafter.model_role}={model.source}: its vocabulary has {model.vocab_size} "
            f"entries, the target's {target.vocab_size}; draft and target must share one "
            "vocabulary"
        )
    if model is not None and not model.full_vocabulary:
        candidates = capabilities(
            drafter, drafter.model_role or "none", sampling, full_vocabulary=False
        )
        try:
            rule.check(candidates, sampling)
        except ValueError as error:
            raise ModelError(f"{model.source}: {error}") from error
    needs_q = rule.needs_q(sampling) or drafter.samples(sampling) or pruning is not None
    bound = rule.bind(target, model)
    _check_findings(target, model, drafter, bound)
    if bound.needs_draft_hidden() and not drafter.has_hidden():
        raise ModelError(
            f"rule={rule.name} reads the draft model's hidden states, and this drafter has none "
            "behind its tokens: take drafter=model, or a classifier trained with features=target"
        )
    settings = DraftSettings(
        draft_length, sampling, needs_q, bound.needs_draft_hidden(), bound.bonus_needs_q(sampling)
    )
    return Method(target, model, drafter, bound, sampling, settings, pruning)


def _check_findings(
    target: LanguageModel, model: LanguageModel | Head | None, drafter: Drafter, rule: Rule
) -> None:
    """Raises ModelError where the method needs what the engine was found to do wrong with one of
    its models."""
    from methods.engine.source import ModelError

    for loaded in (target, model):
        if loaded is None or (findings := getattr(loaded, "findings", None)) is None:
            continue
        if findings.trees and not drafter.is_chain():
            raise ModelError(
                f"{loaded.source}: trees are not right with it: {findings.trees}; take a drafter "
                "of chains (prompt_lookup, or drafter.tree=chain), or engine=vllm"
            )
        reads = (
            rule.needs_hidden() or drafter.features(model)
            if loaded is target
            else rule.needs_draft_hidden()
        )
        if findings.states and reads:
            raise ModelError(
                f"{loaded.source}: nothing can read its hidden states: {findings.states}; take a "
                "drafter and a rule without a head or classifier (drafter=model, rule=lossless)"
            )
