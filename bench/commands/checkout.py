"""Another checkout of this project, decoding in its own process to be timed prompt by prompt beside this one."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

WORKER = """
import json, sys
import torch
from methods import registry
from methods.decode import Limits, Request, generate
from methods.engine.loading import load_model
from methods.heads.head import load_eagle3
from methods.method import build_method
from methods.sampling import Sampling

o = json.loads(sys.argv[1])
torch.set_num_threads(o["threads"] or torch.get_num_threads())
target, draft = (load_model(o[role], dtype=o["dtype"], device=o["device"]) for role in ("target", "draft"))
models = {"none": None, "model": draft}
if o["eagle3"]:
    models["eagle3"] = load_eagle3(o["eagle3"], target, dtype=o["dtype"], device=o["device"])
built = {name: build_method(target, model, registry.drafter(name)(**o["options"].get(name, {})),
                            registry.rule("greedy")(), Sampling(0.0), o["length"]) for name, model in models.items()}
limits = Limits(o["new"], target.eos_ids)
for line in sys.stdin:
    name, ids = json.loads(line)
    g = generate(built[name], [Request(ids, "speed")], limits)[0]
    print(json.dumps([len(g.output_ids), g.prefill_s + g.decode_s]), flush=True)
"""
"""Runs on the code of the other checkout: it uses nothing but what has long been there."""


class Checkout:
    """A process in the folder of a checkout; use as a context manager.

    settings: target, draft and eagle3 (paths, the last may be empty), dtype, device, threads, length, new, and
    options, the drafters' by name."""

    def __init__(self, folder: Path, settings: dict[str, Any]) -> None:
        """Raises ValueError for a folder that is no checkout."""
        if not (folder / "methods" / "decode.py").is_file():
            raise ValueError(f"--before {folder}: no methods/decode.py; give the folder of a checkout, such as "
                             "`git worktree add FOLDER COMMIT` makes")
        self.folder = folder
        paths = {role: str(Path(settings[role]).resolve()) if settings[role] else ""
                 for role in ("target", "draft", "eagle3")}
        self.process = subprocess.Popen([sys.executable, "-c", WORKER, json.dumps(settings | paths)], cwd=folder,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def __enter__(self) -> Checkout:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.process.terminate()
        self.process.communicate()

    def arm(self, drafter: str) -> Callable[[list[int]], tuple[int, float]]:
        """Greedy decoding with this drafter: prompt ids -> (new tokens, seconds of decoding)."""
        def run(ids: list[int]) -> tuple[int, float]:
            assert self.process.stdin is not None and self.process.stdout is not None
            print(json.dumps([drafter, ids]), file=self.process.stdin, flush=True)
            line = self.process.stdout.readline()
            if not line:
                raise ValueError(f"--before {self.folder}: its process exited; see its error output above")
            tokens, seconds = json.loads(line)
            return int(tokens), float(seconds)
        return run
