"""A model whose layers lie on several devices, one after another; all else lies on the first.

Stage k of n holds the layers l with l * n // L = k. transformers loads them by its `device_map`, so
every model can be spread; accelerate carries the activations between the modules of one that the
lean decoder does not know."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor, nn

from methods.engine.cache import SlotCache
from methods.engine.decoder import Decoder, NodePlaces
from methods.engine.source import ModelError

STAGE = "leeway_stage"
"""Attribute of a layer's module: the number of its stage."""


def device_map(source: str, model: Any, device: str, devices: int) -> dict[str, str]:
    """Name of each module of a model, which may be on the meta device -> its device: those of
    `cuda`, or `cpu` for all. Raises ModelError."""
    if find_spec("accelerate") is None:
        raise ModelError(
            f"{source}: engine.parallel=layers needs accelerate: pip install accelerate"
        )
    prefix, layers = model.base_model_prefix, model.base_model.layers
    places = [f"{device}:{number}" if device == "cuda" else device for number in range(devices)]
    names = [f"{prefix}.{name}" for name, _ in model.base_model.named_children()]
    names += [name for name, _ in model.named_children() if name != prefix]
    first = {name: places[0] for name in names if name != f"{prefix}.layers"}
    return first | {
        f"{prefix}.layers.{index}": places[index * devices // len(layers)]
        for index in range(len(layers))
    }


def spread_out(source: str, model: Any, device: str, devices: int) -> None:
    """Move the layers of a whole model to their devices."""
    places = device_map(source, model, device, devices)
    from accelerate import dispatch_model

    dispatch_model(model, places)
    mark_stages(model, devices)


def mark_stages(model: Any, devices: int) -> None:
    """Note in each layer of a spread model which stage it is of."""
    layers = model.base_model.layers
    for index, layer in enumerate(layers):
        setattr(layer, STAGE, index * devices // len(layers))


def stages_of(layers: Iterable[nn.Module]) -> list[int]:
    """The stage of each layer; 0 for those of a model on one device."""
    return [getattr(layer, STAGE, 0) for layer in layers]


class SpreadDecoder(Decoder):
    """A lean decoder that carries the activations to the device of each layer, and the last ones
    back."""

    def __init__(self, model: Any):
        super().__init__(model)
        self._devices = [block.down.weight.device for block in self.blocks]
        self._of: NodePlaces | None = None
        self._carried: dict[torch.device, NodePlaces] = {}

    def layer(self, index: int, x: Tensor, place: NodePlaces) -> Tensor:
        device = self._devices[index]
        if self._of is not place:
            self._of, self._carried = place, {}
        if device not in self._carried:
            self._carried[device] = NodePlaces(
                place.cache,
                place.cos.to(device),
                place.sin.to(device),
                None if place.mask is None else place.mask.to(device),
            )
        x = super().layer(index, x.to(device), self._carried[device])
        return x if index + 1 < len(self.blocks) else x.to(self.embedding.weight.device)


def _in_all(name: str) -> Any:
    """The method `name` of `SlotCache`, for every part of a spread cache: its one argument goes to
    the part's device."""

    def move(self: SpreadCache, argument: Any) -> None:
        getattr(SlotCache, name)(self, argument)
        for part in self.parts:
            on_part = argument.to(part.device) if isinstance(argument, Tensor) else argument
            getattr(part, name)(on_part)

    return move


class SpreadCache(SlotCache):
    """A cache whose layers lie where those of its model do: the first stage's here, the others' in
    `parts`."""

    def __init__(
        self,
        config: Any,
        rows: int,
        slots: int,
        stages: Sequence[int],
        devices: Sequence[torch.device],
        *,
        dtype: torch.dtype,
    ):
        """`stages` and `devices`: of each layer."""
        self.parts: list[SlotCache] = []
        self._place = [(stage, stages[:index].count(stage)) for index, stage in enumerate(stages)]
        counts = [stages.count(stage) for stage in sorted(set(stages))]
        places = [devices[stages.index(stage)] for stage in sorted(set(stages))]
        super().__init__(config, rows, slots, dtype=dtype, device=places[0], layers=counts[0])
        self.parts = [
            SlotCache(config, rows, slots, dtype=dtype, device=place, layers=count)
            for count, place in zip(counts[1:], places[1:], strict=True)
        ]

    @property
    def nbytes(self) -> int:
        return super().nbytes + sum(part.nbytes for part in self.parts)

    set_lengths = _in_all("set_lengths")
    advance = _in_all("advance")
    reserve = _in_all("reserve")
    begin = _in_all("begin")
    keep = _in_all("keep")
    compact = _in_all("compact")

    def write(self, layer: int, keys_values: Tensor) -> tuple[Tensor, Tensor]:
        stage, index = self._place[layer]
        return (
            self.parts[stage - 1].write(index, keys_values)
            if stage
            else super().write(index, keys_values)
        )
