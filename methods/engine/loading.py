"""Load a causal LM from a folder, the hub or a GGUF file."""

from __future__ import annotations

import logging
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, GenerationConfig
from transformers.distributed import DistributedConfig

from methods.engine import attention, gguf, probe, tensor
from methods.engine.cut import load_cut
from methods.engine.families import DecoderName
from methods.engine.fingerprints import fingerprint
from methods.engine.language_model import LanguageModel
from methods.engine.random_weights import from_shape
from methods.engine.source import ModelError, Source
from methods.engine.spread import device_map, mark_stages, spread_out
from methods.engine.weights import check_loaded

# Its table of tensors that do not fit: `check_loaded` says so in one line.
logging.getLogger("transformers.modeling_utils").addFilter(lambda record: "LOAD REPORT" not in record.getMessage())


def switched(source: str, template: Any, thinking: bool) -> str:
    """The chat template of `source` with `enable_thinking` set, for all who use it. Raises ModelError where it does not
    know the name."""
    if not isinstance(template, str) or "enable_thinking" not in template:
        raise ModelError(f"{source}: its chat template knows no enable_thinking; give pair.thinking=null")
    return f"{{%- set enable_thinking = {str(thinking).lower()} -%}}{template}"


def load_model(source: str, *, dtype: str = "float32", device: str = "cpu", revision: str | None = None,
               trust_remote_code: bool = False, chat_template: Path | None = None, thinking: bool | None = None,
               shape_tokenizer: Path | None = None, decoder: DecoderName = "auto",
               ranks: int = 1, devices: int = 1, weights: bool = True, check: bool = True) -> LanguageModel:
    """Load a causal LM in eval mode by local folder, hub name or GGUF file, which is converted on first use. A cut of
    its target is loaded with that target, which its config.json names.

    `chat_template`: a Jinja file that replaces its tokenizer's own. `thinking`: its `enable_thinking`; None leaves that
    to the template. `shape_tokenizer`: folder of the tokenizer for a model that exists as a shape only
    (`random:FOLDER`). `decoder`: see LanguageModel. `ranks`: divide it among so many processes of torchrun
    (`methods/engine/tensor.py`). `devices`: spread its layers over so many. `weights=False`: tokenizer and sizes alone,
    on the meta device. `check=False`: who asks has settings to make before `probe.check`. Raises ModelError, one
    line."""
    load: dict[str, Any] = {
        "source": source, "dtype": dtype, "device": device, "revision": revision, "chat_template": chat_template,
        "trust_remote_code": trust_remote_code, "thinking": thinking, "shape_tokenizer": shape_tokenizer,
        "decoder": decoder, "ranks": ranks, "devices": devices, "weights": weights}
    divided = tensor.divide(ranks, load | {"check": check}) if ranks > 1 else None
    model = _load(**load)
    if ranks > 1:
        model.seen  # noqa: B018  a forward that all ranks make together
        model.divided = divided
    if check:
        probe.check(model)
    return model


def _load(source: str, dtype: str, device: str, revision: str | None, trust_remote_code: bool,
          chat_template: Path | None, thinking: bool | None, shape_tokenizer: Path | None, decoder: DecoderName,
          ranks: int, devices: int, weights: bool) -> LanguageModel:
    """As `load_model`, unchecked."""
    if Source.of(source).is_random:
        if ranks > 1:
            raise ModelError(f"{source}: engine.parallel=tensor divides weights of files; give engine.parallel=layers")
        whole = from_shape(source, dtype=dtype, device="cpu" if devices > 1 else device,
                           tokenizer=shape_tokenizer, trust_remote_code=trust_remote_code, decoder=decoder)
        if devices > 1:
            spread_out(source, whole.model, device, devices)
        return whole
    if Source.of(source).is_cut:
        base, base_revision = Source.of(source).origin
        return load_cut(source, _load(base, dtype, device, base_revision, trust_remote_code, chat_template, thinking,
                                      None, decoder, ranks, devices, weights=True))
    place = str(gguf.converted(gguf.file_of(source, revision))) if Source.of(source).is_gguf else source
    try:
        if not weights:
            model = _shape(place, revision, getattr(torch, dtype), trust_remote_code)
        else:
            model = _whole(source, place, revision, getattr(torch, dtype), device, devices, ranks, trust_remote_code)
        tokenizer = AutoTokenizer.from_pretrained(place, revision=revision, trust_remote_code=trust_remote_code)
        if (Path(place) / "generation_config.json").is_file():
            GenerationConfig.from_pretrained(place)  # the end of an answer is in it; above, a broken one is passed over
    except ModelError:
        raise
    except (OSError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise ModelError(f"{source}: cannot be loaded as a causal language model: {reason}") from error
    if chat_template is not None:
        tokenizer.chat_template = chat_template.read_text(encoding="utf-8")
    if thinking is not None:
        tokenizer.chat_template = switched(source, tokenizer.chat_template, thinking)
    return LanguageModel(source, model.eval(), tokenizer, fingerprint(source, revision), decoder,
                         revision=revision)


def _whole(source: str, place: str, revision: str | None, dtype: torch.dtype, device: str, devices: int, ranks: int,
           trust_remote_code: bool) -> Any:
    """The model on one device, its layers on several, or this rank's part of it."""
    spread: dict[str, Any] = {}
    if ranks > 1:
        config = AutoConfig.from_pretrained(place, revision=revision, trust_remote_code=trust_remote_code)
        spread = {"distributed_config": DistributedConfig(tp_plan=tensor.plan_of(config), tp_size=ranks)}
    if devices > 1:
        config = AutoConfig.from_pretrained(place, revision=revision, trust_remote_code=trust_remote_code)
        with torch.device("meta"):
            shape = AutoModelForCausalLM.from_config(config, trust_remote_code=trust_remote_code)
        spread = {"device_map": device_map(source, shape, device, devices)}
    info: dict[str, Any] = {}

    def make(implementation: str) -> Any:
        loaded: Any = AutoModelForCausalLM.from_pretrained(
            place, dtype=dtype, revision=revision, trust_remote_code=trust_remote_code,
            attn_implementation=implementation, ignore_mismatched_sizes=True, output_loading_info=True, **spread)
        info.update(loaded[1])
        return loaded[0]

    model = attention.installed(make)
    check_loaded(source, model, info)
    if not spread:
        return model.to(device)
    if devices > 1:
        mark_stages(model, devices)
    return model


def _shape(place: str, revision: str | None, dtype: torch.dtype, trust_remote_code: bool) -> Any:
    """The model on the meta device, with the settings that end its answers."""
    config = AutoConfig.from_pretrained(place, revision=revision, trust_remote_code=trust_remote_code)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config, dtype=dtype, trust_remote_code=trust_remote_code)
    with suppress(OSError):  # it has no generation_config.json
        model.generation_config = GenerationConfig.from_pretrained(place, revision=revision or "main")
    return model

