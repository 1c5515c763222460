"""Runs in vLLM's environment: the samplers of the V2 runner with tensors made by hand, beside the V1 rows."""

from __future__ import annotations

import json
from types import SimpleNamespace

import numpy as np
import torch
from vllm import SamplingParams

from bench.run.vllm import v2
from bench.run.vllm.recorder import Recorder
from bench.run.vllm.requests import Known, Requests, Target, check_signatures
from methods.serving import Rows

K, VOCAB = 3, 16
NAMES = ["a", "b"]
PARAMS = [SamplingParams(temperature=1.0, extra_args={"leeway": "rule=mars rule.theta=0.5", "leeway_key": "0/a"}),
          SamplingParams(temperature=0.0, extra_args={"leeway": "rule=lossless", "leeway_key": "0/b"})]


def requests() -> Requests:
    found = Requests("ngram", K, False, torch.device("cpu"))
    found.target = Target(None, Known("toy", "0"), VOCAB, torch.device("cpu"))
    return found


def runner() -> SimpleNamespace:
    states = SimpleNamespace(
        prefill_len=SimpleNamespace(np=np.array([2, 2])), prompt_len=SimpleNamespace(np=np.array([2, 2])),
        index_to_req_id=dict(enumerate(NAMES)), req_id_to_index={name: place for place, name in enumerate(NAMES)},
        all_token_ids=SimpleNamespace(gpu=torch.tensor([[1, 2], [3, 4]])))
    return SimpleNamespace(req_states=states, sampler=SimpleNamespace(),
                           rejection_sampler=SimpleNamespace(num_speculative_steps=K))


def main() -> None:
    generator = torch.Generator().manual_seed(0)
    first, second = torch.randn(2, VOCAB, generator=generator), torch.randn(6, VOCAB, generator=generator)
    drafted = torch.tensor([-1, 5, 6, 7, -1, int(second[4].argmax())])
    own, one = requests(), runner()
    v2.install(one, own, Recorder(own))
    one.sampler.batch.params.update(enumerate(PARAMS))
    places, lengths = np.array([0, 1]), np.array([2, 2])
    tokens, _ = one.sampler.sample(first, None, None, places, None, torch.zeros(2, dtype=torch.int32), None, lengths)
    one.rejection_sampler._counts = [3, 1]
    _, sampled, count = one.rejection_sampler._verify(second, None, drafted, None, None, None, places, None, None,
                                                      lengths + 4, drafted)
    other = requests()
    served = [other.of(name, params, lambda: [1, 2]) for name, params in zip(NAMES, PARAMS, strict=True)]
    expected = other.verifier.step(served, Rows(first, torch.full((2,), -1), [0, 1], [0, 0]))
    chains = other.verifier.step(served, Rows(second, drafted, [0, 4], [3, 1]))
    same = tokens.tolist() == expected[:, 0].tolist() and sampled.tolist() == chains.tolist()
    same = same and count.tolist() == (chains >= 0).sum(1).tolist() and int(count[1]) == 2
    drawn = requests()
    drawn.is_drawn = True
    try:
        v2.install(runner(), drawn, Recorder(drawn))
        refused = False
    except RuntimeError as error:
        refused = "draft_sample_method=greedy" in str(error)
    try:
        check_signatures({v2.Sampler.sample: "self logits"})
        signatures = False
    except RuntimeError as error:
        signatures = "has other arguments here" in str(error)
    print(json.dumps({"same": same, "refused": refused, "signatures": signatures}))


if __name__ == "__main__":
    main()
