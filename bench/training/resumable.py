"""Work on prompts, a JSON line each, that goes on after an interruption: what calibration and judges learn from."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import track

from bench.config.errors import ConfigError
from bench.config.paths import PROJECT
from methods.engine.language_model import LanguageModel
from methods.engine.loading import load_model
from tasks.base import Prompt, Split, Task
from tasks.mini import MiniTask, examples


def model_of(pair, engine, role: str) -> LanguageModel:
    """The target or the draft of a pair. Raises ConfigError, ModelError."""
    pair.check(role)
    return load_model(pair.source(role), dtype=engine.dtype, device=engine.device, revision=pair.revision(role),
                      trust_remote_code=pair.trust_remote_code, chat_template=pair.chat_template)


def named(model: LanguageModel) -> str:
    """Where a model came from, for a file that travels: a folder of this project is named within it."""
    source = Path(model.source)
    return str(source.relative_to(PROJECT)) if source.is_relative_to(PROJECT) else model.source


def prompts_of(task: Task, split: Split, count: int) -> list[Prompt]:
    """`count` prompts: of the given split of an embedded benchmark, otherwise whatever the task's own settings say."""
    if isinstance(task, MiniTask):
        asked = (e for e in examples(task.name, split) if e.reference.get("kind") != "statement")  # those only teach
        return [Prompt(id=e.id, turns=e.turns, reference=e.reference) for e in islice(asked, count)]
    return task.prompts(count, 0)


def harvest(file: Path, settings: dict[str, Any], prompts: Sequence[Prompt], work: Callable[[Prompt], list[Any]],
            title: str) -> list[tuple[str, list[Any]]]:
    """(prompt id, what `work` made of it) for all prompts, in order. What lies in `file` already is not done again.

    The file's first line holds `settings`; others there mean another harvest, which is refused (ConfigError). A torn
    last line, of a process that was killed, is dropped."""
    done: dict[str, list[Any]] = {}
    if file.exists():
        lines = file.read_bytes().splitlines(keepends=True)
        whole = [line for line in lines if line.endswith(b"\n")]
        if len(whole) < len(lines):
            file.write_bytes(b"".join(whole))
        rows = [json.loads(line) for line in whole]
        if rows and rows[0] != settings:
            raise ConfigError(f"{file}: holds what other settings found; remove it, or give another work=DIR")
        done = {row["id"]: row["found"] for row in rows[1:]}
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("a", encoding="utf-8") as out:
        if out.tell() == 0:
            out.write(json.dumps(settings) + "\n")
        missing = [prompt for prompt in prompts if prompt.id not in done]
        for prompt in track(missing, title, console=Console(stderr=True), disable=not sys.stderr.isatty()):
            done[prompt.id] = work(prompt)
            out.write(json.dumps({"id": prompt.id, "found": done[prompt.id]}) + "\n")
            out.flush()
    return [(prompt.id, done[prompt.id]) for prompt in prompts]
