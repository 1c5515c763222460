"""Load a causal LM from a folder, the hub or a GGUF file, and check its weights; make one of a
shape alone; or cut a draft out of its target.

A cut is the target's first layers, then a few layers and a final norm of its own. Embedding, LM
head, tokenizer and the first layers are the target's, in memory and on disk: a checkpoint holds
what was trained alone. Its config.json names the target (`target`, `target_revision`) and the sizes
(`target_layers`, `own_layers`, `hidden_size`, …); its tensors are `layers.0.…`, `layers.1.…` and
`norm.…`, named as in the target's own decoder. Related: Elhoushi et al. 2024, "LayerSkip" (early
exit); Liu et al. 2024, "Kangaroo" (frozen shallow layers and a trained adapter)."""

from __future__ import annotations

import copy
import logging
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, GenerationConfig

from methods.engine import attention, gguf, probe, tensor
from methods.engine.families import DecoderName
from methods.engine.fingerprints import fingerprint, fingerprint_of_shape
from methods.engine.language_model import LanguageModel
from methods.engine.source import ModelError, ModelSource, read_json
from methods.engine.spread import device_map, mark_stages, spread_out

HARMLESS = re.compile(r"rotary_emb\.inv_freq$|\.(attn|attention)\.(masked_)?bias$|^medusa_head\.")
"""Tensors of a checkpoint that its model need not have: recomputed tables, masks of old versions of
transformers, Medusa's heads beside their target."""


def check_loaded(source: str, model: nn.Module, info: Mapping[str, Any]) -> None:
    """Raise ModelError, one line, where `info`, the loading information of `from_pretrained`, has
    missing, unexpected or misshapen tensors, or where a weight is not finite. Tied weights are not
    missing."""
    _check_fit(
        source,
        info["missing_keys"],
        [name for name in info["unexpected_keys"] if not HARMLESS.search(name)],
        [name for name, *_ in info["mismatched_keys"]],
    )
    check_finite(source, model.named_parameters())


def _check_fit(
    source: str, missing: Iterable[str], unexpected: Iterable[str], misshapen: Iterable[str]
) -> None:
    kinds = {"missing": [*missing], "unexpected": [*unexpected], "of another shape": [*misshapen]}
    problems = [
        f"{len(names)} {kind} ({some(sorted(names))})" for kind, names in kinds.items() if names
    ]
    if problems:
        raise ModelError(
            f"{source}: its tensors do not fit its config.json: {'; '.join(problems)}; give a "
            "checkpoint whose config.json and weights belong together"
        )


def check_finite(source: str, tensors: Iterable[tuple[str, Tensor]]) -> None:
    """Raise ModelError, one line, for a tensor with a NaN or an infinity. Takes one pass and no
    memory."""
    local = (
        # of a divided model: a DTensor, whose class takes a second to import
        (name, tensor.to_local() if hasattr(tensor, "to_local") else tensor)
        for name, tensor in tensors
    )
    wrong = [
        name
        for name, tensor in local
        if tensor.is_floating_point()
        and tensor.itemsize > 1
        and tensor.numel()
        and not tensor.is_meta
        and not torch.isfinite(torch.stack(tensor.detach().aminmax())).all()
    ]
    if wrong:
        raise ModelError(
            f"{source}: weights that are NaN or infinite in {len(wrong)} tensors: {some(wrong)}; "
            "the file is damaged, or its numbers do not fit into engine.dtype"
        )


def some(names: Sequence[str]) -> str:
    """The first names and how many there are beyond them."""
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")


def from_shape(
    source: str,
    *,
    dtype: str,
    device: str,
    tokenizer: Path | None = None,
    trust_remote_code: bool = False,
    decoder: DecoderName = "auto",
) -> LanguageModel:
    """The model that the config.json in a (`random:`) folder describes, with weights drawn from
    seed 0.

    `tokenizer`: folder of the tokenizer it borrows (None: it has none). On the device "meta" it has
    sizes and takes no memory. Raises ModelError."""
    folder = ModelSource.of(source).folder
    try:
        config = AutoConfig.from_pretrained(folder, trust_remote_code=trust_remote_code)
        with torch.random.fork_rng(), torch.device(device):
            torch.manual_seed(0)
            model: Any = AutoModelForCausalLM.from_config(
                config,
                dtype=getattr(torch, dtype),
                attn_implementation=attention.NAME,
                trust_remote_code=trust_remote_code,
            )
    except (OSError, ValueError, KeyError) as error:
        raise ModelError(
            f"{source}: its config.json describes no causal language model: {_said(error)}; give "
            "a folder whose config.json does"
        ) from error
    borrowed = None if tokenizer is None else AutoTokenizer.from_pretrained(tokenizer)
    return LanguageModel(source, model.eval(), borrowed, fingerprint_of_shape(source), decoder)


def _said(error: Exception) -> str:
    """What an exception of transformers says, in one line. Some old architectures look attention up
    in a table."""
    if error.args == (attention.NAME,):
        return (
            "its attention cannot be replaced by this engine's, though perhaps by that of "
            "engine=vllm"
        )
    return str(error).splitlines()[0]


def nbytes(module: torch.nn.Module, beside: torch.nn.Module | None = None) -> int:
    """Bytes of a module's parameters and buffers, shared ones once; those it shares with the module
    `beside`, not."""
    shared = (
        set()
        if beside is None
        else {id(tensor) for tensor in (*beside.parameters(), *beside.buffers())}
    )
    return sum(
        tensor.numel() * tensor.element_size()
        for tensor in (*module.parameters(), *module.buffers())
        if id(tensor) not in shared
    )


WEIGHTS = "model.safetensors"
SIZES = (
    "hidden_size",
    "vocab_size",
    "intermediate_size",
    "num_attention_heads",
    "num_key_value_heads",
)
"""What a cut and its target must agree in."""


def load_cut(source: str, target: LanguageModel) -> LanguageModel:
    """The cut of `target` in the folder `source`: the target's embedding, first layers and LM head,
    shared, around the layers and the norm of the file. Of a target on the meta device its shape.
    Raises ModelError, one line, where they do not belong together."""
    target.check_whole()
    config = read_json(Path(source) / "config.json")
    sizes = target.model.config.get_text_config(decoder=True)
    for key in SIZES:
        if config.get(key) != (wanted := getattr(sizes, key, None)):
            raise ModelError(
                f"{source}: cut out of a target with {key} {config.get(key)}, and "
                f"{target.source} has {wanted}; give the pair the target it was trained on"
            )
    try:
        shared, count = int(config["target_layers"]), int(config["own_layers"])
    except (KeyError, ValueError) as error:
        raise ModelError(
            f"{source}: cannot be loaded as a cut of its target: its config.json lacks a number "
            f"target_layers or own_layers ({error}); fetch it again"
        ) from error
    if not 1 <= shared < target.layers or count < 1:
        raise ModelError(
            f"{source}: {shared} layers of its target and {count} of its own; {target.source} has "
            f"{target.layers}; give the pair the target that the cut was trained on"
        )
    body, model = copy.copy(target.model.base_model), copy.copy(target.model)
    body.config = model.config = shape = copy.deepcopy(body.config)
    shape.num_hidden_layers = shared + count
    if getattr(shape, "layer_types", None):
        shape.layer_types = shape.layer_types[: shared + count]
    layers = [
        type(body.layers[0])(shape, layer_idx=place) for place in range(shared, shared + count)
    ]
    trained = nn.ModuleDict({"layers": nn.ModuleList(layers), "norm": copy.deepcopy(body.norm)})
    weight = target.embedding
    if not weight.is_meta:
        trained.load_state_dict(_trained(source, trained))
    trained.to(weight.device, weight.dtype)
    whole = nn.ModuleList([*body.layers[:shared], *layers])
    body._modules = {**body._modules, "layers": whole, "norm": trained["norm"]}
    model._modules = {**model._modules, model.base_model_prefix: body}
    return LanguageModel(
        source,
        model.eval(),
        target.tokenizer,
        fingerprint(source, None),
        target.decoder,
        target.graphs,
        products=target.products,
    )


def _trained(source: str, module: nn.Module) -> dict[str, Tensor]:
    """The tensors of a cut's file, which `module` takes. Raises ModelError."""
    try:
        tensors = load_file(Path(source) / WEIGHTS)
    except (ValueError, OSError) as error:
        raise ModelError(
            f"{source}: cannot be loaded as a cut of its target: {str(error).splitlines()[0]}; "
            "fetch it again"
        ) from error
    wanted = module.state_dict()
    _check_fit(
        source,
        wanted.keys() - tensors.keys(),
        tensors.keys() - wanted.keys(),
        [
            name
            for name in wanted.keys() & tensors.keys()
            if wanted[name].shape != tensors[name].shape
        ],
    )
    check_finite(source, tensors.items())
    return tensors


# Its table of tensors that do not fit: `check_loaded` says so in one line.
logging.getLogger("transformers.modeling_utils").addFilter(
    lambda record: "LOAD REPORT" not in record.getMessage()
)


def switched(source: str, template: Any, thinking: bool) -> str:
    """The chat template of `source` with `enable_thinking` set, for all who use it. Raises
    ModelError where it does not know the name."""
    if not isinstance(template, str) or "enable_thinking" not in template:
        raise ModelError(
            f"{source}: its chat template knows no enable_thinking; give pair.thinking=null"
        )
    return f"{{%- set enable_thinking = {str(thinking).lower()} -%}}{template}"


@contextmanager
def _refusals(source: str) -> Iterator[None]:
    """Turns what transformers raises inside of a checkpoint into ModelError, one line."""
    try:
        yield
    except ModelError:
        raise
    except SafetensorError as error:
        raise ModelError(
            f"{source}: its weights are damaged ({error}); fetch or copy them again"
        ) from error
    except (OSError, ValueError, KeyError) as error:
        raise ModelError(
            f"{source}: cannot be loaded as a causal language model: {_said(error)}"
        ) from error


def load_model(
    source: str,
    *,
    dtype: str = "float32",
    device: str = "cpu",
    revision: str | None = None,
    trust_remote_code: bool = False,
    chat_template: Path | None = None,
    thinking: bool | None = None,
    shape_tokenizer: Path | None = None,
    decoder: DecoderName = "auto",
    ranks: int = 1,
    devices: int = 1,
    weights: bool = True,
    check: bool = True,
) -> LanguageModel:
    """Load a causal LM in eval mode by local folder, hub name or GGUF file, which is converted on
    first use. A cut of its target is loaded with that target, which its config.json names.

    `chat_template`: a Jinja file that replaces its tokenizer's own. `thinking`: its
    `enable_thinking`; None leaves that to the template. `shape_tokenizer`: folder of the tokenizer
    for a model that exists as a shape only (`random:FOLDER`). `decoder`: see LanguageModel.
    `ranks`: divide it among so many processes of torchrun (`methods/engine/tensor.py`). `devices`:
    spread its layers over so many. `weights=False`: tokenizer and sizes alone, on the meta device.
    `check=False`: who asks has settings to make before `probe.check`. Raises ModelError."""
    arguments, origin = locals(), ModelSource.of(source)
    if ranks > 1 and (origin.is_random or origin.is_cut):
        raise ModelError(
            f"{source}: engine.parallel=tensor divides weights of files; give "
            "engine.parallel=layers"
        )
    divided = tensor.divide(arguments) if ranks > 1 else None
    if origin.is_random:
        model = from_shape(
            source,
            dtype=dtype,
            device="cpu" if devices > 1 else device,
            tokenizer=shape_tokenizer,
            trust_remote_code=trust_remote_code,
            decoder=decoder,
        )
        if devices > 1:
            spread_out(source, model.model, device, devices)
    elif origin.is_cut:
        base, base_revision = origin.origin
        model = load_cut(
            source,
            load_model(
                **arguments
                | {"source": base, "revision": base_revision, "weights": True, "check": False}
            ),
        )
    else:
        place = str(gguf.converted(gguf.file_of(source, revision))) if origin.is_gguf else source
        hub = {"revision": revision, "trust_remote_code": trust_remote_code}
        number_type = getattr(torch, dtype)
        with _refusals(source):
            if weights:
                module = _whole(source, place, hub, number_type, device, devices, ranks)
            else:
                module = _shape(place, hub, number_type)
            tokenizer = _tokenizer(source, place, hub, chat_template, thinking)
        digits = fingerprint(source, revision)
        model = LanguageModel(source, module.eval(), tokenizer, digits, decoder, revision=revision)
    if ranks > 1:
        model.entries  # noqa: B018  a forward that all ranks make together
        model.divided = divided
    if check:
        probe.check(model)
    return model


def _tokenizer(
    source: str,
    place: str,
    hub: Mapping[str, Any],
    chat_template: Path | None,
    thinking: bool | None,
) -> Any:
    tokenizer: Any = AutoTokenizer.from_pretrained(place, **hub)
    if (Path(place) / "generation_config.json").is_file():
        # a model passes over a broken one, with the end of its answers
        GenerationConfig.from_pretrained(place)
    if chat_template is not None:
        tokenizer.chat_template = chat_template.read_text(encoding="utf-8")
    if thinking is not None:
        tokenizer.chat_template = switched(source, tokenizer.chat_template, thinking)
    return tokenizer


def _whole(
    source: str,
    place: str,
    hub: Mapping[str, Any],
    dtype: torch.dtype,
    device: str,
    devices: int,
    ranks: int,
) -> Any:
    """The model on one device, its layers on several, or this rank's part of it."""
    spread: dict[str, Any] = {}
    if ranks > 1:
        from transformers.distributed import DistributedConfig

        plan = tensor.plan_of(AutoConfig.from_pretrained(place, **hub))
        spread = {"distributed_config": DistributedConfig(tp_plan=plan, tp_size=ranks)}
    if devices > 1:
        spread = {"device_map": device_map(source, _shape(place, hub, dtype), device, devices)}
    loaded: Any = AutoModelForCausalLM.from_pretrained(
        place,
        dtype=dtype,
        attn_implementation=attention.NAME,
        ignore_mismatched_sizes=True,
        output_loading_info=True,
        **hub,
        **spread,
    )
    model, info = loaded
    check_loaded(source, model, info)
    if devices > 1:
        mark_stages(model, devices)
    return model if spread else model.to(device)


def _shape(place: str, hub: Mapping[str, Any], dtype: torch.dtype) -> Any:
    """The model on the meta device, with the settings that end its answers."""
    config = AutoConfig.from_pretrained(place, **hub)
    with torch.device("meta"):
        model: Any = AutoModelForCausalLM.from_config(
            config, dtype=dtype, trust_remote_code=hub["trust_remote_code"]
        )
    with suppress(OSError):  # it has no generation_config.json
        model.generation_config = GenerationConfig.from_pretrained(
            place, revision=hub["revision"] or "main"
        )
    return model
