"""What the runner needs of an engine. `bench.run.models` is the first: the loop of this project, in
this process.

An engine answers prompts with a cell's method and says what it counted, what the target thought of
the tokens, and how long it took. Prompts, conversations, scores, the store and the clock's rotation
are the runner's own (docs/adding.md)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from torch import Tensor

    from bench.config.cell import Cell
    from bench.run.models import ModelPool
    from bench.run.phases import Phases
    from methods.batch import Generation
    from methods.decode import Limits, Request
    from methods.engine.language_model import LanguageModel

ENGINES = {"native": "bench.run.models:ModelPool", "vllm": "bench.run.vllm.engine:Vllm"}
"""`engine.name` -> module:class, imported when a cell asks for it."""


class LoadedMethod(Protocol):
    """A cell's method, ready to decode."""

    @property
    def target(self) -> LanguageModel:
        """The target's tokenizer and chat template."""

    def check_fit(self, prompt_tokens: int, limits: Limits) -> None:
        """Raises TooLong when the positions of a model do not suffice for a prompt and its
        answer."""

    def generate(self, requests: Sequence[Request], limits: Limits) -> list[Generation]:
        """Decode a batch, as the clock times it: the same tokens, counts and seconds whatever else
        is in the batch."""

    def generate_with_nll(self, requests: Sequence[Request], limits: Limits) -> list[Generation]:
        """As `generate`, with each generation's `nll`."""

    def generate_traced(self, requests: Sequence[Request], limits: Limits) -> list[Generation]:
        """As `generate_with_nll`, with each generation's `trace`. Raises NotImplementedError, one
        line, where the engine shows no verified positions."""

    def next_logits(self, ids: Sequence[int]) -> Tensor:
        """[V] float32: the target's raw logits behind these tokens; what decides whether rounding
        explains a difference."""

    def phases(self, request: Request, limits: Limits) -> Phases | None:
        """Where the time of one answer's cycles goes; None where the engine does not say."""


class DecodingEngine(Protocol):
    """Loads the methods of cells, and keeps their models loaded."""

    def load(self, cell: Cell) -> LoadedMethod:
        """The cell's method. Raises ModelError, one line."""

    def keep_only(self, cells: Sequence[Cell]) -> None:
        """Free what these cells do not need."""

    def prepare(self, cells: Sequence[Cell]) -> None:
        """Called before other processes decode these cells: find what all of them must share."""


class Engines:
    """The engines of this process; an engine itself."""

    def __init__(self) -> None:
        self._made: dict[str, DecodingEngine] = {}

    @property
    def native(self) -> ModelPool:
        """The loop of this project, for analyses that look inside the models."""
        from bench.run.models import ModelPool

        engine = self._engine("native")
        assert isinstance(engine, ModelPool)
        return engine

    def load(self, cell: Cell) -> LoadedMethod:
        """As `DecodingEngine.load`."""
        return self._engine(cell.engine.name).load(cell)

    def keep_only(self, cells: Sequence[Cell]) -> None:
        """As `DecodingEngine.keep_only`."""
        for name, engine in self._made.items():
            engine.keep_only([cell for cell in cells if cell.engine.name == name])

    def prepare(self, cells: Sequence[Cell]) -> None:
        """As `DecodingEngine.prepare`."""
        for name in {cell.engine.name for cell in cells}:
            self._engine(name).prepare([cell for cell in cells if cell.engine.name == name])

    def _engine(self, name: str) -> DecodingEngine:
        if name not in self._made:
            module, _, attribute = ENGINES[name].partition(":")
            make: Callable[[], DecodingEngine] = getattr(import_module(module), attribute)
            self._made[name] = make()
        return self._made[name]
