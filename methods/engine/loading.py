"""Load a causal LM from a folder, the hub or a GGUF file, and identify a checkpoint by its contents."""

from __future__ import annotations

import hashlib
from functools import cache as memoise
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.utils.hub import cached_file

from methods.engine import attention, gguf
from methods.engine.language_model import LanguageModel
from methods.engine.random_weights import fingerprint_of_shape, from_shape
from methods.engine.source import ModelError, is_gguf, is_random

WEIGHTS = ("*.safetensors", "pytorch_model*.bin", "medusa_lm_head.pt")


def load_model(source: str, *, dtype: str = "float32", device: str = "cpu", revision: str | None = None,
               trust_remote_code: bool = False, chat_template: Path | None = None,
               shape_tokenizer: Path | None = None) -> LanguageModel:
    """Load a causal LM in eval mode by local folder, hub name or GGUF file, which is converted on first use.

    `chat_template`: a Jinja file that replaces its tokenizer's own. `shape_tokenizer`: folder of the tokenizer for a
    model that exists as a shape only (`random:FOLDER`). Raises ModelError, one line."""
    if is_random(source):
        return from_shape(source, dtype=dtype, device=device, tokenizer=shape_tokenizer,
                          trust_remote_code=trust_remote_code)
    place = str(gguf.converted(gguf.file_of(source, revision))) if is_gguf(source) else source
    try:
        model = AutoModelForCausalLM.from_pretrained(
            place, dtype=getattr(torch, dtype), revision=revision, trust_remote_code=trust_remote_code,
            attn_implementation=attention.NAME)
        tokenizer = AutoTokenizer.from_pretrained(place, revision=revision, trust_remote_code=trust_remote_code)
    except (OSError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise ModelError(f"{source}: cannot be loaded as a causal language model: {reason}") from error
    if chat_template is not None:
        tokenizer.chat_template = chat_template.read_text(encoding="utf-8")
    model.to(device)  # type: ignore[arg-type]  # transformers' wrapper hides the signature of nn.Module.to
    return LanguageModel(source, model.eval(), tokenizer, fingerprint(source, revision))


@memoise
def dequantised(source: str, revision: str | None = None) -> str | None:
    """The GGUF file whose dequantised weights a source stands for: name, tensors of each type, SHA-256. None for other
    sources. Raises ModelError."""
    return gguf.origin(gguf.file_of(source, revision)) if is_gguf(source) else None


@memoise
def fingerprint(source: str, revision: str | None = None) -> str:
    """Hex digits that identify a checkpoint's contents. For a GGUF file its SHA-256; otherwise 12 digits, of its config
    and, for a local folder, each weight file's size and first and last MiB; for a hub name, the commit it resolves to.
    Of a hub checkpoint only the config is downloaded; a package is fetched.

    Raises ModelError when there is no such checkpoint."""
    if is_random(source):
        return fingerprint_of_shape(source)
    if is_gguf(source):
        return gguf.sha256(gguf.file_of(source, revision))
    folder = Path(source)
    digest = hashlib.blake2b(digest_size=6)
    if folder.is_dir():
        config = folder / "config.json"
        if not config.exists():
            raise ModelError(f"{source}: no config.json in this folder; give a folder in the Hugging Face format")
        digest.update(config.read_bytes())
        files = sorted(f for pattern in WEIGHTS for f in folder.glob(pattern))
        if not files:
            raise ModelError(f"{source}: no weights ({' or '.join(WEIGHTS)}) in this folder")
        for file in files:
            size = file.stat().st_size
            with file.open("rb") as f:
                digest.update(f"{file.name}:{size}".encode() + f.read(1 << 20))
                f.seek(max(0, size - (1 << 20)))
                digest.update(f.read())
        return digest.hexdigest()
    try:
        config = Path(str(cached_file(source, "config.json", revision=revision)))
    except (OSError, ValueError) as error:
        raise ModelError(f"{source}: neither a local folder nor a reachable hub model: "
                         f"{str(error).splitlines()[0]}") from error
    digest.update(f"{source}@{config.parent.name}".encode())  # the hub's cache names the folder by its commit
    return digest.hexdigest()
