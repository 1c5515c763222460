"""What every training run shares: its optimisers (Muon for matrices, AdamW for the other parameters), its files in a
work folder, its progress bar."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from torch.optim import Optimizer


class Optimiser:
    """Several optimisers with one learning-rate factor. `parts`: each with its base learning rate."""

    def __init__(self, parts: Sequence[tuple[Optimizer, float]]) -> None:
        self.parts = list(parts)

    def step(self, rate: float) -> None:
        """Update at `rate` times the base learning rates and clear the gradients."""
        for part, base in self.parts:
            for group in part.param_groups:
                group["lr"] = base * rate
            part.step()
            part.zero_grad(set_to_none=True)

    def state_dict(self) -> list[dict[str, Any]]:
        """One state a part."""
        return [part.state_dict() for part, _ in self.parts]

    def load_state_dict(self, states: Sequence[dict[str, Any]]) -> None:
        """Restore what `state_dict` returned."""
        for (part, _), state in zip(self.parts, states, strict=True):
            part.load_state_dict(state)


class RunFiles:
    """`work`/state.pt, the latest checkpoint, and `work`/loss.jsonl, one logged step a line."""

    def __init__(self, work: Path) -> None:
        self.work, self.state, self.losses = work, work / "state.pt", work / "loss.jsonl"
        work.mkdir(parents=True, exist_ok=True)

    def load(self, device: str) -> dict[str, Any] | None:
        """The latest checkpoint; None before the first."""
        if not self.state.exists():
            return None
        state: dict[str, Any] = torch.load(self.state, map_location=device, weights_only=True)
        return state

    def save(self, state: Mapping[str, Any]) -> None:
        """Replace the checkpoint atomically."""
        torch.save(dict(state), self.work / "state.tmp")
        os.replace(self.work / "state.tmp", self.state)

    def log(self, row: Mapping[str, Any]) -> None:
        """Append one logged step; its key `step` is the number of updates done."""
        with self.losses.open("a") as file:
            file.write(json.dumps(dict(row)) + "\n")

    def drop_after(self, step: int) -> None:
        """Drop logged steps beyond `step`: a killed run repeats what it did after its last checkpoint."""
        if self.losses.exists():
            kept = [line for line in self.losses.read_text().splitlines() if json.loads(line)["step"] <= step]
            self.losses.write_text("".join(f"{line}\n" for line in kept))


def progress_bar(name: str) -> Progress:
    """A progress display titled `name`; a task's description follows the title."""
    return Progress(TextColumn(f"{name} {{task.description}}"), BarColumn(), MofNCompleteColumn(),
                    TimeRemainingColumn())
