"""Models of a pair, loaded once a process, and the methods that are built on them."""

from __future__ import annotations

from functools import cache

import torch

from bench.cell import Cell
from bench.errors import described
from methods.engine.models import LanguageModel, ModelError, load_model
from methods.method import Method, build_method


def load_method(cell: Cell) -> Method:
    """The cell's method on its (cached) models. Raises ModelError and what the checkpoint's loader raises."""
    if cell.engine.threads is not None:
        torch.set_num_threads(cell.engine.threads)
    needs = cell.drafter.options.needs
    return build_method(
        _model(cell, "target"), None if needs is None else _model(cell, needs), cell.drafter.options, cell.rule.options,
        cell.decoding.sampling, cell.draft.length)


def _model(cell: Cell, role: str) -> LanguageModel:
    pair, engine = cell.pair, cell.engine
    try:
        return _load(pair.source(role), engine.dtype, engine.device, pair.revision(role), pair.trust_remote_code)
    except ModelError:
        raise
    except Exception as error:  # a torn weight file, no memory: the libraries do not say which model it was
        raise ModelError(f"pair.{role}={pair.source(role)}: cannot be loaded: {described(error)}") from error


@cache
def _load(source: str, dtype: str, device: str, revision: str | None, trust_remote_code: bool) -> LanguageModel:
    return load_model(source, dtype=dtype, device=device, revision=revision, trust_remote_code=trust_remote_code)
