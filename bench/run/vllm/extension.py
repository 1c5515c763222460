"""vLLM's worker, extended by this project's rules: `--worker-extension-cls bench.run.vllm.extension.RuleWorker`.

vLLM mixes the class into its worker. It replaces the runner's samplers by subclasses that ask a request's rule, and
patches nothing: a request without a rule takes vLLM's own path. Runs in vLLM's environment (docs/serving.md)."""

from __future__ import annotations

import os
import select
import signal
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.outputs import LogprobsTensors, SamplerOutput
from vllm.v1.sample.rejection_sampler import RejectionSampler
from vllm.v1.sample.sampler import Sampler

from bench.run.vllm.admission import Offer
from bench.run.vllm.requests import Known, Refused, Requests, Target, check_signatures
from bench.run.vllm.scheduler import RuleScheduler
from methods.engine.fingerprints import fingerprint
from methods.serving import Rows, Served

if TYPE_CHECKING:
    from torch import Tensor
    from vllm.v1.sample.metadata import SamplingMetadata
    from vllm.v1.spec_decode.metadata import SpecDecodeMetadata

SIGNATURES: dict[Callable[..., Any], str] = {
    RejectionSampler.forward: "self metadata draft_probs logits sampling_metadata",
    RejectionSampler._get_logprobs_tensors:
        "self max_num_logprobs metadata logits target_logits bonus_logits sampled_token_ids",
    Sampler.forward: "self logits sampling_metadata predict_bonus_token logprobs_mode_override",
    Sampler.gather_logprobs: "logprobs num_logprobs token_ids",
    Scheduler.schedule: "self throttle_prefills",
    Scheduler._preempt_request: "self request timestamp drop_stale_output",
    Scheduler._reserve_prefill_lookahead: "self request num_computed_tokens num_new_tokens",
    Scheduler.update_from_output: "self scheduler_output model_runner_output",
}


PARENT = "LEEWAY_PARENT"
"""Names the process with which a server of `engine=vllm` ends."""


class RuleWorker:
    """Mixed into vLLM's worker, whose `model_runner` it watches. Its other names are calls for `collective_rpc`."""

    leeway_requests: Requests | None = None

    @property
    def model_runner(self) -> Any:
        runner = self.__dict__.get("_leeway_runner")
        if runner is not None and self.leeway_requests is None and getattr(runner, "model", None) is not None:
            self.leeway_requests = install(runner)
        return runner

    @model_runner.setter
    def model_runner(self, runner: Any) -> None:
        self.__dict__["_leeway_runner"] = runner
        if PARENT in os.environ:
            threading.Thread(target=end_with, args=(int(os.environ[PARENT]),), daemon=True).start()

    def leeway_start(self, target: list[str], draft: list[str] | None) -> None:
        """Source and fingerprint of the models that rules bind to. For this project's own requests alone: what a server
        refuses for others on it is taken from then on, and every cycle is kept for `leeway_take`."""
        requests = self._leeway()
        requests.offer = replace(requests.offer, is_ours=True)
        assert requests.target is not None
        requests.target.source, requests.target.fingerprint = target
        requests.draft = None if draft is None else Known(*draft)
        requests.verifier.record = True

    def leeway_take(self) -> dict[str, list[tuple[Any, ...]]]:
        """Key of a request -> its cycles since the last call, as the fields of `CycleOutcome`."""
        taken = self._leeway().verifier.take()
        return {key: [(one.kept, one.tokens, one.relaxed, one.greedier, one.flags, one.nodes, one.levels)
                      for one in cycles] for key, cycles in taken.items()}

    def leeway_refusals(self) -> list[str]:
        """Why requests since the last call ended with an error."""
        requests = self._leeway()
        reasons, requests.refusals = requests.refusals, []
        return reasons

    def leeway_record(self, cycles: int | None) -> list[dict[str, Any]]:
        """Begin to record the next `cycles` verified drafts, of rules and of the engine's own sampler; None ends it.
        Returns what was recorded so far (docs/serving.md)."""
        return self._leeway().recorder.restart(cycles)

    def leeway_next_logits(self) -> list[float]:
        """The target's raw logits behind the last prompt that was read."""
        last = self._leeway().recorder.last_logits
        assert last is not None, "a prompt was read"
        logits: list[float] = last.float().tolist()
        return logits

    def _leeway(self) -> Requests:
        assert self.model_runner is not None and self.leeway_requests is not None, "the model is loaded"
        return self.leeway_requests


def end_with(parent: int) -> None:
    """End this server with all its processes at once when the process that started it has ended."""
    with suppress(ProcessLookupError):
        select.select([os.pidfd_open(parent)], [], [])
    os.killpg(os.getpgrp(), signal.SIGKILL)


def install(runner: Any) -> Requests:
    """Put the samplers that ask rules into a runner whose model is loaded. Raises RuntimeError, one line."""
    check_signatures(SIGNATURES)
    if runner.vllm_config.model_config.logprobs_mode.startswith("processed"):
        raise RuntimeError("the rules give raw log-probabilities alone: leave out --logprobs-mode")
    config = runner.vllm_config
    if config.scheduler_config.get_scheduler_cls() is not RuleScheduler:
        raise RuntimeError("a preempted request needs its draft again: give "
                           "--scheduler-cls bench.run.vllm.scheduler.RuleScheduler")
    if type(runner).__module__.startswith("vllm.v1.worker.gpu."):
        raise RuntimeError("the rules run in vLLM's V1 model runner alone: give VLLM_USE_V2_MODEL_RUNNER=0")
    spec = config.speculative_config
    requests = Requests(Offer.of(config), spec.num_speculative_tokens if spec else 0, runner.device)
    source = config.model_config.model
    try:
        known = Known(source, fingerprint(source, config.model_config.revision))
    except ValueError:
        known = Known(source, "unknown")
    requests.target = Target(runner.model, known, config.model_config.get_vocab_size(), runner.device)
    processor = getattr(runner.model, "logits_processor", None)
    if processor is not None:
        processor.register_forward_pre_hook(requests.hidden_hook)
    requests.prepare()
    batch = Batch(runner, requests)
    runner.sampler = PlainSampler(runner.sampler, batch)
    if getattr(runner, "rejection_sampler", None) is not None:
        runner.rejection_sampler = ChainSampler(runner.rejection_sampler, batch)
    return requests


class Batch:
    """The rows of a V1 runner's batch."""

    def __init__(self, runner: Any, requests: Requests) -> None:
        self.runner, self.requests = runner, requests

    def served(self, rows: int) -> list[Served | None] | None:
        """The requests of the batch, None for those that keep the engine's sampler and for prompts that are read in
        parts. None where no rule has a part in it, such as when the engine warms up."""
        names = self.runner.input_batch.req_ids
        if len(names) != rows:
            return None
        self.requests.tidy(self.runner.requests)
        unfinished = self.runner.discard_request_mask.np
        found = [self._of(place, name) for place, name in enumerate(names)]
        found = [None if unfinished[place] else one for place, one in enumerate(found)]
        return found if any(one is not None for one in found) else None

    def step(self, served: Sequence[Served | None], rows: Rows) -> Tensor:
        """As `Verifier.step`; where a rule fails, vLLM throws the row away, and the scheduler ends the request."""
        tokens = self.requests.verifier.step(served, rows)
        for place, one in enumerate(served):
            if one is not None and one.failure is not None:
                self._drop(place)
                self.requests.refused(one.failure)
        return tokens.clamp(min=0) if tokens.shape[1] == 1 else tokens

    def engines_own(self, served: Sequence[Served | None]) -> list[int]:
        """The places whose tokens the engine's sampler draws."""
        unfinished = self.runner.discard_request_mask.np
        return [place for place, one in enumerate(served) if one is None and not unfinished[place]]

    def params(self, place: int) -> Any:
        """The SamplingParams of a row."""
        return self.runner.requests[self.runner.input_batch.req_ids[place]].sampling_params

    def _of(self, place: int, name: str) -> Served | None:
        state = self.runner.requests[name]
        try:
            found = self.requests.of(name, state.sampling_params, lambda: list(state.prompt_token_ids or ()))
        except Refused:
            self._drop(place)
            return None
        if found is not None:  # vLLM turns it back where it drops a row, which no generator of a CPU can
            self.runner.input_batch.generators.pop(place, None)
        return found

    def _drop(self, place: int) -> None:
        self.runner.discard_request_mask.np[place] = True
        self.runner.input_batch.generators.pop(place, None)


class PlainSampler(Sampler):
    """vLLM's sampler for batches without drafts; where a request has a rule, its cycle with an empty draft."""

    def __init__(self, engine: Sampler, batch: Batch) -> None:
        torch.nn.Module.__init__(self)
        self.__dict__.update(engine.__dict__)
        self.batch, self.recorder = batch, batch.requests.recorder

    def forward(self, logits: Tensor, sampling_metadata: SamplingMetadata, predict_bonus_token: bool = False,
                logprobs_mode_override: Any = None) -> SamplerOutput:
        def engine() -> SamplerOutput:
            return super(PlainSampler, self).forward(logits.clone(), sampling_metadata, predict_bonus_token,
                                                     logprobs_mode_override)

        if predict_bonus_token:
            return engine()
        self.recorder.last_logits = logits[-1]
        if (served := self.batch.served(len(logits))) is None:
            return engine()
        rows = Rows(logits, logits.new_zeros(len(logits), dtype=torch.long), range(len(logits)), [0] * len(served))
        tokens = self.batch.step(served, rows)
        if own := self.batch.engines_own(served):
            tokens[own] = engine().sampled_token_ids[own].long()
        return SamplerOutput(tokens.int(), self._logprobs(logits, sampling_metadata.max_num_logprobs, tokens))

    def _logprobs(self, logits: Tensor, number: int | None, tokens: Tensor) -> LogprobsTensors | None:
        if number is None:
            return None
        raw = self.compute_logprobs(logits)
        if number == -1:
            return LogprobsTensors(torch.empty(0), raw, torch.empty(0))
        return self.gather_logprobs(raw, number, token_ids=tokens[:, 0])


class ChainSampler(RejectionSampler):
    """vLLM's rejection sampler; where a request has a rule, the rule verifies its draft."""

    def __init__(self, engine: RejectionSampler, batch: Batch) -> None:
        torch.nn.Module.__init__(self)
        self.__dict__.update(engine.__dict__)
        self.batch, self.recorder = batch, batch.requests.recorder

    def forward(self, metadata: SpecDecodeMetadata, draft_probs: Tensor | None, logits: Tensor,
                sampling_metadata: SamplingMetadata) -> SamplerOutput:
        served = self.batch.served(len(metadata.num_draft_tokens))
        own = None if served is None else self.batch.engines_own(served)
        engine = None
        if own is None or own:
            engine = super().forward(metadata, draft_probs, logits, sampling_metadata)
        if served is None and not self.recorder.is_open:
            return engine
        rows = self._rows(metadata, draft_probs, logits)
        if engine is not None and len(self.batch.runner.input_batch.req_ids) == len(rows.starts):
            self.recorder.engines_cycles(own, rows, engine.sampled_token_ids, self.batch.params)
        if served is None:
            return engine
        tokens = self.batch.step(served, rows)
        if own and engine is not None:
            tokens[own] = engine.sampled_token_ids[own].long()
        logprobs = None
        if (number := sampling_metadata.max_num_logprobs) is not None:
            target, bonus = (logits[index].float() for index in (metadata.target_logits_indices,
                                                                 metadata.bonus_logits_indices))
            logprobs = self._get_logprobs_tensors(number, metadata, logits, target, bonus, tokens.int())
        return SamplerOutput(tokens.int(), logprobs)

    def _rows(self, metadata: SpecDecodeMetadata, draft_probs: Tensor | None, logits: Tensor) -> Rows:
        tokens = torch.full((len(logits),), -1, device=logits.device)
        drawn_at = metadata.target_logits_indices.long()
        tokens[drawn_at + 1] = metadata.draft_token_ids.long()
        starts, row = [], 0
        for count in metadata.num_draft_tokens:
            starts.append(row)
            row += count + 1
        q = None if draft_probs is None else torch.ones(
            len(logits), draft_probs.shape[-1], device=logits.device).index_copy(0, drawn_at, draft_probs.float())
        hidden = self.batch.requests.last_hidden
        return Rows(logits, tokens, starts, metadata.num_draft_tokens, q,
                    hidden if hidden is not None and len(hidden) == len(logits) else None)
