"""Part `exact`: greedy answers equal those of transformers' own `generate`, and an answer depends
neither on its batch nor on CUDA graphs. (That sampling follows the target's law is shown by
`controls`: the answers are those of a CPU.)

In bfloat16 two correct programs may differ where the two largest logits are closer than rounding.
Each first difference is listed with their gap, also in spacings of the dtype's numbers there
(`steps`). It is a failure where the gap is wider than one spacing and wider than what rounding does
to the logits of that text: twice the largest difference between transformers' own logits in the
dtype and in float32, from the same weights."""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM

from bench.commands.open_cell import OpenCell
from bench.config.paths import TINY
from bench.run.timed import NEAR_TIE
from methods import registry
from methods.decode import Limits, Request, generate
from methods.engine import probe
from methods.engine.graphs import Graphs
from methods.engine.loading import load_model
from methods.engine.margin import next_logits, top2_margin
from methods.method import Method, autoregressive, build_method
from methods.sampling import Sampling

if TYPE_CHECKING:
    from bench.commands.gpu.part import Found, Machine, Row
    from methods.heads.head import Head

DTYPES = ("float32", "bfloat16")
SMALL: Mapping[str, Any] = {"total": 12, "depth": 3, "top_k": 3}
VOCABULARY = 512
SHARED: Mapping[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "max_position_embeddings": 1024,
    "initializer_range": 0.1,
    "bos_token_id": None,
    "eos_token_id": None,
    "pad_token_id": 0,
    "tie_word_embeddings": False,
}
SHAPES: Mapping[str, Mapping[str, Any]] = {
    "llama": {},
    "qwen3": {},
    "gemma3_text": {"sliding_window": 32, "query_pre_attn_scalar": 32},
    "gpt_oss": {
        "num_local_experts": 4,
        "num_experts_per_tok": 2,
        "sliding_window": 32,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
    },
}
"""model_type -> its own keys beside `SHARED`: two layers with random weights, windows shorter than
the prompts."""
HEAD = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_act": "silu",
    "rms_norm_eps": 1e-5,
}
PAIR = {
    "plain": "drafter=none",
    "chain": "drafter=model draft.length=5",
    "lookup": "drafter=prompt_lookup draft.length=5",
    "tree": "drafter=eagle3 drafter.total=16 drafter.depth=6 drafter.top_k=3",
    "medusa": "drafter=medusa",
}
"""Arm -> how the embedded pair drafts in it."""
EMBEDDED = "pair tiny"
NEW = {True: 16, False: 32}
"""New tokens of an answer, on tiny shapes or not."""


@dataclass(frozen=True, slots=True)
class Subject:
    """A model under test.

    stock    transformers' own copy of it, for `generate`.
    prompts  token ids.
    arms     name -> greedy method.
    new      new tokens of an answer.
    """

    name: str
    dtype: str
    stock: Any
    prompts: Sequence[list[int]]
    arms: Mapping[str, Method]
    new: int


def measure(machine: Machine, found: Found) -> None:
    """Fill `found`; see the module."""
    for dtype in DTYPES:
        for name in (EMBEDDED, *SHAPES):
            found.rows(
                machine,
                f"{name}, {dtype}: greedy tokens beside generate",
                "greedy tokens beside transformers.generate",
                partial(_compared, machine, found, name, dtype),
            )
    for dtype in DTYPES:
        for name in ("plain", "chain", "tree"):
            found.rows(
                machine,
                f"batches and graphs, {name}, {dtype}",
                "batches and graphs",
                partial(_together, machine, found, name, dtype),
            )


def _compared(machine: Machine, found: Found, name: str, dtype: str) -> Iterator[Row]:
    few = 2 if machine.tiny else 6
    subject = _pair(machine, dtype, few) if name == EMBEDDED else _random(machine, name, dtype, few)
    return _beside(subject, found)


def embedded(machine: Machine, dtype: str, arm: str, count: int) -> tuple[Method, list[list[int]]]:
    """The embedded pair with a drafter, greedy, and the token ids of the first prompts of a
    task."""
    opened = OpenCell.compose(
        [
            "pair=tiny",
            "task=mini_chat",
            "rule=lossless",
            "decoding.temperature=0",
            *PAIR[arm].split(),
            f"engine.dtype={dtype}",
            f"engine.device={machine.device}",
        ]
    )
    return opened.method, [opened.context(prompt) for prompt in opened.task.prompts(count, 0)]


def _pair(machine: Machine, dtype: str, few: int) -> Subject:
    arms = {name: embedded(machine, dtype, name, few) for name in PAIR}
    return Subject(
        EMBEDDED,
        dtype,
        _stock_tiny(machine, dtype),
        arms["plain"][1],
        {name: method for name, (method, _) in arms.items()},
        NEW[machine.tiny],
    )


def _stock_tiny(machine: Machine, dtype: str) -> Any:
    stock: Any = AutoModelForCausalLM.from_pretrained(TINY / "target", dtype=getattr(torch, dtype))
    return stock.to(machine.device).eval()


def _random(machine: Machine, kind: str, dtype: str, few: int) -> Subject:
    device = str(machine.device)
    with TemporaryDirectory() as folder:
        config = AutoConfig.for_model(kind, **{**SHARED, **SHAPES[kind]})
        config.save_pretrained(folder)
        target = load_model(f"random:{folder}", dtype=dtype, device=device)
        probe.check(target)  # a model that the program refuses is listed as such
        head_folder = Path(folder, "head")
        head_folder.mkdir()
        text = {**SHARED, **HEAD, "num_hidden_layers": 1, "draft_vocab_size": VOCABULARY}
        (head_folder / "config.json").write_text(json.dumps(text), encoding="utf-8")
        drafter = registry.drafter("eagle3")(**SMALL)
        head: Head = drafter.load(
            f"random:{head_folder}", target, revision=None, dtype=dtype, device=device
        )
    stock = (
        AutoModelForCausalLM.from_config(config, dtype=getattr(torch, dtype))
        .to(machine.device)
        .eval()
    )
    stock.load_state_dict(target.model.state_dict())
    greedy, rule = Sampling(0.0), registry.rule("greedy")()
    random = torch.Generator().manual_seed(0)
    # A repeated half gives prompt lookup something to find.
    prompts = [
        half * 2
        for size in torch.linspace(5, 60, few).long().tolist()
        for half in [torch.randint(1, VOCABULARY, (size,), generator=random).tolist()]
    ]
    arms = {
        "plain": autoregressive(target),
        "tree": build_method(target, head, drafter, rule, greedy, 4),
        "lookup": build_method(target, None, registry.drafter("prompt_lookup")(), rule, greedy, 5),
    }
    return Subject(f"random {kind}", dtype, stock, prompts, arms, NEW[machine.tiny])


def _beside(subject: Subject, found: Found) -> Iterator[Row]:
    """A row for each arm: answers equal to those of `generate`, and the widest gap at a first
    difference."""
    theirs = [_stock_answer(subject.stock, ids, subject.new) for ids in subject.prompts]
    for name, method in subject.arms.items():
        answers = [
            generate(method, [Request(ids, "gpu")], Limits(subject.new, frozenset()))[0].output_ids
            for ids in subject.prompts
        ]
        gaps = [
            _gap(method, subject.stock, ids, own, other)
            for ids, own, other in zip(subject.prompts, answers, theirs, strict=True)
            if own != other
        ]
        widest = max(gaps, key=lambda gap: gap.steps, default=None)
        yield {
            "model": subject.name,
            "dtype": subject.dtype,
            "arm": name,
            "answers": len(theirs),
            "equal": len(theirs) - len(gaps),
            "widest gap": None if widest is None else widest.logits,
            "in steps": None if widest is None else widest.steps,
        }
        found.failures += [
            f"{subject.name}, {subject.dtype}, {name}, beside generate: {gap}"
            for gap in gaps
            if gap.is_failure
        ]


def _stock_answer(stock: Any, ids: list[int], new: int) -> list[int]:
    tokens = torch.tensor([ids], device=stock.device)
    out = stock.generate(
        tokens,
        attention_mask=torch.ones_like(tokens),
        max_new_tokens=new,
        min_new_tokens=new,
        do_sample=False,
        eos_token_id=None,
        pad_token_id=0,
    )
    return list(out[0, len(ids) :].tolist())


@dataclass(frozen=True, slots=True)
class Gap:
    """Where two answers part: the token's place, how far apart the two largest logits are there,
    the same in spacings of the dtype's numbers, and what rounding does to logits there at most."""

    at: int
    logits: float
    steps: float
    rounding: float

    @property
    def is_failure(self) -> bool:
        return self.steps > 1 and self.logits > 2 * self.rounding

    def __str__(self) -> str:
        return (
            f"token {self.at} differs where the two largest logits are {self.logits:.3g} apart; "
            f"rounding moves them by at most {self.rounding:.2g}"
        )


@torch.inference_mode()
def _rounding(stock: Any, ids: list[int]) -> float:
    """The largest difference between the model's logits in its dtype and in float32, over all
    places of `ids`; half of `NEAR_TIE` in float32. Over all places: rounding makes a mixture of
    experts choose another expert at few of them."""
    if stock.dtype == torch.float32:
        return NEAR_TIE / 2
    tokens = torch.tensor([ids], device=stock.device)
    exact = copy.deepcopy(stock).float()
    return float((stock(tokens).logits[0].float() - exact(tokens).logits[0]).abs().max())


def _gap(method: Method, stock: Any, ids: list[int], own: list[int], other: list[int]) -> Gap:
    at = next(
        place for place, pair in enumerate(zip(own, other, strict=True)) if pair[0] != pair[1]
    )
    logits = next_logits(method.target, [*ids, *own[:at]])
    margin, dtype = top2_margin(logits), method.target.model.dtype
    spacing = torch.finfo(dtype).eps * 2.0 ** math.floor(math.log2(float(logits.abs().max())))
    return Gap(at, margin, margin / spacing, _rounding(stock, [*ids, *own[:at]]))


def use_graphs(method: Method, on: bool) -> None:
    """Record the forwards of target and drafter as CUDA graphs from now on, or not."""
    method.target.graphs = Graphs() if on else None
    if method.model is not None:
        method.model.graphs = method.target.graphs


def _together(machine: Machine, found: Found, drafter: str, dtype: str) -> Iterator[Row]:
    """Answers in batches of 1, 8 and 64, with and without graphs, beside those of the largest batch
    without."""
    method, prompts = embedded(machine, dtype, drafter, 8 if machine.tiny else 64)
    limits, usual = Limits(NEW[machine.tiny], frozenset()), None
    stock = _stock_tiny(machine, dtype)
    for graphs in (False,) if machine.tiny else (False, True):
        use_graphs(method, graphs)
        for rows in (8, 1) if machine.tiny else (64, 8, 1):
            some = prompts[: {64: 64, 8: 16, 1: 8}[rows]]
            requests = [Request(ids, f"gpu/{number}") for number, ids in enumerate(some)]
            answers = [
                answer.output_ids
                for first in range(0, len(some), rows)
                for answer in generate(method, requests[first : first + rows], limits)
            ]
            usual = usual or answers
            gaps = [
                _gap(method, stock, ids, own, other)
                for ids, own, other in zip(some, answers, usual, strict=False)
                if own != other
            ]
            yield {
                "draft": drafter,
                "dtype": dtype,
                "batch": rows,
                "graphs": "on" if graphs else "off",
                "answers": len(some),
                "other tokens": len(gaps),
                "widest gap in steps": max((gap.steps for gap in gaps), default=None),
            }
            found.failures += [
                f"{drafter}, {dtype}, batch {rows}, graphs {'on' if graphs else 'off'}: {gap}"
                for gap in gaps
                if gap.is_failure
            ]
