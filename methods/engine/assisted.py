"""Record what transformers' assisted generation verifies: the probabilities, the drafted and the emitted tokens.

A random pair with a vocabulary of eight tokens keeps the records small. The function that verifies,
`_speculative_sampling` of transformers.generation.utils, is watched from outside while `generate` runs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from unittest import mock

import torch
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.generation import utils

VOCAB, DRAFTED, NEW = 8, 3, 24


def _model(layers: int, seed: int) -> Any:  # transformers' own types do not fit each other here
    torch.manual_seed(seed)
    model = LlamaForCausalLM(LlamaConfig(
        vocab_size=VOCAB, hidden_size=32, intermediate_size=48, num_hidden_layers=layers, num_attention_heads=4,
        max_position_embeddings=64, bos_token_id=None, eos_token_id=None, pad_token_id=0)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter.normal_(0, 0.2)
    return model


def record(cycles: int, weight: float | None, seed: int = 0) -> Iterator[dict[str, Any]]:
    """`cycles` records {p, q, drafted, emitted} of assisted generation at temperature 1, `weight` being
    `assistant_ensemble_weight` (None: lossless). Probabilities have five decimals."""
    target, assistant = _model(2, 1), _model(1, 2)
    assistant.generation_config.num_assistant_tokens = DRAFTED
    assistant.generation_config.num_assistant_tokens_schedule = "constant"
    assistant.generation_config.assistant_confidence_threshold = 0.0
    verify, seen = utils._speculative_sampling, []

    def watched(ids: Tensor, draft_logits: Tensor, length: int, logits: Tensor, **options: Any) -> Any:
        tokens, matches = verify(ids, draft_logits, length, logits, **options)
        seen.append({"p": _rows(logits), "q": _rows(draft_logits), "drafted": ids[0, ids.shape[1] - length:].tolist(),
                     "emitted": tokens[0].tolist()})
        return tokens, matches

    torch.manual_seed(seed)
    done = 0
    with mock.patch.object(utils, "_speculative_sampling", watched), torch.inference_mode():
        while done < cycles:
            target.generate(torch.randint(VOCAB, (1, 4)), assistant_model=assistant, do_sample=True, temperature=1.0,
                            top_k=0, top_p=1.0, max_new_tokens=NEW, assistant_ensemble_weight=weight,
                            attention_mask=torch.ones(1, 4, dtype=torch.long))
            for found in seen[:cycles - done]:
                yield found
                done += 1
            seen.clear()


def _rows(logits: Tensor) -> list[list[float]]:
    return [[round(x, 5) for x in row] for row in logits[0].softmax(-1).tolist()]
