"""Models, loaded once a process and pair, and the methods that are built on them."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from bench.cell import Cell
from bench.errors import described
from methods.engine.models import LanguageModel, ModelError, load_model
from methods.method import Method, build_method

DEFAULT_THREADS = torch.get_num_threads()
_loaded: dict[tuple, LanguageModel] = {}


def load_method(cell: Cell) -> Method:
    """The cell's method on its models. Raises ModelError."""
    torch.set_num_threads(cell.engine.threads or DEFAULT_THREADS)
    needs = cell.drafter.options.needs
    return build_method(
        _model(cell, "target"), None if needs is None else _model(cell, needs), cell.drafter.options, cell.rule.options,
        cell.decoding.sampling, cell.draft.length)


def release_all_but(cells: Sequence[Cell]) -> None:
    """Forget the models that none of these cells' pairs has, so that their memory is free for those to come."""
    wanted = {_key(cell, role) for cell in cells for role in ("target", "draft")}
    for key in set(_loaded) - wanted:
        del _loaded[key]


def _model(cell: Cell, role: str) -> LanguageModel:
    key = _key(cell, role)
    if key not in _loaded:
        source, dtype, device, revision, trusted = key
        try:
            _loaded[key] = load_model(source, dtype=dtype, device=device, revision=revision, trust_remote_code=trusted)
        except ModelError:
            raise
        except Exception as error:  # a torn weight file, no memory: the libraries do not say which model it was
            raise ModelError(f"pair.{role}={source}: cannot be loaded: {described(error)}") from error
    return _loaded[key]


def _key(cell: Cell, role: str) -> tuple:
    pair, engine = cell.pair, cell.engine
    return pair.source(role), engine.dtype, engine.device, pair.revision(role), pair.trust_remote_code
