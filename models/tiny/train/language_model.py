"""Train one causal LM of the embedded pair: early exits, growth in depth, resumable at any step."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import functional as F
from transformers import LlamaForCausalLM, PreTrainedTokenizerBase

from methods.training.packing import Batch, Packer, Stream
from methods.training.run import Optimiser, RunFiles, progress_bar
from models.tiny.train.growth import existing_model, grow, new_model

if TYPE_CHECKING:
    from models.tiny.train.recipe import Recipe


def loss_of(model: LlamaForCausalLM, batch: Batch, exits: Sequence[int], exit_weight: float) -> Tensor:
    """Weighted next-token cross-entropy (nats) of the last layer, plus `exit_weight` × the mean of the exits'.

    An exit is layer i's output through the model's own final norm and LM head (LayerSkip's early-exit loss), on a
    quarter of the rows only: the LM head is a large part of such a small model's work."""
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
        early = [nll(model.model.norm(out.hidden_states[i][:some])) for i in exits]
        loss = loss + exit_weight * sum(early, torch.zeros_like(loss)) / len(exits)
    return loss


def pair_optimiser(model: LlamaForCausalLM, recipe: Recipe) -> Optimiser:
    """Muon for the hidden matrices, AdamW for embeddings and norms."""
    matrices = [p for n, p in model.named_parameters() if p.ndim == 2 and "embed" not in n and "lm_head" not in n]
    ids = {id(p) for p in matrices}
    rest = [p for p in model.parameters() if id(p) not in ids]
    return Optimiser([
        (torch.optim.Muon(matrices, lr=recipe.lr, momentum=0.95, weight_decay=0.01, ns_steps=3), recipe.lr),
        (torch.optim.AdamW(rest, lr=recipe.adam_lr, betas=(0.9, 0.98), weight_decay=0.0), recipe.adam_lr)])


class _Run:
    """The mutable state of a training run: model, optimiser, steps and tokens done."""

    def __init__(self, recipe: Recipe, tokenizer: PreTrainedTokenizerBase, work: Path, device: str, seed: int) -> None:
        self.recipe, self.device, self.files = recipe, device, RunFiles(work)
        self.step = self.tokens = 0
        state = self.files.load(device)
        layers = state["layers"] if state else recipe.growth[0].layers
        sizes = {"layers": layers, "hidden": recipe.hidden, "intermediate": recipe.intermediate,
                 "heads": recipe.heads, "kv_heads": recipe.kv_heads}
        fresh = recipe.start is None or state is not None  # the checkpoint's weights replace them below
        self.model = _on(device, new_model(tokenizer, seed=seed, **sizes) if fresh
                         else existing_model(str(recipe.start), tokenizer, **sizes))
        self.optimiser = pair_optimiser(self.model, recipe)
        if state:
            self.model.load_state_dict(state["model"])
            self.optimiser.load_state_dict(state["optimiser"])
            self.step, self.tokens = state["step"], state["tokens"]
        self.files.drop_after(self.step)

    @property
    def layers(self) -> int:
        """The model's present depth."""
        return int(self.model.config.num_hidden_layers)

    def save(self) -> None:
        self.files.save({"step": self.step, "tokens": self.tokens, "layers": self.layers,
                         "model": self.model.state_dict(), "optimiser": self.optimiser.state_dict()})

    def grow(self, layers: int) -> None:
        self.model = _on(self.device, grow(self.model, layers))
        self.optimiser = pair_optimiser(self.model, self.recipe)

    def exits(self) -> list[int]:
        """The recipe's exit layers, scaled to the present depth."""
        final = self.recipe.growth[-1].layers
        return sorted({e * self.layers // final for e in self.recipe.exit_layers} - {0, self.layers})

    def log(self, loss: float) -> None:
        self.files.log({"step": self.step, "tokens": self.tokens, "layers": self.layers, "loss": round(loss, 4)})


def _on(device: str, model: Any) -> LlamaForCausalLM:
    moved: LlamaForCausalLM = model.to(device)
    return moved


def train(recipe: Recipe, tokenizer: PreTrainedTokenizerBase, stream: Stream, work: Path, *, device: str, seed: int,
          name: str) -> LlamaForCausalLM:
    """Train one model, or resume its training from `work`; returns it in eval mode.

    `name` titles the progress bar."""
    run = _Run(recipe, tokenizer, work, device, seed)
    packer = Packer(tokenizer, stream, length=recipe.row_tokens, prompt_weight=recipe.prompt_weight)
    autocast = recipe.autocast if recipe.autocast is not None else device != "cpu"
    wanted = recipe.compile and (device != "cpu" or shutil.which("g++") is not None)
    objective: Callable[..., Tensor] = torch.compile(loss_of) if wanted else loss_of  # 1.4 times faster on a CPU
    with progress_bar(name) as progress:
        bar = progress.add_task("", total=recipe.steps, completed=run.step)
        for stage, end in recipe.plan():
            if run.step < end and run.layers < stage.layers:
                run.grow(stage.layers)
            while run.step < end:
                rows = stage.batch_tokens // recipe.row_tokens
                batch = packer.batch(run.step, rows, stage.exercises).to(device)
                with torch.autocast(device, torch.bfloat16, enabled=autocast):
                    loss = objective(run.model, batch, run.exits(), recipe.exit_weight)
                loss.backward()
                torch.nn.utils.clip_grad_norm_(run.model.parameters(), 1.0)
                run.optimiser.step(recipe.rate(run.step))
                run.step += 1
                run.tokens += stage.batch_tokens
                if run.step % 10 == 0:
                    run.log(loss.item())
                    shown = f"layers {stage.layers} loss {loss.item():.3f}"
                    progress.update(bar, completed=run.step, description=shown)
                if run.step % recipe.save_every == 0 or run.step == end:
                    run.save()
    run.model.eval()
    return run.model


def export(model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerBase, folder: Path) -> None:
    """Write a plain HF folder: bfloat16 safetensors, config, generation config, tokenizer."""
    copy: Any = type(model)(model.config)
    copy.load_state_dict(model.state_dict())
    copy.to(torch.bfloat16).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
