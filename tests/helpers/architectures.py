"""Small random models of transformers' causal architectures, and what the engine does with them."""

from __future__ import annotations

import random
import re
from pathlib import Path
from typing import Any

import torch
import yaml
from transformers import AutoConfig, AutoModelForCausalLM

from methods import registry
from methods.decode import Limits, Request, generate
from methods.engine import probe
from methods.engine.language_model import LanguageModel
from methods.engine.source import ModelError
from tests.helpers.decoding import method_on
from tests.helpers.tiny_models import NoTokenizer, model_of

SMALL = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))


def config_of(kind: str, **changes: Any) -> Any:
    """A small configuration of an architecture; `changes` win."""
    shape = AutoConfig.for_model(kind).get_text_config(decoder=True)
    keys = shape.to_dict()
    given = {key: value for key, value in SMALL["sizes"].items() if key in keys}
    if "qk_rope_head_dim" in keys:  # heads are all alike; head_dim is that of their rotated part
        given |= {"num_key_value_heads": 4, "head_dim": 8}
    given |= {
        key: size for key in keys for part, size in SMALL["parts"].items() if key.endswith(part)
    }
    given |= {"eos_token_id": 1, "bos_token_id": 2, "pad_token_id": 0}
    return AutoConfig.for_model(kind, **given | SMALL["own"].get(kind, {}) | changes)


def random_model(config: Any, seed: int = 0) -> LanguageModel:
    """A float32 model whose choices are clear-cut. Raises what transformers raises."""
    torch.manual_seed(seed)
    with torch.device("meta"):
        shape = AutoModelForCausalLM.from_config(config)
    size = sum(weight.numel() for weight in shape.parameters())
    if size > 20_000_000:
        raise ValueError(f"{size} parameters: too large")
    model = model_of(config)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if weight.ndim > 1 and "conv" not in name:
                weight.normal_(0, 0.35)
            elif "sinks" in name:
                weight.normal_(2, 1)
    return LanguageModel(config.model_type, model, NoTokenizer(), f"{config.model_type} {seed}")


DRAFTERS = (
    ("none", {}, 1),
    ("prompt_lookup", {}, 5),
    ("model", {}, 5),
    ("model", {"branching": [2, 2]}, 2),
    ("lookahead", {}, 5),
)
LENGTHS = (5, 20, 30)


def wrong_answers(model: LanguageModel, new: int = 12) -> tuple[list[str], set[str]]:
    """Greedy answers of a probed model that are not those of transformers' full forward, and the
    lines in which methods were refused."""
    draw = random.Random(1)
    rows = [[draw.randrange(8, 200) for _ in range(length)] for length in LENGTHS]
    with probe.unmodified(model.model):
        want = [_greedy(model, row, new)[len(row) :] for row in rows]
    wrong, refused = [], set()
    for name, options, length in DRAFTERS:
        for group in ([0], [1], [0, 1, 2]):
            try:
                draft = model if name == "model" else None
                drafter = registry.drafter(name)(**options)
                method = method_on(model, draft, drafter, length=length)
                answers = generate(
                    method, [Request(rows[i], str(i)) for i in group], Limits(new, model.eos_ids)
                )
            except ModelError as error:
                refused.add(str(error))
                continue
            wrong += [
                f"{name}{options or ''}, {LENGTHS[i]} tokens, batch of {len(group)}"
                for i, answer in zip(group, answers, strict=True)
                if answer.output_ids != want[i]
            ]
    return wrong, refused


@torch.no_grad()
def _greedy(model, row, count):
    for _ in range(count):
        row = [*row, int(model.model(torch.tensor([row]), use_cache=False).logits[0, -1].argmax())]
        if row[-1] in model.eos_ids:
            break
    return row


def outcome(kind: str) -> str:
    """What the engine does with an architecture, in words. Raises what transformers raises for one
    that cannot be made small."""
    model = random_model(config_of(kind))
    try:
        found = model.findings = probe.probe(model)
    except ModelError as error:
        if "own forward of it fails" in str(error):
            raise
        return f"refused: {_reason(str(error))}"
    wrong, _ = wrong_answers(model)
    if wrong:
        return f"WRONG: {wrong[0]}"
    findings = {"trees": found.trees, "hidden states": found.states}
    lacking = " and no ".join(name for name, why in findings.items() if why)
    return f"right, but no {lacking}" if lacking else "right"


def _reason(line):
    """A line of refusal without what differs from model to model."""
    line = re.sub(
        r"^\S+: |; give engine=vllm.*| \([^()]*tokens read[^()]*\)|: [\d.]+% off", "", line
    )
    return re.sub(r"(does not run on this engine's cache).*", r"\1", line)
