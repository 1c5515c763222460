"""Where a result was made: written into the cell's folder before its first prompt, so that a crash
keeps it."""

from __future__ import annotations

import hashlib
import os
import platform
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from bench.config.paths import PROJECT, command_line, shown
from methods.engine.processor import KERNELS, described
from results.store.errors import redacted, redacted_word

PACKAGES = (
    "torch",
    "transformers",
    "numpy",
    "scipy",
    "pandas",
    "datasets",
    "hydra-core",
    "omegaconf",
    "pydantic",
    "lm-eval",
    "evalplus",
    "wandb",
    "gguf",
)
VARIABLES = frozenset(
    (
        "OMP_NUM_THREADS",
        "OMP_PROC_BIND",
        "OMP_PLACES",
        "OMP_WAIT_POLICY",
        "GOMP_CPU_AFFINITY",
        "KMP_AFFINITY",
        "KMP_BLOCKTIME",
        "MKL_NUM_THREADS",
        "MKL_CBWR",
        "MKL_ENABLE_INSTRUCTIONS",
        "ONEDNN_MAX_CPU_ISA",
        "CUDA_VISIBLE_DEVICES",
        "CUDA_LAUNCH_BLOCKING",
        "CUDA_DEVICE_MAX_CONNECTIONS",
        "CUBLAS_WORKSPACE_CONFIG",
        "NVIDIA_VISIBLE_DEVICES",
        "NVIDIA_TF32_OVERRIDE",
        "NCCL_ALGO",
        "NCCL_PROTO",
        "NCCL_P2P_DISABLE",
        "NCCL_IB_DISABLE",
        "PYTORCH_ALLOC_CONF",
        "PYTORCH_CUDA_ALLOC_CONF",
        "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE",
        "TORCH_COMPILE_DISABLE",
        "VLLM_ATTENTION_BACKEND",
        "VLLM_CPU_KVCACHE_SPACE",
        "VLLM_CPU_OMP_THREADS_BIND",
        "HF_HOME",
        "HF_ENDPOINT",
        "HF_HUB_OFFLINE",
        "TOKENIZERS_PARALLELISM",
        "LEEWAY_CACHE",
        "LEEWAY_LOCK",
        "LEEWAY_VLLM_PYTHON",
        "SLURM_JOB_ID",
        "SLURM_ARRAY_TASK_ID",
        "SLURM_JOB_PARTITION",
        "SLURM_JOB_NODELIST",
        "SLURM_CPUS_PER_TASK",
        "SLURM_GPUS_ON_NODE",
        "WORLD_SIZE",
        "LD_PRELOAD",
        "MALLOC_CONF",
        "PYTHONHASHSEED",
    )
)
"""Environment variables that matter to a measurement; no others are recorded."""
LOCK = PROJECT / "requirements.lock"
DECIDE = ("bench", "methods", "tasks", "conf")


def environment(
    argv: list[str],
    device: str,
    spread: Mapping[str, Any],
    models: Mapping[str, str],
    dequantised: Mapping[str, str],
) -> dict[str, Any]:
    """Versions, processor, accelerator, command, commit, settings of the run; `spread`: how the
    target is spread over devices, and how many; `models` are role -> fingerprint, `dequantised`
    role -> GGUF file whose dequantised weights are the model.

    Commands read `python -m bench …`; paths start at the checkout or at the user's cache. Of
    variables only VARIABLES are recorded. Secrets are as `redacted` shows them."""
    import torch

    return {
        "argv": [redacted_word(word) for word in command_line(argv)],
        "python": sys.version.split()[0],
        "platform": platform.platform(),
        "lock": _lock(),
        "packages": _versions(),
        "cpu": {
            "model": described("model name") or platform.processor() or platform.machine(),
            "family": _family(),
            "products": str(KERNELS),
            "cores": len(os.sched_getaffinity(0)),
            "threads": torch.get_num_threads(),
        },
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "accelerator": _accelerator(device),
        "parallel": dict(spread),
        "git": checked_out(),
        "code": code_digest(),
        "models": dict(models),
        "dequantised": dict(dequantised),
        "variables": {
            name: shown(redacted(value))
            for name, value in sorted(os.environ.items())
            if name in VARIABLES
        },
    }


def _versions() -> dict[str, str]:
    versions = {}
    for package in PACKAGES:
        with suppress(PackageNotFoundError):
            versions[package] = version(package)
    return versions


def _lock() -> str | None:
    """`sha256:…` of the dependency lock; None without one."""
    return f"sha256:{hashlib.sha256(LOCK.read_bytes()).hexdigest()}" if LOCK.exists() else None


@cache
def code_digest() -> str:
    """`sha256:…` of what decides a result: the Python and YAML files of `DECIDE`, by name and
    content. Two commits that differ in reports, plots, tests or pages alone share it."""
    digest = hashlib.sha256()
    files = (file for folder in DECIDE for file in (PROJECT / folder).rglob("*"))
    for file in sorted(file for file in files if file.suffix in (".py", ".yaml")):
        digest.update(f"{file.relative_to(PROJECT)}\0".encode() + file.read_bytes() + b"\0")
    return f"sha256:{digest.hexdigest()}"


def _family() -> str:
    """`family 25, model 17`: the microarchitecture, which processors of one name do not share."""
    numbers = {"family": described("cpu family"), "model": described("model")}
    parts = [f"{name} {number}" for name, number in numbers.items() if number]
    return ", ".join(parts) or "microarchitecture unknown"


def _accelerator(device: str) -> dict[str, Any] | None:
    import torch

    if not device.startswith("cuda"):
        return None
    properties = torch.cuda.get_device_properties(device)
    return {
        "name": properties.name,
        "memory_bytes": properties.total_memory,
        "count": torch.cuda.device_count(),
        "capability": f"{properties.major}.{properties.minor}",
        "cuda": torch.version.cuda,
        "cudnn": torch.backends.cudnn.version(),
        "driver": _output("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"),
    }


@cache
def checked_out() -> dict[str, Any] | None:
    """The commit of the project and whether tracked files differ from it; None outside a
    repository. Kept results (`output.archive`) are no difference."""
    commit = _output("git", "-C", str(PROJECT), "rev-parse", "HEAD")
    if commit is None:
        return None
    status = ("status", "--porcelain", "--untracked-files=no", "--", ":!results/measured")
    return {"commit": commit, "dirty": bool(_output("git", "-C", str(PROJECT), *status))}


def _output(*command: str) -> str | None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
