"""The training loop of drafter heads and of the embedded pair: Muon for matrices, AdamW for the
rest, resumable at any update."""

from __future__ import annotations

import json
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from torch import Tensor, nn

LOG_EVERY = 10


class TrainingRun(ABC):
    """A module in training. In the folder `work`, run.pt is the latest checkpoint, and loss.jsonl
    has a line for each logged update.

    module      what is trained: those of its parameters that have gradients.
    updates     of the whole run; `done` of them are.
    rate        learning-rate factor of an update.
    save_every  updates between checkpoints.
    clip        largest norm of the gradient.
    """

    module: nn.Module
    done: int = 0

    def __init__(
        self,
        work: Path,
        updates: int,
        rate: Callable[[int], float],
        save_every: int,
        clip: float = 1.0,
    ) -> None:
        self.work = work
        self.updates = updates
        self.rate = rate
        self.save_every = save_every
        self.clip = clip
        self._optimisers: list[tuple[torch.optim.Optimizer, float]] = []
        work.mkdir(parents=True, exist_ok=True)

    @abstractmethod
    def loss(self, update: int) -> tuple[Tensor, dict[str, Any]]:
        """The loss [] of an update, a function of its number, and what is logged beside it."""

    def further_state(self) -> dict[str, Any]:
        """What a checkpoint holds beside weights, optimisers and the number of updates."""
        return {}

    def optimise(
        self,
        vocabulary: Iterable[Tensor],
        lr: float,
        adam_lr: float,
        beta: float,
        muon: bool = True,
    ) -> None:
        """Make the optimisers: Muon (or AdamW) for matrices at `lr`; AdamW at `adam_lr` for the
        `vocabulary`'s, those with an entry a token, and for biases and norms."""
        excluded = {id(p) for p in vocabulary}
        trained = [p for p in self.module.parameters() if p.requires_grad]
        matrices = [p for p in trained if p.ndim == 2 and id(p) not in excluded]
        ids = {id(p) for p in matrices}
        rest = [p for p in trained if id(p) not in ids]
        self._optimisers = [
            (torch.optim.AdamW(rest, lr=adam_lr, betas=(0.9, beta), weight_decay=0.0), adam_lr)
        ]
        if matrices:
            first: torch.optim.Optimizer = (
                torch.optim.Muon(matrices, lr=lr, momentum=0.95, weight_decay=0.01, ns_steps=3)
                if muon
                else torch.optim.AdamW(matrices, lr=lr, betas=(0.9, beta), weight_decay=0.0)
            )
            self._optimisers.insert(0, (first, lr))

    def checkpoint(self, device: str) -> dict[str, Any] | None:
        """The latest checkpoint; None before the first."""
        file = self.work / "run.pt"
        return torch.load(file, map_location=device, weights_only=True) if file.exists() else None

    def restore(self, state: dict[str, Any] | None) -> None:
        """Go on from a checkpoint; what was logged after it is dropped, since it is done again."""
        if state is not None:
            self.module.load_state_dict(state["module"])
            for (part, _), saved in zip(self._optimisers, state["optimisers"], strict=True):
                part.load_state_dict(saved)
            self.done = state["done"]
        if (losses := self.work / "loss.jsonl").exists():
            kept = [
                line
                for line in losses.read_text().splitlines()
                if json.loads(line)["step"] <= self.done
            ]
            losses.write_text("".join(f"{line}\n" for line in kept))

    def train(self, name: str) -> None:
        """Make the updates that are missing; `name` titles the progress bar."""
        with Progress(
            TextColumn(f"{name} {{task.description}}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
        ) as progress:
            bar = progress.add_task("", total=self.updates, completed=self.done)
            while self.done < self.updates:
                loss, noted = self.loss(self.done)
                loss.backward()
                torch.nn.utils.clip_grad_norm_(
                    [p for p in self.module.parameters() if p.requires_grad], self.clip
                )
                rate = self.rate(self.done)
                for part, base in self._optimisers:
                    for group in part.param_groups:
                        group["lr"] = base * rate
                    part.step()
                    part.zero_grad(set_to_none=True)
                self.done += 1
                if self.done % LOG_EVERY == 0 or self.done == self.updates:
                    row = {"step": self.done, "loss": round(loss.item(), 4), **noted}
                    with (self.work / "loss.jsonl").open("a") as file:
                        file.write(json.dumps(row) + "\n")
                    shown = " ".join(
                        f"{key} {value}"
                        for key, value in row.items()
                        if key not in ("step", "tokens")
                    )
                    progress.update(bar, completed=self.done, description=shown)
                if self.done % self.save_every == 0 or self.done == self.updates:
                    state = {
                        "done": self.done,
                        "module": self.module.state_dict(),
                        **self.further_state(),
                        "optimisers": [part.state_dict() for part, _ in self._optimisers],
                    }
                    torch.save(state, self.work / "run.tmp")
                    os.replace(self.work / "run.tmp", self.work / "run.pt")
