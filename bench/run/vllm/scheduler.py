"""vLLM's scheduler for requests with rules: `--scheduler-cls
bench.run.vllm.scheduler.RuleScheduler`.

vLLM drops the draft of a request that makes room for others (preemption), and cuts drafts off where
a step has no room for all of them. A rule then decides about another draft than it would alone, and
the answer changes. Here a preempted request keeps its draft: what it had is read again but for the
last token, which comes with the draft in the next step. A draft is verified whole or waits. Runs in
vLLM's environment."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.request import RequestStatus

if TYPE_CHECKING:
    from vllm.v1.core.sched.output import SchedulerOutput
    from vllm.v1.request import Request


class RuleScheduler(Scheduler):
    """Drafts are known here without asynchronous scheduling alone."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if self.scheduler_config.async_scheduling:
            raise ValueError(
                "the rules need each draft in the scheduler: give --no-async-scheduling"
            )
        self._kept: dict[str, list[int]] = {}
        self._drafts: dict[str, list[int]] = {}

    def schedule(self, throttle_prefills: bool = False) -> SchedulerOutput:
        for name in self._kept.keys() - self.requests.keys():
            del self._kept[name]
        for name, draft in self._kept.items():
            if self.requests[name].status == RequestStatus.RUNNING:
                self.requests[name].spec_token_ids = draft
        self._drafts = {request.request_id: request.spec_token_ids for request in self.running}
        output = super().schedule(throttle_prefills)
        for name in self._kept.keys() & output.scheduled_spec_decode_tokens.keys():
            places = len(output.scheduled_spec_decode_tokens[name])
            padded = self._kept.pop(name) + [-1] * places  # vLLM pads a resumed one
            output.scheduled_spec_decode_tokens[name] = padded[:places]
        return output

    def _preempt_request(
        self, request: Request, timestamp: float, drop_stale_output: bool = False
    ) -> None:
        if draft := self._drafts.get(request.request_id) or request.spec_token_ids:
            self._kept[request.request_id] = list(draft)
        super()._preempt_request(request, timestamp, drop_stale_output)

    def _reserve_prefill_lookahead(
        self, request: Request, num_computed_tokens: int, num_new_tokens: int
    ) -> int:
        """Tokens to read in this step, at most `num_new_tokens`; the last one of a request not
        without its draft."""
        new = super()._reserve_prefill_lookahead(request, num_computed_tokens, num_new_tokens)
        draft = self._kept.get(request.request_id) or request.spec_token_ids
        whole = min(request.num_tokens + len(draft), self.max_model_len - 1) - num_computed_tokens
        if not draft or new >= whole or 1 + len(draft) > self.max_num_scheduled_tokens:
            return new
        return min(new, request.num_tokens - 1 - num_computed_tokens)
