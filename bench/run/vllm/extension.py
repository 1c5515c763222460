"""vLLM's worker, extended by this project's rules: `--worker-extension-cls
bench.run.vllm.extension.RuleWorker`.

vLLM mixes the class into its worker. It replaces the runner's samplers by subclasses that ask the
rule, and patches nothing. Runs in vLLM's environment (docs/serving.md)."""

from __future__ import annotations

import json
import os
import select
import signal
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import astuple, dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import torch
from vllm.v1.outputs import SamplerOutput
from vllm.v1.sample.rejection_sampler import RejectionSampler
from vllm.v1.sample.sampler import Sampler

from bench.config.section import parse
from methods import registry
from methods.sampling import Sampling
from methods.serving import Rows, Served, ServedSetting, Verifier
from results.store.errors import one_line

if TYPE_CHECKING:
    from torch import Tensor
    from vllm.v1.sample.metadata import SamplingMetadata
    from vllm.v1.spec_decode.metadata import SpecDecodeMetadata

PARENT, MODELS = "LEEWAY_PARENT", "LEEWAY_MODELS"
"""Environment variables: the process with which the server ends, and source and fingerprint of
target and draft."""


class RuleWorker:
    """Mixed into vLLM's worker, whose `model_runner` it watches. Its other names are calls for
    `collective_rpc`."""

    leeway: Rules | None = None

    @property
    def model_runner(self) -> Any:
        runner = self.__dict__.get("_leeway_runner")
        if (
            runner is not None
            and self.leeway is None
            and getattr(runner, "model", None) is not None
        ):
            self.leeway = install(runner)
        return runner

    @model_runner.setter
    def model_runner(self, runner: Any) -> None:
        self.__dict__["_leeway_runner"] = runner
        threading.Thread(target=end_with, args=(int(os.environ[PARENT]),), daemon=True).start()

    def leeway_use(self, rule: str, options: dict[str, Any], sampling: dict[str, Any]) -> str:
        """Decode the next requests by this rule. Returns why it cannot, one line, or nothing."""
        try:
            self._leeway().use(rule, options, sampling)
        except (ValueError, OSError) as error:
            return one_line(error)
        return ""

    def leeway_take(self) -> dict[str, list[tuple[Any, ...]]]:
        """Key of a request -> its cycles since the last call, as the fields of `CycleOutcome`."""
        return {
            key: [astuple(cycle) for cycle in cycles]
            for key, cycles in self._leeway().verifier.take().items()
        }

    def leeway_next_logits(self) -> list[float]:
        """The target's raw logits behind the last prompt that was read."""
        last = self._leeway().last_logits
        assert last is not None, "a prompt was read"
        logits: list[float] = last.float().tolist()
        return logits

    def _leeway(self) -> Rules:
        assert self.model_runner is not None and self.leeway is not None, "the model is loaded"
        return self.leeway


def end_with(parent: int) -> None:
    """End this server with all its processes at once when the process that started it has ended."""
    with suppress(ProcessLookupError):
        select.select([os.pidfd_open(parent)], [], [])
    os.killpg(os.getpgrp(), signal.SIGKILL)


def install(runner: Any) -> Rules:
    """Put the samplers that ask rules into a runner whose model is loaded. Raises RuntimeError, one
    line."""
    if type(runner).__module__.startswith("vllm.v1.worker.gpu."):
        raise RuntimeError(
            "the rules run in vLLM's V1 model runner alone: give VLLM_USE_V2_MODEL_RUNNER=0"
        )
    rules = Rules(runner)
    processor = getattr(runner.model, "logits_processor", None)
    if processor is not None:
        processor.register_forward_pre_hook(rules.hidden_hook)
    runner.sampler = PlainSampler(runner.sampler, rules)
    if getattr(runner, "rejection_sampler", None) is not None:
        runner.rejection_sampler = ChainSampler(runner.rejection_sampler, rules)
    return rules


@dataclass
class IdentifiedModel:
    """A model by its fingerprint, as far as a rule's files ask for it."""

    source: str
    fingerprint: str


class VllmTarget(IdentifiedModel):
    """The engine's target, as far as a rule may bind to it (`methods.rules.base.Rule.bind`)."""

    def __init__(self, runner: Any, source: str, fingerprint: str) -> None:
        super().__init__(source, fingerprint)
        self.model, self.device = runner.model, runner.device
        self.vocab_size = runner.vllm_config.model_config.get_vocab_size()

    @property
    def embedding(self) -> Tensor:
        """[V, H] input embeddings. Raises ValueError where this rank has a part of them."""
        weight: Tensor = (
            self.model.get_input_embeddings().weight
            if hasattr(self.model, "get_input_embeddings")
            else self.model.model.embed_tokens.weight
        )
        if len(weight) < self.vocab_size:
            raise ValueError(
                "the rule reads the target's embedding, of which each tensor-parallel rank has a "
                "part: take one device"
            )
        return weight[: self.vocab_size].detach()

    def head(self, hidden: Tensor) -> Tensor:
        """Final-norm states [..., H] -> logits [..., V] float32."""
        logits: Tensor = self.model.compute_logits(hidden.flatten(0, -2).to(self.embedding.dtype))
        return logits.float().unflatten(0, hidden.shape[:-1])


class Rules:
    """The rule of a worker's requests, and what it verifies in the rows of a V1 runner's batch.

    last_logits  [V] raw, of the last row without a draft.
    """

    def __init__(self, runner: Any) -> None:
        spec = runner.vllm_config.speculative_config
        length = spec.num_speculative_tokens if spec else 0
        self.runner = runner
        self.verifier = Verifier(
            length, length if spec and spec.method == "draft_model" else 0, runner.device
        )
        target, draft = json.loads(os.environ[MODELS])
        self.target = VllmTarget(runner, *target)
        self.draft = None if draft is None else IdentifiedModel(*draft)
        self.setting: ServedSetting | None = None
        self.last_logits: Tensor | None = None
        self._settings: dict[str, ServedSetting] = {}
        self._served: dict[str, Served] = {}
        self._last_hidden: Tensor | None = None

    def use(self, name: str, options: Mapping[str, Any], sampling: Mapping[str, Any]) -> None:
        """Bind the rule, once. Raises ValueError, OSError."""
        key = json.dumps([name, options, sampling])
        if key not in self._settings:
            rule: Any = parse(registry.rule(name), {"rule": options}, "rule").bind(
                self.target, self.draft
            )
            if rule.needs_draft_hidden():
                raise ValueError(
                    f"rule={name} reads the draft model's hidden states, which vLLM does not give"
                )
            self._settings[key] = ServedSetting(rule, Sampling(**sampling))
        self.setting = self._settings[key]

    def served(self, rows: int) -> list[Served | None] | None:
        """The requests of the batch, None for prompts that are read in parts. None where no request
        has all its prompt read, and when the engine warms up."""
        names, states = self.runner.input_batch.req_ids, self.runner.requests
        if len(names) != rows:
            return None
        if len(self._served) > 2 * len(states) + 64:
            self._served = {
                name: request for name, request in self._served.items() if name in states
            }
        unfinished = self.runner.discard_request_mask.np
        requests = [
            None if unfinished[place] else self._of(name, states[name])
            for place, name in enumerate(names)
        ]
        return requests if any(requests) else None

    def hidden(self, rows: int) -> Tensor | None:
        """[rows, H] final-norm states of the last forward, where the rule reads them."""
        states = self._last_hidden
        return states if states is not None and len(states) == rows else None

    def hidden_hook(self, _: Any, args: tuple[Any, ...]) -> None:
        """A forward pre-hook of the target's logits processor: its rows are those of the logits."""
        reads = self.setting is not None and self.setting.rule.needs_hidden()
        self._last_hidden = args[1] if reads else None

    def _of(self, name: str, state: Any) -> Served:
        if name not in self._served:
            assert self.setting is not None, "a rule is named before the first request"
            key = state.sampling_params.extra_args["leeway_key"]
            self._served[name] = self.verifier.request(
                key, self.setting, list(state.prompt_token_ids)
            )
        return self._served[name]


class PlainSampler(Sampler):
    """vLLM's sampler for batches without drafts: the rule's cycle with an empty draft."""

    def __init__(self, engine: Sampler, rules: Rules) -> None:
        torch.nn.Module.__init__(self)
        self.__dict__.update(engine.__dict__)
        self.rules = rules

    def forward(
        self,
        logits: Tensor,
        sampling_metadata: SamplingMetadata,
        predict_bonus_token: bool = False,
        logprobs_mode_override: Any = None,
    ) -> SamplerOutput:
        if (served := self.rules.served(len(logits))) is None:
            return super().forward(
                logits, sampling_metadata, predict_bonus_token, logprobs_mode_override
            )
        self.rules.last_logits = logits[-1]
        no_draft = logits.new_zeros(len(logits), dtype=torch.long)
        rows = Rows(logits, no_draft, range(len(logits)), [0] * len(served))
        tokens = self.rules.verifier.step(served, rows)
        number, logprobs = sampling_metadata.max_num_logprobs, None
        if number is not None:
            logprobs = self.gather_logprobs(
                self.compute_logprobs(logits), number, token_ids=tokens[:, 0]
            )
        return SamplerOutput(tokens.int(), logprobs)


class ChainSampler(RejectionSampler):
    """vLLM's rejection sampler; the rule verifies each request's draft."""

    def __init__(self, engine: RejectionSampler, rules: Rules) -> None:
        torch.nn.Module.__init__(self)
        self.__dict__.update(engine.__dict__)
        self.rules = rules

    def forward(
        self,
        metadata: SpecDecodeMetadata,
        draft_probs: Tensor | None,
        logits: Tensor,
        sampling_metadata: SamplingMetadata,
    ) -> SamplerOutput:
        if (served := self.rules.served(len(metadata.num_draft_tokens))) is None:
            return super().forward(metadata, draft_probs, logits, sampling_metadata)
        tokens = self.rules.verifier.step(served, self._rows(metadata, draft_probs, logits))
        logprobs = None
        if (number := sampling_metadata.max_num_logprobs) is not None:
            target = logits[metadata.target_logits_indices].float()
            bonus = logits[metadata.bonus_logits_indices].float()
            logprobs = self._get_logprobs_tensors(
                number, metadata, logits, target, bonus, tokens.int()
            )
        return SamplerOutput(tokens.int(), logprobs)

    def _rows(
        self, metadata: SpecDecodeMetadata, draft_probs: Tensor | None, logits: Tensor
    ) -> Rows:
        tokens = torch.full((len(logits),), -1, device=logits.device)
        drawn_at = metadata.target_logits_indices.long()
        tokens[drawn_at + 1] = metadata.draft_token_ids.long()
        starts = [0, *accumulate(count + 1 for count in metadata.num_draft_tokens[:-1])]
        q = None
        if draft_probs is not None:
            q = torch.ones(len(logits), draft_probs.shape[-1], device=logits.device)
            q[drawn_at] = draft_probs.float()
        hidden = self.rules.hidden(len(logits))
        return Rows(logits, tokens, starts, metadata.num_draft_tokens, q, hidden)
