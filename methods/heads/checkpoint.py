"""Reading a head's checkpoint: its config and every tensor, from a folder or the hub, and nothing
left over.

Pickles are read through `torch.load(weights_only=True)` only."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file
from torch import Tensor, nn
from transformers.utils.hub import cached_file

from methods.engine.loading import check_finite, some
from methods.engine.source import ModelError, ModelSource, read_json

WEIGHTS = (
    "model.safetensors",
    "model.safetensors.index.json",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
)
"""File names that are tried, in this order; the first that exists is read."""


@dataclass(frozen=True, slots=True)
class HeadCheckpoint:
    """config: the plain content of config.json. tensors: name -> tensor, on the CPU in the file's
    type."""

    source: str
    config: dict[str, Any]
    tensors: dict[str, Tensor]

    def layers(self, first: str) -> int | None:
        """How many decoder layers its tensors are of: that called `first`, and layers.1, layers.2,
        …; None where no tensor is known."""
        names = {
            ".".join(name.split(".")[:2]) for name in self.tensors if name.startswith("layers.")
        }
        return (
            len(names) + any(name.startswith(f"{first}.") for name in self.tensors)
            if self.tensors
            else None
        )

    def fill(self, module: nn.Module) -> None:
        """Copy every tensor into the module's parameters and persistent buffers. Raises ModelError
        that names what is missing, what is left over, what has another shape, and what is NaN or
        infinite."""
        wanted = module.state_dict()
        problems = []
        if missing := sorted(wanted.keys() - self.tensors.keys()):
            problems.append(f"missing {some(missing)}")
        if unexpected := sorted(self.tensors.keys() - wanted.keys()):
            problems.append(f"unexpected {some(unexpected)}")
        both = sorted(wanted.keys() & self.tensors.keys())
        if shapes := [
            f"{name} {_shape(self.tensors[name])} instead of {_shape(wanted[name])}"
            for name in both
            if self.tensors[name].shape != wanted[name].shape
        ]:
            problems.append(f"wrong shape of {some(shapes)}")
        if problems:
            raise ModelError(
                f"{self.source}: its tensors do not fit its config.json as a "
                f"{type(module).__name__}: "
                + "; ".join(problems)
                + "; give the head's official checkpoint, or export it again"
            )
        check_finite(self.source, self.tensors.items())
        module.load_state_dict(self.tensors)

    def prepare(self, module: nn.Module, dtype: str, device: str) -> None:
        """Fill a module and make it ready to run. Raises ModelError."""
        self.fill(module)
        module.to(device=device, dtype=getattr(torch, dtype)).eval().requires_grad_(False)


@dataclass(frozen=True, slots=True)
class RandomCheckpoint(HeadCheckpoint):
    """A checkpoint that exists as a shape only: `tensors` lie on the meta device, none where there
    is but a config.json, and weights are drawn from seed 0 when a module is filled. A reduced draft
    vocabulary is the first ids of the target's. On the meta device nothing is drawn."""

    @torch.no_grad()
    def fill(self, module: nn.Module) -> None:
        source = torch.Generator().manual_seed(0)
        spread = self.config.get("initializer_range", 0.02)
        for name, tensor in module.state_dict().items():
            if tensor.is_meta:
                continue
            if name == "t2d":
                tensor[: module.get_buffer("d2t").numel()] = True
            elif tensor.is_floating_point() and tensor.ndim > 1:
                # norms stay one, biases and offsets zero
                tensor.normal_(0, spread, generator=source)
            elif name.endswith("bias"):
                tensor.zero_()


def read(
    source: str, revision: str | None = None, weights: Sequence[str] = WEIGHTS
) -> HeadCheckpoint:
    """A checkpoint in a local folder or on the hub (only the files that are needed). Raises
    ModelError, one line."""
    config = find(source, "config.json", revision)
    if config is None:
        raise ModelError(
            f"{source}: no config.json; give a folder or hub name of a head in its official format"
        )
    raw = read_json(config)
    if ModelSource.of(source).is_random:
        return RandomCheckpoint(source, raw, _shapes(ModelSource.of(source).folder, weights))
    for name in weights:
        file = find(source, name, revision)
        if file is not None:
            return HeadCheckpoint(source, raw, _tensors(source, file, revision))
    raise ModelError(
        f"{source}: no weights; one of {', '.join(weights)} must be there: download the "
        "checkpoint or export the head again"
    )


def find(source: str, name: str, revision: str | None = None) -> Path | None:
    """One file of a checkpoint, downloaded if need be; None when the checkpoint has no such file.
    Raises ModelError."""
    if ModelSource.of(source).folder.is_dir():
        file = ModelSource.of(source).folder / name
        return file if file.is_file() else None
    try:
        cached = cached_file(
            source, name, revision=revision, _raise_exceptions_for_missing_entries=False
        )
    except (OSError, ValueError) as error:
        raise ModelError(
            f"{source}: neither a local folder nor a reachable hub model: "
            f"{str(error).splitlines()[0]}; check the name and the network, or give a local "
            "folder"
        ) from error
    return None if cached is None else Path(cached)


def _tensors(source: str, file: Path, revision: str | None) -> dict[str, Tensor]:
    """All tensors of one weight file, or of all that an index names."""
    if not file.name.endswith(".index.json"):
        return load_tensors(file)
    tensors: dict[str, Tensor] = {}
    index = read_json(file).get("weight_map")
    if not isinstance(index, dict) or not all(isinstance(name, str) for name in index.values()):
        raise ModelError(
            f"{file}: holds no weight_map of tensor names to files; download the checkpoint again"
        )
    for name in sorted(set(index.values())):
        part = find(source, name, revision)
        if part is None:
            raise ModelError(
                f"{source}: {name} is named in {file.name} and missing; download the checkpoint "
                "again"
            )
        tensors |= load_tensors(part)
    return tensors


def _shapes(folder: Path, weights: Sequence[str]) -> dict[str, Tensor]:
    """The names and shapes in the first weight file of a folder, without reading its values."""
    file = next((folder / name for name in weights if (folder / name).is_file()), None)
    if file is None or file.name.endswith(".index.json"):
        return {}
    if file.suffix != ".safetensors":
        return dict(torch.load(file, map_location="meta", weights_only=True))
    with safe_open(file, "pt") as opened:
        return {
            name: torch.empty(opened.get_slice(name).get_shape(), device="meta")
            for name in opened.keys()  # noqa: SIM118
        }


def load_tensors(file: Path) -> dict[str, Tensor]:
    """name -> tensor of a .safetensors file or a pickle of tensors alone. Raises ModelError."""
    try:
        tensors = (
            load_file(file)
            if file.suffix == ".safetensors"
            else torch.load(file, map_location="cpu", weights_only=True)
        )
    except (OSError, EOFError, RuntimeError, SafetensorError, pickle.UnpicklingError) as error:
        raise ModelError(
            f"{file}: cannot be read as tensors: {str(error).splitlines()[0]}; download the "
            "checkpoint or export the head again"
        ) from error
    if not isinstance(tensors, dict) or not all(
        isinstance(tensor, Tensor) for tensor in tensors.values()
    ):
        raise ModelError(
            f"{file}: holds something other than named tensors; give the file of the head's "
            "official checkpoint"
        )
    return dict(tensors)


def _shape(tensor: Tensor) -> str:
    return "x".join(map(str, tensor.shape))
