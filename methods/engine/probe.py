"""Before a model decodes anything: the engine's forwards beside transformers' own, on the same
weights.

The model's unmodified forward reads whole sequences, one at a time and without a cache. The engine
reads the same tokens as it does while it decodes: prompts of several lengths in one batch, one
beyond every window and rope boundary of the config that is not too long; drafts of which a part is
rejected; a tree; the hidden states that heads read. What passes is remembered in the user's cache,
for these weights, versions, settings and this device."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import cache
from hashlib import sha256
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

import torch
import transformers
from torch import Tensor
from transformers import DynamicCache

from methods.engine import attention
from methods.engine.device import upload
from methods.engine.families import DecoderName
from methods.engine.source import ModelError
from methods.engine.user_cache import noted

if TYPE_CHECKING:
    from methods.engine.language_model import LanguageModel

BOUNDARY = re.compile("window|chunk_size|original_max_position")
"""Keys of a config.json at whose values a forward may change."""
MOST_TOKENS = 8192
FLOPS = {"cpu": 3e11, "cuda": 4e14}
"""What all forwards of a probe may cost, by device: one or two seconds."""
TREE = ([0], [0, 1], [0, 2], [0, 1, 3], [0, 2, 4])
"""The path to each node: two branches behind the root. The second is committed."""
TOLERANCE = {torch.float64: 1e-6, torch.float32: 1e-3, torch.bfloat16: 0.05, torch.float16: 0.05}
"""How far logits may lie from transformers', as a share of their own deviation from their mean."""


@dataclass(frozen=True, slots=True)
class Findings:
    """What the engine does right with a model that it decodes right: chains always.

    tokens   of the longest sequence that was compared.
    trees    why it drafts no trees; empty: they are right.
    states   why its hidden states cannot be read; empty: they are right.
    seconds  that the probe took.
    """

    tokens: int
    trees: str
    states: str
    seconds: float


class Difference(Exception):
    """The engine does not do what transformers does. The message says where and how."""


def check(model: LanguageModel) -> None:
    """Set `model.findings`. Raises ModelError, one line, for a model that the engine would decode
    wrongly. Does nothing for a shape without weights, nor for a part of a divided model."""
    if model.divided is None and model.device.type != "meta":
        settings = ProbeSettings(
            str(model.model.dtype).removeprefix("torch."),
            str(model.device),
            model.decoder,
            model.graphs is not None,
            model.products is not None,
            max(model.stages, default=0) + 1,
        )
        model.findings = _noted(model.fingerprint, settings, lambda: asdict(probe(model)))


@dataclass(frozen=True, slots=True)
class ProbeSettings:
    """How a model runs, as far as its numbers may depend on it: see
    `bench.config.engine.EngineOptions`; `packed`: on packed weights."""

    dtype: str
    device: str
    decoder: DecoderName
    graphs: bool
    packed: bool
    devices: int


def remembered(fingerprint: str, settings: ProbeSettings) -> dict[str, Any] | None:
    """What was found before, None where nobody looked."""
    try:
        return asdict(_noted(fingerprint, settings, _unknown))
    except LookupError:
        return None


def _unknown() -> dict[str, Any]:
    raise LookupError


def _noted(
    fingerprint: str, settings: ProbeSettings, look: Callable[[], dict[str, Any]]
) -> Findings:
    place = (
        torch.cuda.get_device_name(settings.device)
        if settings.device.startswith("cuda")
        else settings.device
    )
    return noted(
        f"probe of {fingerprint}, {replace(settings, device=place)}, {_versions()}",
        look,
        lambda value: Findings(**value),
    )


@cache
def _versions() -> str:
    engine = sha256(
        b"".join(file.read_bytes() for file in sorted(Path(__file__).parent.glob("*.py")))
    ).hexdigest()
    return (
        f"torch {torch.__version__}, transformers {transformers.__version__}, engine {engine[:12]}"
    )


@torch.no_grad()
def probe(model: LanguageModel) -> Findings:
    """What the engine does right with a model. Raises ModelError where it does not decode it
    right."""
    began = perf_counter()
    if _recurrent(model.model):
        raise ModelError(
            f"{model.source}: it keeps a recurrent state (linear attention, Mamba, a "
            "convolution), from which this engine cannot take back a rejected draft; give "
            "engine=vllm, or another model"
        )
    try:
        trial = _Trial(model)
    except ModelError:
        raise
    except Exception as error:
        raise ModelError(
            f"{model.source}: transformers' own forward of it fails: {_said(error)}"
        ) from error
    chains, trees, states = (
        _reason(part, model) for part in (trial.chain, trial.tree, trial.states)
    )
    if chains:
        slower = "" if model.lean is None else "engine.decoder=transformers, which is slower, or "
        raise ModelError(f"{model.source}: {chains}; give {slower}engine=vllm, or another model")
    return Findings(trial.longest, trees, states, round(perf_counter() - began, 2))


def _recurrent(model: Any) -> bool:
    """Whether layers of a model of transformers keep more of the past than keys and values."""
    config = model.config.get_text_config(decoder=True)
    if model._is_stateful or not getattr(config, "layer_types", None):
        return bool(model._is_stateful)
    return any(DynamicCache(config=config).is_linear)


def _reason(part: Callable[[LanguageModel], None], model: LanguageModel) -> str:
    """Why a part of the trial fails; empty where it does not."""
    try:
        part(model)
    except (Difference, ModelError) as error:
        return str(error)
    except Exception as error:  # whatever a model's code raises on a cache that is not its own
        return f"transformers' code for it does not run on this engine's cache ({_said(error)})"
    return ""


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:160]}"


@contextmanager
def unmodified(model: Any, implementation: str = "") -> Iterator[None]:
    """The model's forward as transformers has it. `implementation`: of attention, by default its
    best."""
    chosen = implementation or ("sdpa" if model._supports_sdpa else "eager")
    before = [
        (config, config._attn_implementation)
        for config in attention.configs(model)
        if getattr(config, "_attn_implementation", None) == attention.NAME
    ]
    try:
        for config, _ in before:
            config._attn_implementation = chosen
        yield
    finally:
        for config, name in before:
            config._attn_implementation = name


def lengths_for(model: LanguageModel) -> tuple[int, int, int]:
    """Lengths of three prompts: short, middling, and beyond the boundaries of the config that can
    be afforded."""
    size = sum(weight.numel() for weight in model.model.parameters())
    affordable = int(FLOPS.get(model.device.type, FLOPS["cuda"]) / (2 * size) / 4)
    most = max(12, min(affordable, MOST_TOKENS, model.max_positions - 10))
    beyond = [
        boundary + 16
        for boundary in boundaries(model.model.config.to_dict())
        if boundary + 16 <= most
    ]
    longest = max([*beyond, min(72, most)])
    return min(5, longest // 3), min(19, longest // 2), longest


def boundaries(config: Any, name: str = "") -> set[int]:
    """The numbers of tokens at which a forward may change, of a config.json or a part of it."""
    if isinstance(config, dict):
        return {
            boundary for key, value in config.items() for boundary in boundaries(value, str(key))
        }
    if isinstance(config, list):
        return {boundary for value in config for boundary in boundaries(value, name)}
    return {config} if type(config) is int and config > 1 and BOUNDARY.search(name) else set()


class _Trial:
    """Prompts, what follows them, and what transformers makes of it.

    first, second  [rows] tokens behind each prompt: the first branch of the tree, and the second,
                   which is committed.
    longest        tokens of the longest sequence.
    """

    def __init__(self, model: LanguageModel):
        draw = random.Random(0)
        special = set(getattr(model.tokenizer, "all_special_ids", None) or ())
        limit = min(
            model.vocab_size,
            getattr(model.model.config.get_text_config(decoder=True), "vocab_size", 1 << 30),
        )
        allowed = (
            [token for token in range(limit) if token not in special]
            if limit < 4096
            else range(limit)
        )

        def tokens(count: int) -> list[int]:
            return [draw.choice(allowed) for _ in range(count)]

        self.model, self.prompts = model, [tokens(length) for length in lengths_for(model)]
        self.second = [tokens(8) for _ in self.prompts]
        self.first = [[behind[0], *tokens(2)] for behind in self.second]
        self.longest = max(map(len, self.prompts)) + 8
        with unmodified(model.model):
            self.want_first = list(map(self._whole, self.prompts, self.first))
            self.want_second = list(map(self._whole, self.prompts, self.second))
        self._check_finite()
        self.tolerance = self._tolerance()

    def _whole(self, prompt: Sequence[int], behind: Sequence[int]) -> Tensor:
        """[n + 1, V] logits behind the prompt and each of the n tokens after it."""
        row = upload([[*prompt, *behind]], self.model.device)
        count = len(behind) + 1
        logits: Tensor = self.model.model(
            input_ids=row, use_cache=False, logits_to_keep=count
        ).logits
        return logits[0, -count:].float()

    def _check_finite(self) -> None:
        if any(logits.isnan().any() for logits in (*self.want_first, *self.want_second)):
            dtype = str(self.model.model.dtype).removeprefix("torch.")
            raise ModelError(
                f"{self.model.source}: its logits are NaN in engine.dtype={dtype}: its activations "
                "overflow; give engine.dtype=bfloat16 or float32"
            )

    def _tolerance(self) -> float:
        """At least four times what lies between two implementations of attention that transformers
        has."""
        least, model = TOLERANCE[self.model.model.dtype], self.model.model
        if not model._supports_sdpa:
            return least
        with unmodified(model, "eager"):
            other = self._whole(self.prompts[1], self.second[1])
        return max(least, 4 * float(off(other, self.want_second[1]).max()))

    def chain(self, model: LanguageModel) -> None:
        """Read the prompts in one batch, verify drafts of which some are rejected, and go on.
        Raises Difference."""
        cache = self._begin(model)
        rejected = [
            [behind[0], *branch[1:]] for behind, branch in zip(self.second, self.first, strict=True)
        ]
        self._compare(model.forward(self._upload(rejected), cache).logits[:, :1], 1, "a draft")
        cache.commit([1] * len(self.prompts))
        for start, stop in ((1, 4), (4, 5), (5, 8)):
            tokens = self._upload([behind[start:stop] for behind in self.second])
            self._compare(
                model.forward(tokens, cache).logits, start + 1, "tokens behind a rejected draft"
            )
            cache.commit([stop - start] * len(self.prompts))

    def tree(self, model: LanguageModel) -> None:
        """Verify a tree, keep its second branch and go on. Raises Difference."""
        cache = self._begin(model)
        nodes = [
            [root, a, c, b, d]
            for (root, a, b), (_, c, d, *_) in zip(self.first, self.second, strict=True)
        ]
        ancestors = torch.tensor(
            [[[node in path for node in range(5)] for path in TREE]], device=model.device
        )
        depth = torch.tensor([[len(path) - 1 for path in TREE]], device=model.device)
        logits = model.forward(self._upload(nodes), cache, ancestors=ancestors, depth=depth).logits
        self._compare(logits[:, [0, 1, 3]], 1, "the nodes of a tree", self.want_first)
        self._compare(logits[:, [0, 2, 4]], 1, "the nodes of a tree")
        cache.compact(upload([[0, 2, 4]] * len(nodes), model.device))
        cache.commit([3] * len(nodes))
        logits = model.forward(self._upload([behind[3:6] for behind in self.second]), cache).logits
        self._compare(logits, 4, "tokens behind a tree")

    def states(self, model: LanguageModel) -> None:
        """Read hidden states. Raises Difference."""
        prompts = self.prompts[:2]
        with unmodified(model.model):
            whole = [
                model.model(
                    input_ids=upload([[*prompt, *behind[:2]]], model.device),
                    use_cache=False,
                    output_hidden_states=True,
                ).hidden_states
                for prompt, behind in zip(prompts, self.second, strict=False)
            ]
        wanted = tuple(sorted({1, len(whole[0]) // 2, len(whole[0]) - 1}))
        cache = model.new_cache(len(prompts), 32)
        features = model.prefill(prompts, cache, features=wanted).features
        tokens = self._upload([behind[:2] for behind in self.second[:2]])
        out = model.forward(tokens, cache, hidden=True, features=wanted)
        assert out.hidden is not None and out.features is not None and features is not None, (
            "asked for"
        )
        for row, states in enumerate(whole):
            read = torch.cat([features[row, : len(prompts[row])], out.features[row]])
            self._judge(
                off(read, torch.cat([states[index][0] for index in wanted], -1)), "hidden states"
            )
            self._judge(
                off(out.hidden[row], states[-1][0, -2:]), "hidden states before the LM head"
            )
            self._judge(
                off(model.head(out.hidden[row]), self.want_second[row][1:3]),
                "logits that the LM head makes of the last hidden states",
            )

    def _begin(self, model: LanguageModel) -> Any:
        """A cache that holds the prompts."""
        cache = model.new_cache(len(self.prompts), self.longest + 8)
        self._compare(model.prefill(self.prompts, cache).logits, 0, "a prompt")
        return cache

    def _upload(self, rows: list[list[int]]) -> Tensor:
        return upload(rows, self.model.device)

    def _compare(
        self, logits: Tensor, place: int, where: str, want: list[Tensor] | None = None
    ) -> None:
        """logits [rows, n, V] behind the first n tokens from `place` on, counted from the prompt's
        last token as 0."""
        for row, whole, prompt in zip(
            logits, self.want_second if want is None else want, self.prompts, strict=True
        ):
            beside = (
                f"logits behind {where} ({len(prompt)} tokens read, in a batch with other lengths)"
            )
            self._judge(off(row, whole[place : place + len(row)]), beside)

    def _judge(self, off: Tensor, what: str) -> None:
        """Raises Difference where these shares [n] are too large: any, or in two bytes, where a
        mixture of experts may route a token otherwise, their median."""
        worst = float(off.median() if self.model.model.dtype.itemsize <= 2 else off.max())
        if not worst <= self.tolerance:
            raise Difference(
                f"the engine's {what} are not those of transformers' own forward: {worst:.1%} off"
            )


def off(got: Tensor, want: Tensor) -> Tensor:
    """[n] how far rows [n, V] lie from the wanted ones, as a share of those' deviation from their
    mean."""
    got, want = got.double(), want.double()
    finite = want.isfinite()
    want = torch.where(finite, want, 0.0)
    got = torch.where(finite, got, 0.0)
    scale = (want - want.mean(-1, keepdim=True)).norm(dim=-1).clamp(min=1e-30)
    off: Tensor = (got - want).norm(dim=-1) / scale
    return off
