"""The requests of a vLLM worker that one of this project's rules serves. Runs in vLLM's environment."""

from __future__ import annotations

import hashlib
import inspect
import json
import logging
import re
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from bench.config.rule_text import rule_of, words_of
from bench.run.vllm.admission import ONE_DEVICE, Admitted, Offer, admitted, operators_rules
from bench.run.vllm.recorder import Recorder
from methods.engine.families import VLLM_SUPPORTED
from methods.serving import Served, Setting, Verifier
from results.store.errors import one_line

if TYPE_CHECKING:
    from torch import Tensor

    from methods.rules.base import Rule

log = logging.getLogger("vllm.leeway")
MOST_SETTINGS = 256
"""Rules with their decoding settings that are kept: as many as vLLM has requests in a batch, by default."""
SAMPLE = re.compile(r"(\d+)_")
"""How vLLM begins the name of each sample of a request with n > 1."""


class Refused(ValueError):
    """A request that must end with an error. The message is one line."""


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
            raise ValueError(ONE_DEVICE)
        return weight[:self.vocab_size].detach()

    def head(self, hidden: Tensor) -> Tensor:
        """Final-norm states [..., H] -> logits [..., V] float32."""
        logits: Tensor = self.model.compute_logits(hidden.flatten(0, -2).to(self.embedding.dtype))
        return logits.float().unflatten(0, hidden.shape[:-1])


class Requests:
    """The served requests of one worker, by the engine's ids."""

    def __init__(self, offer: Offer, length: int, device: torch.device) -> None:
        """`length`: K."""
        self.offer, self.device = offer, device
        self.verifier = Verifier(length, length if offer.drafter == "model" else 0, device)
        self.target: Target | None = None
        self.draft: Known | None = None
        self.settings = OrderedDict[tuple[str, float, int, float], Setting]()
        self.refusals: list[str] = []
        self.recorder = Recorder(self.verifier)
        self._served: dict[str, Served | None] = {}
        self.last_hidden: Tensor | None = None
        self.reads_hidden = False

    def of(self, name: str, params: Any, prompt: Callable[[], Sequence[int]]) -> Served | None:
        """The request `name` of the engine; None for one that keeps the engine's sampler. Raises Refused."""
        if name not in self._served:
            try:
                self._served[name] = self._admit(name, params, prompt())
            except (ValueError, OSError) as error:
                raise self.refused(one_line(error)) from error
        found = self._served[name]
        if found is not None and found.failure is not None:
            raise Refused(found.failure)
        return found

    def refused(self, reason: str) -> Refused:
        """Log a reason once."""
        if reason not in self.refusals:
            log.error("a request ends with an error: %s", reason)
            self.refusals = [*self.refusals[-MOST_SETTINGS:], reason]
        return Refused(reason)

    def prepare(self) -> None:
        """Bind the operator's rules, which may take long, before the first request. Raises ValueError, one line."""
        for text in filter(None, operators_rules()):
            self._bound(rule_of(words_of(text)))

    def tidy(self, running: Any) -> None:
        """Drop the requests that are no longer among `running`, once there are many."""
        if len(self._served) > 2 * len(running) + 64:
            self._served = {name: one for name, one in self._served.items() if name in running}

    def hidden_hook(self, _: Any, args: tuple[Any, ...]) -> None:
        """A forward pre-hook of the target's logits processor: its rows are those of the logits."""
        self.last_hidden = args[1] if self.reads_hidden else None

    def _admit(self, name: str, params: Any, prompt: Sequence[int]) -> Served | None:
        asked = admitted(params, self.offer)
        if asked is None:
            return None
        key = asked.text, asked.sampling.temperature, asked.sampling.top_k, asked.sampling.top_p
        if key not in self.settings:
            self.settings[key] = Setting(self._bound(asked.rule), asked.sampling)
        self.settings.move_to_end(key)
        while len(self.settings) > MOST_SETTINGS:
            self.settings.popitem(last=False)
        setting = self.settings[key]
        self.reads_hidden |= setting.rule.needs_hidden
        return self.verifier.request(_stream(name, asked, params, prompt), setting, prompt)

    def _bound(self, rule: Rule) -> Rule:
        assert self.target is not None, "the model is loaded before its first request"
        bound = rule.bind(self.target, self.draft)
        if bound.needs_draft_hidden:
            raise ValueError(f"rule={rule.name} reads the draft model's hidden states, which vLLM does not give")
        return bound


def check_signatures(signatures: Mapping[Callable[..., Any], str]) -> None:
    """Raises RuntimeError, one line, for a vLLM whose samplers the extension does not know."""
    import vllm

    changed = [one.__qualname__ for one, names in signatures.items()
               if " ".join(inspect.signature(one).parameters) != names]
    if changed or not vllm.__version__.startswith(VLLM_SUPPORTED):
        raise RuntimeError(f"vLLM {vllm.__version__}: the rules run in {VLLM_SUPPORTED}x"
                           + (f", and {', '.join(changed)} has other arguments here" if changed else "")
                           + "; install that version (make vllm), or see docs/serving.md for how to raise it")


def _stream(name: str, asked: Admitted, params: Any, prompt: Sequence[int]) -> str:
    """The name of a request's random numbers: its key, with the place of the sample behind the first; else with a seed
    the same prompt gets the same numbers (vLLM adds the place to the seed); else every request has its own."""
    if asked.key:
        place = SAMPLE.match(name)
        return asked.key if place is None or int(place[1]) == 0 else f"{asked.key} sample {int(place[1])}"
    if params.seed is None:
        return name
    return hashlib.sha256(json.dumps([params.seed, list(prompt)]).encode()).hexdigest()
