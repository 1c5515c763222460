"""The models of a pair as vLLM reads them: the folder that they lie in, or an export of it in the
user's cache."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safetensors.torch import save_file

from methods.engine import gguf, user_cache
from methods.engine.fingerprints import fingerprint
from methods.engine.source import ModelError, ModelSource

if TYPE_CHECKING:
    from torch import Tensor

    from bench.config.cell import Cell
    from bench.config.schema import Checkpoint

FORMAT = 2
"""Part of the name of an export: raise it when what is written changes."""


def target_of(checkpoint: Checkpoint) -> str:
    """Folder or hub name of a causal LM. Raises ModelError for a shape without weights."""
    source = ModelSource.of(checkpoint.source)
    if source.is_random:
        raise ModelError(
            f"{checkpoint.source}: a shape without weights, which engine=vllm cannot load; give a "
            "checkpoint"
        )
    if source.is_gguf:
        return str(gguf.converted(gguf.file_of(checkpoint.source, checkpoint.revision)))
    return checkpoint.source


def drafter_of(cell: Cell) -> str | None:
    """Folder or hub name of what drafts; None where nothing has to be loaded. Raises ModelError."""
    role = cell.drafter.options.model_role
    if role is None:
        return None
    checkpoint = cell.pair.checkpoint(role)
    if role == "eagle3" and _needs_export(checkpoint):
        return _exported(cell, role, partial(_eagle3, cell))
    if role == "medusa":
        return _exported(cell, role, partial(_medusa, checkpoint))
    if role == "draft" and ModelSource.of(checkpoint.source).is_cut:
        return _exported(cell, role, partial(_cut, cell))
    return target_of(checkpoint)


def _exported(cell: Cell, role: str, make: Callable[[Path], None]) -> str:
    prints = cell.fingerprints()
    name = f"{role}-{prints[role][:24]}-{prints['target'][:24]}-{cell.engine.dtype}-{FORMAT}"
    return str(user_cache.make_once(user_cache.cache_folder() / "vllm" / name, make))


def _needs_export(checkpoint: Checkpoint) -> bool:
    """Whether vLLM would read a head otherwise: its LM head is the target's, or its layers may be
    numbered by their outputs."""
    from methods.heads.checkpoint import find
    from methods.heads.eagle import TARGET_HEAD
    from methods.heads.eagle3_config import AUX_LAYERS

    config = find(checkpoint.source, "config.json", checkpoint.revision)
    raw = {} if config is None else json.loads(config.read_text())
    return bool(raw.get(TARGET_HEAD) or (raw.get("eagle_config") or {}).get(AUX_LAYERS))


def _eagle3(cell: Cell, folder: Path) -> None:
    """The head with the rows of the target's LM head that it uses, and its layers as indices of
    hidden states."""
    from bench.run.models import load_language_model
    from methods.heads.checkpoint import read
    from methods.heads.eagle import TARGET_HEAD
    from methods.heads.eagle3_config import AUX_LAYERS
    from methods.heads.head import load_eagle3

    checkpoint = cell.pair.checkpoint("eagle3")
    engine = cell.engine.model_copy(update={"device": "cpu"})
    target = load_language_model(cell.pair, engine, "target")
    head = load_eagle3(checkpoint.source, target, revision=checkpoint.revision, dtype=engine.dtype)
    config = read(checkpoint.source, checkpoint.revision).config
    config.pop(TARGET_HEAD, None)
    if (nested := config.get("eagle_config") or {}).pop(AUX_LAYERS, None):
        config |= {"eagle_config": nested, AUX_LAYERS: list(head.features)}
    _write(folder, config | {"torch_dtype": engine.dtype}, head.model.state_dict())


def _cut(cell: Cell, folder: Path) -> None:
    """A cut of its target as a model of its own."""
    from bench.run.models import load_language_model

    engine = cell.engine.model_copy(update={"device": "cpu"})
    model = load_language_model(cell.pair, engine, "draft")
    config = model.model.config.to_dict() | {"architectures": [type(model.model).__name__]}
    _write(folder, config, model.model.state_dict())
    model.tokenizer.save_pretrained(folder)


def _medusa(checkpoint: Checkpoint, folder: Path) -> None:
    """The heads under the type that vLLM looks for, with their true number."""
    from methods.heads.checkpoint import read
    from methods.heads.medusa import FILES, heads_alone

    heads = heads_alone(read(checkpoint.source, checkpoint.revision, FILES))
    config = {key: value for key, value in heads.config.items() if not key.startswith("medusa_num")}
    config |= {
        "model_type": "medusa",
        "architectures": ["MedusaModel"],
        "num_heads": len({name.partition(".")[0] for name in heads.tensors}),
        "num_hidden_layers": int(heads.config.get("medusa_num_layers", 1)),
        "medusa_fc_bias": True,
    }
    _write(folder, config, heads.tensors)


def _write(folder: Path, config: dict[str, Any], tensors: dict[str, Tensor]) -> None:
    (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n")
    save_file(
        {name: tensor.detach().contiguous().clone() for name, tensor in tensors.items()},
        folder / "model.safetensors",
        metadata={"format": "pt"},
    )


def identity(cell: Cell, role: str) -> list[str]:
    """Source and fingerprint of a model, as files of rules name it."""
    checkpoint = cell.pair.checkpoint(role)
    return [checkpoint.source, fingerprint(checkpoint.source, checkpoint.revision)]
