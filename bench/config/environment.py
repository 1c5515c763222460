"""Where a result was made: written into the cell's folder before its first prompt, so that a crash keeps it."""

from __future__ import annotations

import hashlib
import os
import platform
import re
import subprocess
import sys
from collections.abc import Mapping
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from bench.config.paths import PROJECT, command_line, shown

PACKAGES = ("torch", "transformers", "numpy", "scipy", "statsmodels", "pandas", "datasets", "hydra-core", "omegaconf",
            "pydantic", "lm-eval", "evalplus", "wandb", "gguf")
VARIABLES = re.compile(r"(OMP|MKL|OPENBLAS|CUDA|NVIDIA|PYTORCH|TORCH|HF|TRANSFORMERS|TOKENIZERS|WANDB|LEEWAY|SLURM)_")
SECRET = re.compile(r"key|(?<![a-z])token(?![a-z])|secret|passw|credential|auth", re.IGNORECASE)
HIDDEN = "(hidden)"
LOCK = PROJECT / "requirements.lock"


def environment(argv: list[str], device: str, spread: Mapping[str, Any], models: Mapping[str, str],
                dequantised: Mapping[str, str]) -> dict[str, Any]:
    """Versions, processor, accelerator, command, commit, settings of the run; `spread`: how the target is spread over
    devices, and how many; `models` are role -> fingerprint, `dequantised` role -> GGUF file whose dequantised weights
    are the model.

    Commands read `python -m bench …`; paths start at the checkout or at the user's cache. Values of variables and
    arguments whose name sounds like a secret are hidden."""
    import torch

    return {
        "argv": [redacted(argument) for argument in command_line(argv)],
        "python": sys.version.split()[0],
        "platform": platform.platform(),
        "lock": _lock(),
        "packages": {name: found for name in PACKAGES if (found := _version(name)) is not None},
        "cpu": {"model": _cpu_model(), "cores": len(os.sched_getaffinity(0)), "threads": torch.get_num_threads()},
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "accelerator": _accelerator(device),
        "parallel": dict(spread),
        "git": _git(),
        "models": dict(models),
        "dequantised": dict(dequantised),
        "variables": {name: HIDDEN if SECRET.search(name) else shown(value)
                      for name, value in sorted(os.environ.items()) if VARIABLES.match(name)},
    }


def redacted(argument: str) -> str:
    """A command-line argument without the value of an option that sounds like a secret."""
    name, separator, _ = argument.partition("=")
    return f"{name}={HIDDEN}" if separator and SECRET.search(name) else argument


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _lock() -> str | None:
    """`sha256:…` of the dependency lock; None without one."""
    return f"sha256:{hashlib.sha256(LOCK.read_bytes()).hexdigest()}" if LOCK.exists() else None


def _cpu_model() -> str:
    info = Path("/proc/cpuinfo")
    match = re.search(r"^model name\s*:\s*(.+)$", info.read_text(), re.MULTILINE) if info.exists() else None
    return match[1] if match else platform.processor() or platform.machine()


def _accelerator(device: str) -> dict[str, Any] | None:
    import torch

    if not device.startswith("cuda"):
        return None
    properties = torch.cuda.get_device_properties(device)
    return {"name": properties.name, "memory_bytes": properties.total_memory, "count": torch.cuda.device_count(),
            "capability": f"{properties.major}.{properties.minor}", "cuda": torch.version.cuda,
            "cudnn": torch.backends.cudnn.version(), "driver": _output("nvidia-smi", "--query-gpu=driver_version",
                                                                      "--format=csv,noheader")}


@cache
def _git() -> dict[str, Any] | None:
    """The commit of the project and whether tracked files differ from it; None outside a repository."""
    commit = _output("git", "-C", str(PROJECT), "rev-parse", "HEAD")
    if commit is None:
        return None
    return {"commit": commit, "dirty": bool(_output("git", "-C", str(PROJECT), "status", "--porcelain",
                                                    "--untracked-files=no"))}


def _output(*command: str) -> str | None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
