"""Train one causal LM of the embedded pair: early exits, growth in depth, resumable at any step."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from itertools import accumulate
from pathlib import Path

import torch
from pydantic import BaseModel, ConfigDict, Field, PositiveInt, model_validator
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from torch import Tensor
from torch.nn import functional as F

from methods.training.muon import Muon
from methods.training.packing import Batch, Packer
from methods.training.pair.growth import grow, new_model


class Stage(BaseModel):
    """`tokens` training tokens at a depth of `layers`, `batch_tokens` a step; `exercises` is the share of exercises
    among its conversations."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    layers: PositiveInt
    tokens: PositiveInt
    batch_tokens: PositiveInt = 4096
    exercises: float = Field(0.0, ge=0, le=1)


class Recipe(BaseModel):
    """Sizes and schedule of one model; every field is explained in conf/train_pair.yaml."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    hidden: PositiveInt
    intermediate: PositiveInt
    heads: PositiveInt
    kv_heads: PositiveInt
    growth: list[Stage]
    exit_layers: list[PositiveInt]
    exit_weight: float
    row_tokens: PositiveInt
    lr: float
    adam_lr: float
    warmup: int
    decay: float = 0.5
    prompt_weight: float
    save_every: PositiveInt
    compile: bool = True

    @model_validator(mode="after")
    def _exits_are_inside(self) -> Recipe:
        depth = self.growth[-1].layers
        if any(e >= depth for e in self.exit_layers):
            raise ValueError(f"exit_layers={self.exit_layers}: an early exit must come before the last of {depth} "
                             "layers")
        return self

    def plan(self) -> list[tuple[Stage, int]]:
        """Each stage with the first step after it."""
        ends = accumulate(stage.tokens // stage.batch_tokens for stage in self.growth)
        return list(zip(self.growth, ends, strict=True))

    @property
    def steps(self) -> int:
        return self.plan()[-1][1]

    def rate(self, step: int) -> float:
        """Warm up, stay, then fall linearly to zero over the last `decay` of all steps."""
        return min((step + 1) / self.warmup, 1.0, (self.steps - step) / (self.decay * self.steps))


def loss_of(model, batch: Batch, exits: list[int], exit_weight: float) -> Tensor:
    """Weighted next-token cross-entropy (nats) of the last layer, plus `exit_weight` x the mean of the exits'.

    An exit is layer i's output through the model's own final norm and LM head (LayerSkip's early-exit loss), here on a
    quarter of the rows: the LM head is a good part of such a small model's work."""
    out = model.model(input_ids=batch.input_ids, position_ids=batch.positions,
                      attention_mask=batch.attention_mask(), use_cache=False, output_hidden_states=bool(exits))

    def nll(hidden: Tensor) -> Tensor:
        rows = len(hidden)
        target, weight = batch.input_ids[:rows, 1:].flatten(), batch.weight[:rows, 1:].flatten()
        logits = model.lm_head(hidden[:, :-1]).flatten(0, 1).float()
        return (F.cross_entropy(logits, target, reduction="none") * weight).sum() / weight.sum()

    loss = nll(out.last_hidden_state)
    if exits:
        some = max(1, len(batch.input_ids) // 4)
        early = (model.model.norm(out.hidden_states[i][:some]) for i in exits)
        loss = loss + exit_weight * sum(map(nll, early)) / len(exits)
    return loss


class Optimiser:
    """Muon for the hidden matrices, AdamW for embeddings and norms, one learning-rate factor for both."""

    def __init__(self, model, recipe: Recipe):
        matrices = [p for n, p in model.named_parameters() if p.ndim == 2 and "embed" not in n and "lm_head" not in n]
        ids = {id(p) for p in matrices}
        rest = [p for p in model.parameters() if id(p) not in ids]
        self.parts = [
            Muon(matrices, lr=recipe.lr, momentum=0.95, weight_decay=0.01, ns_steps=3),
            torch.optim.AdamW(rest, lr=recipe.adam_lr, betas=(0.9, 0.98), weight_decay=0.0),
        ]
        self.base = [recipe.lr, recipe.adam_lr]

    def step(self, rate: float) -> None:
        for part, base in zip(self.parts, self.base, strict=True):
            for group in part.param_groups:
                group["lr"] = base * rate
            part.step()
            part.zero_grad(set_to_none=True)

    def state_dict(self) -> list[dict]:
        return [part.state_dict() for part in self.parts]

    def load_state_dict(self, states: list[dict]) -> None:
        for part, state in zip(self.parts, states, strict=True):
            part.load_state_dict(state)


class Run:
    """The mutable state of a training run, and its checkpoint: `work/state.pt`, `work/loss.jsonl`."""

    def __init__(self, recipe: Recipe, tokenizer, work: Path, device: str, seed: int):
        self.recipe, self.work, self.device = recipe, work, device
        self.step = self.tokens = 0
        self.sizes = dict(hidden=recipe.hidden, intermediate=recipe.intermediate, heads=recipe.heads,
                          kv_heads=recipe.kv_heads)
        work.mkdir(parents=True, exist_ok=True)
        saved = work / "state.pt"
        state = torch.load(saved, map_location=device, weights_only=True) if saved.exists() else None
        layers = state["layers"] if state else recipe.growth[0].layers
        self.model = new_model(tokenizer, layers=layers, seed=seed, **self.sizes).to(device)
        self.optimiser = Optimiser(self.model, recipe)
        if state:
            self.model.load_state_dict(state["model"])
            self.optimiser.load_state_dict(state["optimiser"])
            self.step, self.tokens = state["step"], state["tokens"]
        self._forget_after(self.step)

    def _forget_after(self, step: int) -> None:
        """Drop the logged losses that a killed run had reached beyond its last checkpoint."""
        log = self.work / "loss.jsonl"
        if log.exists():
            kept = [line for line in log.read_text().splitlines() if json.loads(line)["step"] <= step]
            log.write_text("".join(f"{line}\n" for line in kept))

    def save(self) -> None:
        state = {"step": self.step, "tokens": self.tokens, "layers": self.model.config.num_hidden_layers,
                 "model": self.model.state_dict(), "optimiser": self.optimiser.state_dict()}
        torch.save(state, self.work / "state.tmp")
        os.replace(self.work / "state.tmp", self.work / "state.pt")

    def grow(self, layers: int) -> None:
        self.model = grow(self.model, layers).to(self.device)
        self.optimiser = Optimiser(self.model, self.recipe)

    def exits(self) -> list[int]:
        """The recipe's exit layers, scaled to the present depth."""
        depth, final = self.model.config.num_hidden_layers, self.recipe.growth[-1].layers
        return sorted({e * depth // final for e in self.recipe.exit_layers} - {0, depth})

    def log(self, loss: float) -> None:
        with (self.work / "loss.jsonl").open("a") as f:
            f.write(json.dumps({"step": self.step, "tokens": self.tokens,
                                "layers": self.model.config.num_hidden_layers, "loss": round(loss, 4)}) + "\n")


def train(recipe: Recipe, tokenizer, stream: Callable, work: Path, *, device: str, seed: int, name: str):
    """Train (or go on training) one model; returns it in eval mode. `stream(step, exercises)` yields conversations, a
    function of its arguments alone."""
    run = Run(recipe, tokenizer, work, device, seed)
    packer = Packer(tokenizer, stream, length=recipe.row_tokens, prompt_weight=recipe.prompt_weight)
    # compiled where a compiler is at hand: about 1.4x on a CPU; the mathematics is the same
    compiler = device != "cpu" or shutil.which("g++")
    objective = torch.compile(loss_of) if recipe.compile and compiler else loss_of
    columns = (TextColumn(f"{name} {{task.description}}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns) as progress:
        bar = progress.add_task("", total=recipe.steps, completed=run.step)
        for stage, end in recipe.plan():
            if run.step < end and run.model.config.num_hidden_layers < stage.layers:
                run.grow(stage.layers)
            while run.step < end:
                batch = packer.batch(run.step, stage.batch_tokens // recipe.row_tokens, stage.exercises)
                batch = Batch(*(getattr(batch, f).to(device) for f in Batch.__slots__))
                with torch.autocast("cuda", torch.bfloat16, enabled=device != "cpu"):
                    loss = objective(run.model, batch, run.exits(), recipe.exit_weight)
                loss.backward()
                torch.nn.utils.clip_grad_norm_(run.model.parameters(), 1.0)
                run.optimiser.step(recipe.rate(run.step))
                run.step += 1
                run.tokens += stage.batch_tokens
                if run.step % 10 == 0:
                    run.log(loss.item())
                    told = f"layers {stage.layers} loss {loss.item():.3f}"
                    progress.update(bar, completed=run.step, description=told)
                if run.step % recipe.save_every == 0 or run.step == end:
                    run.save()
    return run.model.eval()


def export(model, tokenizer, folder: Path) -> None:
    """Write a plain HF folder: bfloat16 safetensors, config, generation config, tokenizer."""
    copy = type(model)(model.config)
    copy.load_state_dict(model.state_dict())
    copy.to(torch.bfloat16).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
