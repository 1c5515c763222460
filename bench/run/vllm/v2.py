"""The samplers of vLLM's V2 runner, which GPUs take. Not run on a GPU: tests put tensors made by hand through them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import torch
from vllm.v1.worker.gpu.sample.sampler import Sampler
from vllm.v1.worker.gpu.spec_decode.rejection_sampler import RejectionSampler

from bench.run.vllm.requests import check_signatures
from methods.serving import Rows, Served

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor

    from bench.run.vllm.recorder import Recorder
    from bench.run.vllm.requests import Requests

SIGNATURES = {
    RejectionSampler.__call__: "self logits input_batch draft_logits invalid_drafts",
    RejectionSampler._verify:
        "self logits draft_logits draft_sampled pos cu_num_logits idx_mapping idx_mapping_np expanded_idx_mapping "
        "expanded_local_pos seq_lens_upper_bound_np verify_draft_sampled",
    Sampler.add_request: "self req_idx sampling_params",
    Sampler.sample:
        "self logits expanded_idx_mapping idx_mapping idx_mapping_np pos input_ids expanded_local_pos "
        "seq_lens_upper_bound_np return_logprobs",
}


def install(runner: Any, requests: Requests, recorder: Recorder) -> None:
    """Replace a V2 runner's samplers. Raises RuntimeError, one line, for what they cannot do there."""
    check_signatures(SIGNATURES)
    if requests.is_drawn:
        raise RuntimeError("the V2 runner of vLLM keeps the draft's distribution in another form: give "
                           "draft_sample_method=greedy, or VLLM_USE_V2_MODEL_RUNNER=0")
    batch = Batch(runner, requests)
    runner.sampler = PlainSampler(runner.sampler, batch, recorder)
    if runner.rejection_sampler is not None:
        runner.rejection_sampler = ChainSampler(runner.rejection_sampler, runner.sampler, batch, recorder)


class Batch:
    """The rows of a V2 runner's batch, which are named by places in the runner's state."""

    def __init__(self, runner: Any, requests: Requests) -> None:
        self.states, self.requests = runner.req_states, requests
        self.params: dict[int, Any] = {}

    def served(self, places: np.ndarray, lengths: np.ndarray) -> list[Served | None] | None:
        """As `extension.Batch.served`; `lengths`: tokens of each request once this step is done."""
        states = self.states
        self.requests.tidy(states.req_id_to_index)
        found = [self._of(place) if length >= states.prefill_len.np[place] else None
                 for place, length in zip(places.tolist(), lengths.tolist(), strict=True)]
        return found if any(one is not None for one in found) else None

    def _of(self, place: int) -> Served | None:
        name = self.states.index_to_req_id.get(place)
        if name is None or place not in self.params:
            return None
        count = int(self.states.prompt_len.np[place])
        return self.requests.of(name, self.params[place],
                                lambda: self.states.all_token_ids.gpu[place, :count].tolist())


class PlainSampler(Sampler):
    """vLLM's V2 sampler for batches without drafts; where a request has a rule, its cycle with an empty draft."""

    def __init__(self, engine: Sampler, batch: Batch, recorder: Recorder) -> None:
        self.__dict__.update(engine.__dict__)
        self.batch, self.recorder = batch, recorder

    def add_request(self, req_idx: int, sampling_params: Any) -> None:
        self.batch.params[req_idx] = sampling_params
        super().add_request(req_idx, sampling_params)

    def sample(self, logits: Tensor, expanded_idx_mapping: Tensor, idx_mapping: Tensor, idx_mapping_np: np.ndarray,
               pos: Tensor, input_ids: Tensor, expanded_local_pos: Tensor, seq_lens_upper_bound_np: np.ndarray,
               return_logprobs: bool = False) -> tuple[Tensor, Tensor]:
        with self.recorder.clock():
            self.recorder.last_logits = logits[-1]
            served = self.batch.served(idx_mapping_np, seq_lens_upper_bound_np)
            if served is not None:
                rows = Rows(logits, torch.full_like(input_ids, -1, dtype=torch.long), range(len(logits)),
                            [0] * len(served))
                tokens = self.batch.requests.verifier.step(served, rows)[:, 0]
                if all(one is not None for one in served):
                    return tokens, logits
            sampled, processed = super().sample(
                logits.clone(), expanded_idx_mapping, idx_mapping, idx_mapping_np, pos, input_ids, expanded_local_pos,
                seq_lens_upper_bound_np, return_logprobs=return_logprobs)
            for row, one in enumerate(served or ()):
                if one is not None:
                    sampled[row] = tokens[row]
            return sampled, processed


class ChainSampler(RejectionSampler):
    """vLLM's V2 rejection sampler; where a request has a rule, the rule verifies its draft."""

    def __init__(self, engine: RejectionSampler, sampler: Sampler, batch: Batch, recorder: Recorder) -> None:
        self.__dict__.update(engine.__dict__)
        self.sampler, self.batch, self.recorder = sampler, batch, recorder
        self._counts: list[int] = []

    def __call__(self, logits: Tensor, input_batch: Any, draft_logits: Tensor | None = None,
                 invalid_drafts: Tensor | None = None) -> Any:
        cumulative: Sequence[int] = input_batch.cu_num_logits_np.tolist()
        self._counts = [end - start - 1 for start, end in pairwise(cumulative)]
        with self.recorder.clock():
            return super().__call__(logits, input_batch, draft_logits, invalid_drafts)

    def _verify(self, logits: Tensor, draft_logits: Tensor | None, draft_sampled: Tensor, pos: Tensor,
                cu_num_logits: Tensor, idx_mapping: Tensor, idx_mapping_np: np.ndarray, expanded_idx_mapping: Tensor,
                expanded_local_pos: Tensor, seq_lens_upper_bound_np: np.ndarray,
                verify_draft_sampled: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """One chunk of the batch, whose requests follow those of the chunk before."""
        drafts, self._counts = self._counts[:len(idx_mapping_np)], self._counts[len(idx_mapping_np):]
        served = self.batch.served(idx_mapping_np, seq_lens_upper_bound_np)
        own = [place for place, one in enumerate(served or ()) if one is None]
        engine = None
        if served is None or own:
            engine = super()._verify(logits.clone(), draft_logits, draft_sampled, pos, cu_num_logits, idx_mapping,
                                     idx_mapping_np, expanded_idx_mapping, expanded_local_pos,
                                     seq_lens_upper_bound_np, verify_draft_sampled)
        if served is None:
            assert engine is not None
            return engine
        starts = [sum(drafts[:place]) + place for place in range(len(drafts))]
        hidden = self.batch.requests.last_hidden
        rows = Rows(logits, verify_draft_sampled.long(), starts, drafts,
                    hidden=hidden if hidden is not None and len(hidden) == len(logits) else None)
        step = self.batch.requests.verifier.step(served, rows)
        tokens = step.new_full((len(served), self.num_speculative_steps + 1), -1)
        tokens[:, :step.shape[1]] = step
        count = (tokens >= 0).sum(1, dtype=torch.int32)
        if own and engine is not None:
            tokens[own], count[own] = engine[1][own].to(tokens.dtype), engine[2][own].to(count.dtype)
        return logits if engine is None else engine[0], tokens, count
