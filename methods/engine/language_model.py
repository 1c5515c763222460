"""A causal LM of transformers with its tokenizer: one forward over committed tokens and the nodes
of a tree."""

from __future__ import annotations

import copy
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import date
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import torch
from torch import Tensor
from transformers import DynamicCache
from transformers.utils.logging import disable_progress_bar

from methods.engine import attention, texts
from methods.engine.attention import NodeLayout
from methods.engine.cache import Entry, LedCache, SlotCache
from methods.engine.decoder import Decoder, Product, linear, positions_of
from methods.engine.device import upload
from methods.engine.families import DecoderName, obstacle, resolve
from methods.engine.graphs import Graphs
from methods.engine.products import Products
from methods.engine.source import ModelError
from methods.engine.spread import SpreadCache, SpreadDecoder, stages_of
from methods.engine.tensor import Divided
from methods.engine.texts import ControlTokens

if TYPE_CHECKING:

    class Findings(Protocol):
        """A `methods.engine.probe.Findings`."""

        @property
        def trees(self) -> str: ...

        @property
        def states(self) -> str: ...


disable_progress_bar()  # of loading weights: standard error is the harness' own


@dataclass(slots=True)
class ForwardOutput:
    """Output of one forward.

    logits    [B, n, V] float32.
    hidden    [B, n, H] final-norm states, or None.
    features  [B, n, F*H] concatenated hidden states, or None.
    """

    logits: Tensor
    hidden: Tensor | None = None
    features: Tensor | None = None


@dataclass
class LanguageModel:
    """A causal LM with its tokenizer, as the decode loop uses it.

    source       as given in the pair: folder, hub name or GGUF file;
    revision     its revision.
    model        a PreTrainedModel.
    tokenizer    its tokenizer; None for a shape without one.
    fingerprint  hex digits that identify the checkpoint.
    decoder      what runs its forwards: lean (`methods/engine/decoder.py`), transformers (the
                 model's own modules), or auto: lean where it can.
    graphs       what records its forwards, with a lean decoder; None: they run as they come.
    divided      among the processes of torchrun, as rank 0 knows it; None: it is whole, or another
                 rank has it.
    products     its packed weights; None: the plain product serves.
    findings     what the engine was found to do right with it (`methods/engine/probe.py`); None:
                 nobody looked.
    rows         tokens of its vocabulary: the first rows of its embedding and LM head, the others
                 pad; None: all.
    """

    source: str
    model: Any  # a PreTrainedModel, whose attributes transformers types as Tensor or Module
    tokenizer: Any
    fingerprint: str
    decoder: DecoderName = "auto"
    graphs: Graphs | None = None
    revision: str | None = None
    divided: Divided | None = None
    products: Products | None = None
    findings: Findings | None = None
    rows: int | None = None
    full_vocabulary: ClassVar[bool] = True
    """Its distribution covers every token, unlike that of a head with a reduced draft
    vocabulary."""

    def __getstate__(self) -> dict[str, Any]:
        """A copy makes a decoder for weights of its own."""
        return {name: value for name, value in vars(self).items() if name != "lean"} | {
            "products": None
        }

    @property
    def device(self) -> torch.device:
        return torch.device(self.model.device)

    @cached_property
    def lean(self) -> Decoder | None:
        """The lean decoder, None where transformers' modules run. Raises ModelError where it is
        asked for and cannot run the model."""
        config = self.model.config.to_dict()
        if resolve(self.source, config, self.decoder) == "transformers":
            return None
        return SpreadDecoder(self.model) if any(self.stages) else Decoder(self.model, self.products)

    @cached_property
    def stages(self) -> list[int]:
        """For each layer the number of the device, of those that the model is spread over."""
        return stages_of(getattr(self.model.base_model, "layers", ()))

    @cached_property
    def vocab_size(self) -> int:
        return self.rows or int(self.model.get_input_embeddings().weight.shape[0])

    def narrowed(self, rows: int) -> LanguageModel:
        """This model with the first `rows` tokens of its vocabulary alone: it draws no other. It
        shares all weights."""
        return replace(self, rows=rows)

    @cached_property
    def max_positions(self) -> int:
        return positions_of(self.model.config.get_text_config(decoder=True))

    @cached_property
    def window(self) -> int | None:
        """Tokens a sliding-window layer looks back, or None where no layer does: a config may hold
        the key of a model that does not read it."""
        config = self.model.config.get_text_config(decoder=True)
        types = getattr(config, "layer_types", None) or ["sliding"]
        if obstacle(self.model.config.to_dict()) is None or not any(
            "sliding" in kind for kind in types
        ):
            return None
        return getattr(config, "sliding_window", None)

    @cached_property
    def entries(self) -> list[Entry]:
        """What each layer writes into a cache: seen in a forward of the model's own."""
        ids = torch.zeros(1, 2, dtype=torch.int64, device=self.device)
        cache: Any = DynamicCache()
        with torch.no_grad():
            self.model(input_ids=ids, past_key_values=cache, use_cache=True)
        return [
            (1, 1, 1)
            if layer.keys is None
            else (layer.keys.shape[1], layer.keys.shape[3], layer.values.shape[3])
            for layer in cache.layers
        ]

    @cached_property
    def eos_ids(self) -> frozenset[int]:
        """End-of-sequence ids from the generation config and the tokenizer."""
        eos = self.model.generation_config.eos_token_id
        ids = set(eos if isinstance(eos, list) else [eos]) | {
            getattr(self.tokenizer, "eos_token_id", None)
        }
        return frozenset(i for i in ids if i is not None)

    @cached_property
    def control_tokens(self) -> ControlTokens:
        return ControlTokens(self.tokenizer)

    def encode(
        self, messages: list[dict[str, str]], plain: Collection[int] = (), day: date | None = None
    ) -> list[int]:
        """A conversation through the chat template, ready for the assistant's answer. Control
        tokens in the messages of the indices `plain` are broken into text. A template that prints
        the date prints `day`, by default `texts.DEFAULT_DATE`. Raises ModelError, also for a `day`
        that the template does not print."""
        template = getattr(self.tokenizer, "chat_template", None)
        if not template:
            raise ModelError(
                f"{self.source}: its tokenizer has no chat template; give "
                "pair.chat_template=FILE, or take raw prompts: task.chat=false for a data set, "
                "rows with `prompt` for task=prompts"
            )
        options = texts.fixed_date(self.source, template, day)
        messages = [
            message
            if number not in plain
            else {**message, "content": self.control_tokens.broken(message["content"])}
            for number, message in enumerate(messages)
        ]
        return self._embedded(
            self.tokenizer.apply_chat_template(
                messages, add_generation_prompt=True, return_dict=False, **options
            )
        )

    def encode_text(self, text: str, plain: bool = False) -> list[int]:
        """Token ids of a text, as the tokenizer makes them; where `plain`, its control tokens are
        broken into text. A text that holds the tokens which the tokenizer begins with does not get
        them twice. Raises ModelError."""
        text = self.control_tokens.broken(text) if plain else text
        ids, opening = self.tokenizer.encode(text), self._opening
        twice = opening and ids[: 2 * len(opening)] == 2 * opening
        bare = self.tokenizer.encode(text, add_special_tokens=False) if twice else []
        return self._embedded(ids[len(opening) :] if bare[: len(opening)] == opening else ids)

    @cached_property
    def _opening(self) -> list[int]:
        """The control tokens that the tokenizer puts before a text."""
        bare = self.tokenizer.encode("a", add_special_tokens=False)
        ids = self.tokenizer.encode("a")
        starts = range(len(ids) - len(bare) + 1)
        return next((ids[:start] for start in starts if ids[start : start + len(bare)] == bare), [])

    @cached_property
    def think_end(self) -> tuple[str, ...]:
        """The marks behind which its answers begin."""
        return texts.think_end(self.tokenizer)

    def _embedded(self, ids: Sequence[int]) -> list[int]:
        """The ids as a list. Raises ModelError for one without an embedding."""
        if (largest := max(ids, default=0)) >= self.vocab_size:
            raise ModelError(
                f"{self.source}: its tokenizer gives token {largest}, and its embedding has "
                f"{self.vocab_size} rows; give the tokenizer that the model was trained with"
            )
        return list(ids)

    def decode(self, ids: list[int], *, opens: bool = False, special: bool = False) -> str:
        """Text of token ids behind others, special tokens left out unless `special`; `opens`: of
        ids that open a text, whose leading space some tokenizers (Llama 2's) leave out."""
        anchor, length = ([], 0) if opens else self._anchor
        text = self.tokenizer.decode([*anchor, *ids], skip_special_tokens=not special)
        return str(text)[length:]

    def behind(self, ids: list[int], mark: str) -> list[int]:
        """The ids behind the last place where the tokens of `mark` stand; all if there is none."""
        tokens = list(self.tokenizer.encode(mark, add_special_tokens=False))
        ends = range(len(ids), len(tokens) - 1, -1)
        return next((ids[end:] for end in ends if ids[end - len(tokens) : end] == tokens), ids)

    @cached_property
    def _anchor(self) -> tuple[list[int], int]:
        """Ids that stand before others where these are decoded, and the characters of their text;
        none for a tokenizer that decodes the end of a text to the end of it as it stands."""
        ids = list(self.tokenizer.encode("one\n  two three\n four", add_special_tokens=False))
        whole = [self.decode(ids[:end], opens=True) for end in range(len(ids) + 1)]
        if all(
            self.decode(ids[end:], opens=True) == whole[-1][len(whole[end]) :]
            for end in range(1, len(ids))
        ):
            return [], 0
        first = list(self.tokenizer.encode("a", add_special_tokens=False))
        return first, len(self.decode(first, opens=True))

    @cached_property
    def embedding(self) -> Tensor:
        """[V, H] input embeddings."""
        weight: Tensor = self.model.get_input_embeddings().weight
        return weight.detach()[: self.rows]

    def head(self, hidden: Tensor) -> Tensor:
        """Final-norm hidden states [..., H] -> logits [..., V] float32, as the model's own forward
        makes them."""
        config = self.model.config.get_text_config(decoder=True)
        output = self.model.get_output_embeddings()
        hidden = hidden.to(self.model.dtype)
        logits = (
            output.forward(hidden)
            if isinstance(output, Product)
            else linear(hidden, output.weight, output.bias)
        )
        if (scale := getattr(config, "logit_scale", None)) is not None:  # Cohere
            logits = logits * scale
        if (divisor := getattr(config, "logits_scaling", None)) is not None:  # Granite
            logits = logits / divisor
        if (cap := getattr(config, "final_logit_softcapping", None)) is not None:  # Gemma
            logits = torch.tanh(logits / cap) * cap
        return logits[..., : self.rows].float()

    @cached_property
    def head_weight(self) -> Tensor:
        """[V, H] weight of the LM head."""
        output = self.model.get_output_embeddings()
        weight: Tensor = output.weight.detach()
        return weight[: self.rows]

    @cached_property
    def layers(self) -> int:
        """Transformer layers between embedding and final norm. Raises ModelError for a model that
        calls them otherwise."""
        layers = getattr(self.model.base_model, "layers", None)
        if layers is None:
            kind = self.model.config.model_type
            raise ModelError(
                f"{self.source}: a {kind} model cannot be ended after some of its layers; take "
                "another drafter than early_exit, or a target of Llama's kind"
            )
        return len(layers)

    def first_layers(self, count: int) -> LanguageModel:
        """This model ended after 1 <= `count` <= layers of its layers: their output goes through
        its own final norm and LM head. It shares all weights, and a cache of this model is one of
        it too. Raises ModelError for a divided model."""
        self.check_whole()
        body, model = copy.copy(self.model.base_model), copy.copy(self.model)
        body._modules = {**body._modules, "layers": type(body.layers)(body.layers[:count])}
        model._modules = {**model._modules, model.base_model_prefix: body}
        return replace(self, model=model)

    def check_whole(self) -> None:
        """Raises ModelError for a divided model, whose layers no rank has."""
        if self.divided is not None:
            raise ModelError(
                f"{self.source}: the drafter runs layers of its target, which "
                "engine.parallel=tensor divides; give engine.parallel=layers, or another drafter"
            )

    def new_cache(self, rows: int, slots: int) -> SlotCache:
        """An empty cache for so many rows of at most so many tokens."""
        if any(self.stages):
            devices = [next(layer.parameters()).device for layer in self.model.base_model.layers]
            return SpreadCache(
                self.model.config, rows, slots, self.stages, devices, dtype=self.model.dtype
            )
        kind = SlotCache if self.divided is None else LedCache
        return kind(
            self.model.config,
            rows,
            slots,
            dtype=self.model.dtype,
            device=self.device,
            graphs=self.graphs,
            entries=() if self.lean is not None else self.entries,
        )

    def prefill(
        self, rows: list[list[int]], cache: SlotCache, features: tuple[int, ...] = ()
    ) -> ForwardOutput:
        """Fill an empty cache with the prompts `rows` and commit them. Its logits are each row's
        last token's [B, 1, V], its `features`, as in `forward`, of all tokens.

        Shorter rows are padded at the end; those slots are masked."""
        width, ends = max(map(len, rows)), sorted({len(row) - 1 for row in rows})
        tokens = upload([row + [0] * (width - len(row)) for row in rows], self.device)
        out = self.forward(tokens, cache, keep=upload(ends, self.device), features=features)
        cache.set_lengths([len(row) for row in rows])
        pick = upload(
            [[row, ends.index(length - 1)] for row, length in enumerate(cache.lengths)], self.device
        )
        return ForwardOutput(out.logits[pick[:, 0], pick[:, 1]][:, None], features=out.features)

    def forward(
        self,
        tokens: Tensor,
        cache: SlotCache,
        *,
        ancestors: Tensor | None = None,
        depth: Tensor | None = None,
        keep: Tensor | int = 0,
        hidden: bool = False,
        features: tuple[int, ...] = (),
    ) -> ForwardOutput:
        """One forward of `tokens` [B, N] int64 behind each row's committed tokens.

        ancestors [B or 1, N, N] bool and depth [B or 1, N] describe the tree (None: a chain).
        `keep` as in transformers: the positions whose logits are wanted (0 = all). `features`: HF
        hidden_states indices to concatenate. Nothing is committed: the caller does that with
        `cache.commit`."""
        cache.reserve(tokens.shape[1])
        causal = ancestors is None and not any(cache.lengths)
        arguments = (self, tokens, cache, causal, ancestors, depth, keep, hidden, features)
        if self.divided is not None:
            assert isinstance(cache, LedCache), "made by new_cache"
            return self.divided.forward(
                cache, tokens, ancestors, depth, lambda: LanguageModel._forward(*arguments)
            )
        if cache.graphs is None or causal or self.lean is None:  # not a graph
            return LanguageModel._forward(*arguments)
        return cache.graphs.run(LanguageModel._forward, *arguments)

    def _forward(
        self,
        tokens: Tensor,
        cache: SlotCache,
        causal: bool,
        ancestors: Tensor | None,
        depth: Tensor | None,
        keep: Tensor | int,
        hidden: bool,
        features: tuple[int, ...],
    ) -> ForwardOutput:
        """The device's part of a forward."""
        layout = NodeLayout.of(cache, tokens.shape[1], causal, ancestors, depth)
        if self.lean is not None:
            mask = None if layout.causal else layout.mask(cache.dtype)
            with attention.laid_out(layout):
                logits, final, joined = self.lean(
                    tokens,
                    cache,
                    layout.positions,
                    mask,
                    keep=keep,
                    hidden=hidden,
                    features=features,
                )
            return ForwardOutput(logits[..., : self.rows], final, joined)
        # of a draft beyond the end of an answer
        positions = layout.positions.clamp(max=self.max_positions - 1)
        with attention.laid_out(layout):
            out = self.model(
                input_ids=tokens,
                position_ids=positions,
                past_key_values=cache,
                use_cache=True,
                logits_to_keep=keep,
                output_hidden_states=hidden or bool(features),
            )
        states = out.hidden_states
        return ForwardOutput(
            out.logits[..., : self.rows].float(),
            states[-1] if hidden else None,
            torch.cat([states[i] for i in features], -1) if features else None,
        )
