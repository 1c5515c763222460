"""The requests of a vLLM worker that one of this project's rules serves. Runs in vLLM's environment.

A request names its rule in `SamplingParams.extra_args` (`vllm_xargs` of the server's requests): `leeway`, as on this
project's command line, `rule=mars rule.theta=0.9`, and `leeway_key`, the name of its random numbers. The environment
variable LEEWAY_RULE names the rule of all requests that name none; without it they keep the engine's own sampler."""

from __future__ import annotations

import hashlib
import inspect
import json
import logging
import os
import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from methods.engine.families import VLLM_SUPPORTED
from methods.registry import rule_of
from methods.rules.base import DraftCapabilities
from methods.sampling import Sampling
from methods.serving import KINDS, Served, Setting, Verifier

if TYPE_CHECKING:
    from torch import Tensor

log = logging.getLogger("vllm.leeway")
DEFAULT = "LEEWAY_RULE"
REPORT_S = 30.0
"""Seconds between two reports in the log."""
DRAFTERS = {"ngram": "prompt_lookup", "draft_model": "model", "eagle3": "eagle3", "eagle": "eagle", "medusa": "medusa",
            "suffix": "suffix", None: "none"}
"""vLLM's name of a drafter -> the name here."""


@dataclass
class Known:
    """A model by its fingerprint, as far as a rule's files ask for it."""

    source: str
    fingerprint: str


class Target:
    """The engine's target, as far as a rule may bind to it (`methods.rules.base.Rule.bind`)."""

    def __init__(self, model: Any, known: Known, vocab_size: int, device: torch.device) -> None:
        self.model, self.vocab_size, self.device = model, vocab_size, device
        self.source, self.fingerprint = known.source, known.fingerprint

    @property
    def embedding(self) -> Tensor:
        """[V, H] input embeddings. Raises ValueError where this rank has a part of them."""
        weight: Tensor = self.model.get_input_embeddings().weight if hasattr(
            self.model, "get_input_embeddings") else self.model.model.embed_tokens.weight
        if len(weight) < self.vocab_size:
            raise ValueError("the rule reads the target's embedding, of which each tensor-parallel rank has a part: "
                             "take one device")
        return weight[:self.vocab_size].detach()

    def head(self, hidden: Tensor) -> Tensor:
        """Final-norm states [..., H] -> logits [..., V] float32."""
        logits: Tensor = self.model.compute_logits(hidden.flatten(0, -2).to(self.embedding.dtype))
        return logits.float().unflatten(0, hidden.shape[:-1])


class Requests:
    """The served requests of one worker, by the engine's ids."""

    def __init__(self, method: str | None, length: int, is_drawn: bool, device: torch.device) -> None:
        """`method`: the drafter by vLLM's name; `length`: K; `is_drawn`: drafts carry the distribution they are from
        at temperatures above 0."""
        self.drafter, self.is_drawn, self.device = DRAFTERS.get(method, str(method)), is_drawn, device
        self.verifier = Verifier(length, length if self.drafter == "model" else 0, device)
        self.target: Target | None = None
        self.draft: Known | None = None
        self.settings: dict[tuple[str, float, int, float], Setting | None] = {}
        self.refusals: dict[str, int] = {}
        self._served: dict[str, Served | None] = {}
        self._reported = time.monotonic()
        self.last_hidden: Tensor | None = None
        self.reads_hidden = False

    def of(self, name: str, params: Any, prompt: Callable[[], Sequence[int]]) -> Served | None:
        """The request `name` of the engine; None for one that keeps the engine's sampler."""
        if name not in self._served:
            self._served[name] = self._admit(name, params, prompt())
        return self._served[name]

    def tidy(self, running: Any) -> None:
        """Drop the requests that are no longer among `running`, once there are many; log what the rules did."""
        if (now := time.monotonic()) > self._reported + REPORT_S and not self.verifier.record:
            self._reported = now
            for one in self.totals():
                log.info("leeway: %s", sentence(one))
        if len(self._served) > 2 * len(running) + 64:
            self._served = {name: one for name, one in self._served.items() if name in running}

    def hidden_hook(self, _: Any, args: tuple[Any, ...]) -> None:
        """A forward pre-hook of the target's logits processor: its rows are those of the logits."""
        self.last_hidden = args[1] if self.reads_hidden else None

    def _admit(self, name: str, params: Any, prompt: Sequence[int]) -> Served | None:
        extra = params.extra_args or {}
        text = extra.get("leeway", os.environ.get(DEFAULT))
        if not text:
            return None
        top_k = 0 if params.top_k in (0, -1) else params.top_k
        key = str(text), float(params.temperature), int(top_k), float(params.top_p)
        try:
            if reason := unsupported(params):
                raise ValueError(reason)
            if self.settings.get(key) is None:
                self.settings[key] = self._setting(*key)
        except (ValueError, OSError) as error:
            reason = f"{text}: {' '.join(str(error).split())}"
            if reason not in self.refusals:
                log.error("a request keeps vLLM's own sampler: %s", reason)
            self.refusals[reason] = self.refusals.get(reason, 0) + 1
            return None
        setting = self.settings[key]
        assert setting is not None
        self.reads_hidden |= setting.rule.needs_hidden
        return self.verifier.request(str(extra.get("leeway_key") or _key(name, params, prompt)), setting, prompt)

    def _setting(self, text: str, temperature: float, top_k: int, top_p: float) -> Setting:
        """Raises ValueError, one line, for a rule that cannot run here."""
        rule, sampling = rule_of(shlex.split(text)), Sampling(temperature, top_k, top_p)
        sampled = self.is_drawn and not sampling.greedy
        rule.check(DraftCapabilities(self.drafter, sampled, sampled), sampling)
        if sampled and (top_k or top_p < 1.0):
            raise ValueError("vLLM draws drafts with the temperature alone: give no top_k and top_p, or "
                             "draft_sample_method=greedy")
        assert self.target is not None, "the model is loaded before its first request"
        bound = rule.bind(self.target, self.draft)  # type: ignore[arg-type]  # what rules bind to, no more
        if bound.needs_draft_hidden:
            raise ValueError(f"rule={rule.name} reads the draft model's hidden states, which vLLM does not give")
        return Setting(bound, sampling)

    def totals(self) -> list[dict[str, Any]]:
        """Rule, decoding settings and counts by `methods.serving.KINDS` since the engine started. Waits for the
        device."""
        return [{"rule": text, "temperature": setting.sampling.temperature,
                 **dict(zip(KINDS, setting.totals.tolist(), strict=True))}
                for (text, *_), setting in self.settings.items() if setting is not None and setting.totals is not None]


def sentence(one: Mapping[str, Any]) -> str:
    """A rule's totals in words."""
    rate = (one["emitted"] - one["started"]) / max(one["cycles"], 1)
    return (f"{one['rule']} T={one['temperature']:g}: {one['emitted']} tokens in {one['cycles']} cycles, {rate:.2f} a "
            f"cycle; of {one['drafted']} drafted {one['accepted']} accepted, {one['relaxed']} relaxed, "
            f"{one['greedier']} greedier")


def unsupported(params: Any) -> str | None:
    """Why the rules cannot serve a request with these SamplingParams; None where they can."""
    given = [name for name, default in (
        ("presence_penalty", 0.0), ("frequency_penalty", 0.0), ("repetition_penalty", 1.0), ("min_p", 0.0),
        ("min_tokens", 0), ("logit_bias", None), ("bad_words", None), ("allowed_token_ids", None),
        ("structured_outputs", None), ("logprob_token_ids", None)) if (getattr(params, name, default) or default)
        != default]
    return f"rules see the target's own distribution: leave out {', '.join(given)}" if given else None


def check_signatures(signatures: Mapping[Callable[..., Any], str]) -> None:
    """Raises RuntimeError, one line, for a vLLM whose samplers the extension does not know."""
    import vllm

    changed = [one.__qualname__ for one, names in signatures.items()
               if " ".join(inspect.signature(one).parameters) != names]
    if changed or not vllm.__version__.startswith(VLLM_SUPPORTED):
        raise RuntimeError(f"vLLM {vllm.__version__}: the rules run in {VLLM_SUPPORTED}x"
                           + (f", and {', '.join(changed)} has other arguments here" if changed else "")
                           + "; install that version (make vllm), or see docs/serving.md for how to raise it")


def _key(name: str, params: Any, prompt: Sequence[int]) -> str:
    """With a seed the same prompt gets the same numbers; without one every request has its own."""
    if params.seed is None:
        return name
    return hashlib.sha256(json.dumps([params.seed, list(prompt)]).encode()).hexdigest()


