"""Models, loaded once a process and pair, and the methods that are built on them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch

from bench.config.cell import Cell
from bench.config.errors import format_exception
from bench.config.paths import TINY
from bench.config.schema import Engine, Pair
from methods.engine.language_model import LanguageModel
from methods.engine.loading import load_model
from methods.engine.source import ModelError
from methods.heads.head import Head
from methods.method import Method, build_method

DEFAULT_THREADS = torch.get_num_threads()
_loaded: dict[tuple, LanguageModel | Head] = {}


def load_method(cell: Cell) -> Method:
    """The cell's method on its models. Raises ModelError."""
    torch.set_num_threads(cell.engine.threads or DEFAULT_THREADS)
    drafter = cell.drafter.options
    target, model = (_model(cell, role) if role else None for role in ("target", drafter.model_role))
    return build_method(target, model, drafter, cell.rule.options, cell.decoding.sampling, cell.draft.length,
                        None if cell.pruning is None else cell.pruning.options)


def load_language_model(pair: Pair, engine: Engine, role: str) -> LanguageModel:
    """A causal LM of a pair; `role` is target or draft. Raises ConfigError, ModelError."""
    pair.check(role)
    source = pair.source(role)
    with _naming(role, source):
        return load_model(source, dtype=engine.dtype, device=engine.device, revision=pair.revision(role),
                          trust_remote_code=pair.trust_remote_code, chat_template=pair.chat_template,
                          shape_tokenizer=TINY / "target")


def release_all_but(cells: Sequence[Cell]) -> None:
    """Forget the models that none of these cells' pairs has, so that their memory is free for those to come."""
    wanted = {_key(cell, role) for cell in cells for role in {"target", "draft", *cell.roles}}
    for key in set(_loaded) - wanted:
        del _loaded[key]


def _model(cell: Cell, role: str) -> LanguageModel | Head:
    """The target, or the drafter's own model: a causal LM or a head of the target."""
    key = _key(cell, role)
    if key not in _loaded:
        pair, engine = cell.pair, cell.engine
        if role in ("target", "draft"):
            _loaded[key] = load_language_model(pair, engine, role)
        else:
            target = _model(cell, "target")
            with _naming(role, pair.source(role)):
                _loaded[key] = cell.drafter.options.load(
                    pair.source(role), target, revision=pair.revision(role), dtype=engine.dtype, device=engine.device,
                    trust_remote_code=pair.trust_remote_code)
    return _loaded[key]


@contextmanager
def _naming(role: str, source: str) -> Iterator[None]:
    """Turn whatever loading raises (a torn weight file, no memory) into a ModelError that names the model."""
    try:
        yield
    except ModelError:
        raise
    except Exception as error:
        raise ModelError(f"pair.{role}={source}: cannot be loaded: {format_exception(error)}") from error


def _key(cell: Cell, role: str) -> tuple:
    """A causal LM is the same model in every role; a head is bound to the target whose embedding it shares."""
    pair, engine = cell.pair, cell.engine
    key = (pair.source(role), engine.dtype, engine.device, pair.revision(role), pair.trust_remote_code,
           pair.chat_template)
    return key if role in ("target", "draft") else (*key, role, _key(cell, "target"))
