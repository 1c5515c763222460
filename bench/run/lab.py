"""`engine.name=lab`: the decode loop of this project (`methods.decode`) as an engine of the runner."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from bench.run.models import ModelPool
from bench.run.timed_pass.profiling import Phases
from methods.decode import Limits, Request, check_fit, generate
from methods.engine import roofline
from methods.engine.margin import next_logits
from methods.likelihood import generate_with_nll
from methods.trace import Traced, traced

if TYPE_CHECKING:
    from torch import Tensor

    from bench.config.cell import Cell
    from methods.batch import Generation
    from methods.engine.language_model import LanguageModel
    from methods.method import Method


@dataclass(frozen=True, slots=True)
class LabMethod:
    """As `bench.run.engine.LoadedMethod`."""

    method: Method

    @property
    def target(self) -> LanguageModel:
        return self.method.target

    @property
    def judges_stalls(self) -> bool:
        return self.target.device.type == "cpu"

    def check_fit(self, prompt_tokens: int, limits: Limits) -> None:
        check_fit(self.method, prompt_tokens, limits)

    def generate(self, requests: Sequence[Request], limits: Limits) -> list[Generation]:
        return generate(self.method, requests, limits)

    def generate_with_nll(self, requests: Sequence[Request], limits: Limits) -> list[Generation]:
        return generate_with_nll(self.method, requests, limits)

    def generate_traced(self, requests: Sequence[Request], limits: Limits) -> list[Traced]:
        return traced(self.method, requests, limits)

    def next_logits(self, ids: Sequence[int]) -> Tensor:
        return next_logits(self.target, ids)

    def phases(self, request: Request, limits: Limits) -> Phases:
        device = self.target.device
        phases = Phases(device)
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)
        with phases.watching(self.target.model.get_output_embeddings()):
            [generation] = generate(self.method, [request], limits, phases)
        phases.times["prefill"].append(generation.prefill_s)
        if device.type == "cuda":
            phases.memory_peak = torch.cuda.max_memory_allocated(device)
        return phases

    def reads(self, rows: int, machine: str) -> dict[str, float] | None:
        return roofline.reads(self.target, rows, machine)


class Lab:
    """As `bench.run.engine.Engine`, over a pool of models."""

    def __init__(self, remember: bool = False) -> None:
        self.pool = ModelPool(remember)

    def load(self, cell: Cell) -> LabMethod:
        return LabMethod(self.pool.method(cell))

    def keep_only(self, cells: Sequence[Cell]) -> None:
        self.pool.keep_only(cells)

    def prepare(self, cells: Sequence[Cell]) -> None:
        """Choose the kernels for models of these cells that were not yet loaded on this machine, and compare them with
        transformers."""
        pool = ModelPool()
        for cell in cells:
            with suppress(Exception):  # whoever loads it to decode records why it cannot be loaded
                if None in (*cell.engine.kernels(cell.fingerprints()).values(), *cell.probed().values()):
                    pool.method(cell)
