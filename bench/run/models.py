"""`engine.name=native`: the models of a command, each loaded once, and the methods built on them,
which this project's decode loop (`methods.decode`) runs in this process; and how many CPU threads
the clock uses."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Hashable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

import torch

from bench.config.paths import TINY
from bench.run.phases import Phases
from methods.decode import Limits, Request, check_fit, generate
from methods.drafters._heads import check_head
from methods.engine import probe
from methods.engine.device import DEFAULT_THREADS
from methods.engine.families import check_generation_config
from methods.engine.graphs import Graphs
from methods.engine.loading import load_cut, load_model
from methods.engine.margin import next_logits
from methods.engine.products import SMALLEST, Products
from methods.engine.source import ModelError, ModelSource
from methods.engine.texts import check_same_vocabulary, shared_rows
from methods.likelihood import generate_with_nll
from methods.method import Method, build_method
from methods.trace import generate_traced
from results.store.errors import format_exception

if TYPE_CHECKING:
    from torch import Tensor

    from bench.config.cell import Cell
    from bench.config.engine import EngineOptions
    from bench.config.schema import Pair
    from methods.batch import Generation
    from methods.engine.language_model import LanguageModel
    from methods.heads.head import Head

# what modules made stays: a full collection would look through all of it, 0.3 s at each start
gc.freeze()
LEAD, TRIALS, PAUSE_S = 1.1, 3, 0.5
"""How many times quicker fewer threads must be to be taken, in how many trials, and the seconds
between two of them."""
ROUNDS = 20
"""Of products, by which the threads of a small model are chosen."""
Loaded = TypeVar("Loaded")


def load_language_model(
    pair: Pair,
    engine: EngineOptions,
    role: str,
    target: LanguageModel | None = None,
    penalty: float = 1.0,
) -> LanguageModel:
    """A causal LM of a pair; `role` is target or draft. `target`: the pair's, where it is loaded
    already; a draft that is a cut shares its weights. `penalty`: the repetition penalty that is
    applied. Raises ValueError, ModelError."""
    pair.check(role)
    checkpoint = pair.checkpoint(role)
    if role == "target" and not pair.ignore_generation_config:
        check_generation_config(checkpoint.source, checkpoint.revision, fetch=True, penalty=penalty)
    if role == "draft" and ModelSource.of(checkpoint.source).is_cut:
        cut = load_cut(checkpoint.source, target or load_language_model(pair, engine, "target"))
        probe.check(cut)
        return cut
    model = load_model(
        checkpoint.source,
        dtype=engine.dtype,
        device=engine.device,
        revision=checkpoint.revision,
        trust_remote_code=pair.trust_remote_code,
        chat_template=pair.chat_template,
        thinking=pair.thinking if role == "target" else None,
        shape_tokenizer=TINY / "target",
        decoder=engine.decoder,
        ranks=engine.devices if engine.parallel == "tensor" and role == "target" else 1,
        devices=engine.devices if engine.parallel == "layers" and role == "target" else 1,
        check=False,
    )
    model.graphs = Graphs() if engine.graphs == "on" else None
    if engine.packs:
        model.products = Products.of(model.model, DEFAULT_THREADS)
    probe.check(model)
    return model


@dataclass(frozen=True, slots=True)
class NativeMethod:
    """As `bench.run.engine.LoadedMethod`."""

    method: Method

    @property
    def target(self) -> LanguageModel:
        return self.method.target

    def check_fit(self, prompt_tokens: int, limits: Limits) -> None:
        check_fit(self.method, prompt_tokens, limits)

    def generate(self, requests: Sequence[Request], limits: Limits) -> list[Generation]:
        return generate(self.method, requests, limits)

    def generate_with_nll(self, requests: Sequence[Request], limits: Limits) -> list[Generation]:
        return generate_with_nll(self.method, requests, limits)

    def generate_traced(self, requests: Sequence[Request], limits: Limits) -> list[Generation]:
        return generate_traced(self.method, requests, limits)

    def next_logits(self, ids: Sequence[int]) -> Tensor:
        logits, sampling = next_logits(self.target, ids), self.method.sampling
        if not sampling.penalises:
            return logits
        return sampling.penalised(logits, torch.tensor(ids, device=logits.device))

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


class ModelPool:
    """Loaded models by their source and settings, as `bench.run.engine.DecodingEngine`; cells that
    share a model share its weights."""

    def __init__(self) -> None:
        self._language_models: dict[Hashable, LanguageModel] = {}
        self._heads: dict[Hashable, Head] = {}
        self._narrow: dict[tuple[int, int], LanguageModel] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        """Every other process has a pool of its own."""
        return _own_pool, ()

    def __len__(self) -> int:
        return len(self._language_models) + len(self._heads)

    def load(self, cell: Cell) -> NativeMethod:
        """The cell's method, on models loaded where they are not yet in the pool. Raises
        ModelError."""
        drafter = cell.drafter.options
        target = self._language_model(cell, "target")
        model: LanguageModel | Head | None = None
        if drafter.model_role == "draft":
            model = draft = self._language_model(cell, "draft")
            check_same_vocabulary(target, draft)
            if (rows := shared_rows(target, draft)) is not None:
                target, model = self._narrowed(target, rows), self._narrowed(draft, rows)
        elif drafter.model_role is not None:
            model = self._model(cell, drafter.model_role)
        pruning = None if cell.pruning is None else cell.pruning.options
        rule, sampling = cell.rule.options, cell.decoding.sampling
        return NativeMethod(
            build_method(target, model, drafter, rule, sampling, cell.draft.length, pruning)
        )

    def prepare(self, cells: Sequence[Cell]) -> None:
        """Load models of these cells that were not yet loaded on this machine, which compares them
        with transformers' own."""
        pool = ModelPool()
        for cell in cells:
            with suppress(Exception):  # whoever loads it to decode records why it cannot be loaded
                if None in cell.probed().values():
                    pool.load(cell)

    def _narrowed(self, model: LanguageModel, rows: int) -> LanguageModel:
        """The model without rows of padding that the other of its pair lacks, made once."""
        if model.vocab_size == rows:
            return model
        if (id(model), rows) not in self._narrow:
            self._narrow[id(model), rows] = model.narrowed(rows)
        return self._narrow[id(model), rows]

    def keep_only(self, cells: Sequence[Cell]) -> None:
        """Free the memory of models that these cells' pairs do not have."""
        wanted = {
            _key(cell, role) for cell in cells for role in {*cell.pair.causal_roles, *cell.roles}
        }
        for key in set(self._language_models) - wanted:
            del self._language_models[key]
        kept = {id(model) for model in self._language_models.values()}
        self._narrow = {key: model for key, model in self._narrow.items() if key[0] in kept}
        for key in set(self._heads) - wanted:
            del self._heads[key]

    def _model(self, cell: Cell, role: str) -> LanguageModel | Head:
        if role in cell.pair.causal_roles:
            return self._language_model(cell, role)
        target = self._language_model(cell, "target")
        return _kept(self._heads, cell, role, lambda: _load_head(cell, role, target))

    def _language_model(self, cell: Cell, role: str) -> LanguageModel:
        def load() -> LanguageModel:
            target = None if role == "target" else self._language_model(cell, "target")
            penalty = cell.decoding.repetition_penalty
            return load_language_model(cell.pair, cell.engine, role, target, penalty)

        return _kept(self._language_models, cell, role, load)


@cache
def _own_pool() -> ModelPool:
    return ModelPool()


def _load_head(cell: Cell, role: str, target: LanguageModel) -> Head:
    from methods.heads.head import Head

    checkpoint = cell.pair.checkpoint(role)
    head = cell.drafter.options.load(
        checkpoint.source,
        target,
        revision=checkpoint.revision,
        dtype=cell.engine.dtype,
        device=cell.engine.device,
    )
    if isinstance(head, Head) and target.divided is None:
        check_head(head)
    return head


def _kept(
    models: dict[Hashable, Loaded], cell: Cell, role: str, load: Callable[[], Loaded]
) -> Loaded:
    """The model in a role, loaded where `models` does not hold it yet. Raises ModelError."""
    key = _key(cell, role)
    if key not in models:
        try:
            models[key] = load()
        except ModelError:
            raise
        # a torn weight file, no memory: the libraries do not name the model
        except Exception as error:
            source = cell.pair.checkpoint(role).source
            raise ModelError(
                f"pair.{role}={source}: cannot be loaded: {format_exception(error)}"
            ) from error
    return models[key]


def _key(cell: Cell, role: str) -> Hashable:
    """A causal LM is the same model in every role. A head, or a draft cut out of its target,
    belongs to that target: it shares its weights."""
    pair, engine = cell.pair, cell.engine
    checkpoint = pair.checkpoints.get(role)
    settings = (
        (engine.dtype, engine.device, engine.decoder, engine.graphs),
        (engine.pack, engine.parallel, engine.devices),
        (pair.trust_remote_code, pair.chat_template, pair.thinking),
    )
    key = checkpoint, *settings
    is_cut = role == "draft" and checkpoint is not None and ModelSource.of(checkpoint.source).is_cut
    shares = is_cut or role not in pair.causal_roles
    return (*key, role, _key(cell, "target")) if shares else key


def use_threads(engine: EngineOptions) -> int:
    """Set the number of CPU threads of this process, as engine.threads asks; null: the quickest
    number. Returns it."""
    torch.set_num_threads(engine.threads or quickest_threads(DEFAULT_THREADS))
    return torch.get_num_threads()


@cache
def quickest_threads(most: int) -> int:
    """The number of CPU threads for a clock: `most`, unless fewer, a power of two, are quicker by
    `LEAD` in each of `TRIALS` trials. Noise of a tenth of a second on a busy core must not choose
    the number for a whole session."""
    quickest = []
    for trial in range(TRIALS):
        time.sleep(PAUSE_S if trial else 0.0)
        seconds = _seconds(most)
        quickest.append(min(seconds, key=seconds.__getitem__))
        if seconds[quickest[-1]] * LEAD > seconds[most]:
            return most
    return max(quickest)


def decoding_threads(target: LanguageModel) -> int:
    """The number of CPU threads to decode with where nothing is timed: one for a model whose
    weights the caches hold, unless all are clearly quicker. On a busy machine two threads wait for
    each other in every product."""
    size = sum(weight.nbytes for weight in target.model.parameters())
    fits = target.device.type == "cpu" and size < SMALLEST
    return threads_of_small(DEFAULT_THREADS) if fits else DEFAULT_THREADS


@cache
def threads_of_small(most: int) -> int:
    """1, unless `most` are quicker by `LEAD` in each of `TRIALS` trials with the weights of a small
    model."""
    for _ in range(TRIALS if most > 1 else 0):
        alone, together = _small_products(1, most)
        if together * LEAD > alone:
            return 1
    return most


def _small_products(*counts: int) -> list[float]:
    """For each number of threads the seconds of products with a few tokens, one after another, each
    of a weight that takes one MiB. The numbers take turns, and all rounds count: on a busy machine
    some go well by chance. Takes a hundredth of a second or so."""
    weights, tokens = torch.zeros(8, 512, 512), torch.zeros(4, 512)
    seconds = [0.0] * len(counts)
    for _ in range(ROUNDS):
        for place, count in enumerate(counts):
            torch.set_num_threads(count)
            began = time.perf_counter()
            for weight in weights:
                torch.mm(tokens, weight)
            seconds[place] += time.perf_counter() - began
    return seconds


def _seconds(most: int) -> dict[int, float]:
    """Number of threads, a power of two or `most` -> the least time of five, in seconds, to
    multiply 32 MB of weights with a few tokens. The numbers take turns; all of it takes a tenth of
    a second or so."""
    counts = sorted({most, *(1 << power for power in range(most.bit_length()))})
    weights, tokens = torch.zeros(8, 1024, 1024), torch.zeros(8, 8, 1024)
    seconds = dict.fromkeys(counts, float("inf"))
    for count in counts * 5 if len(counts) > 1 else []:
        torch.set_num_threads(count)
        began = time.perf_counter()
        torch.bmm(tokens, weights)
        seconds[count] = min(seconds[count], time.perf_counter() - began)
    return seconds
