"""Hand-written rows in the format of each benchmark's published files, so that their loading is
proven without them."""

from __future__ import annotations

import base64
import json
import pickle
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml
from jinja2 import Template


def _hidden(cases):
    return base64.b64encode(zlib.compress(pickle.dumps(cases))).decode()


def _message(n):
    """A message that begins a conversation, as OpenAssistant/oasst1 has it."""
    return {**_WRITTEN["oasst1"][0], "message_id": f"m{n}", "text": f"Name {n + 2} rivers."}


def _written():
    """The rows of rows.yaml.j2, by task."""
    template = Template(Path(__file__).with_name("rows.yaml.j2").read_text(encoding="utf-8"))
    rendered = [yaml.safe_load(template.render(n=n)) for n in range(5)]
    return {
        task: [of_all[tasks] for of_all in rendered]
        for tasks in rendered[0]
        for task in tasks.split()
    }


_WRITTEN = _written()
for row in _WRITTEN["livecodebench"]:
    row["private_test_cases"] = _hidden(row["public_test_cases"])
WORD_PROBLEMS, QUESTIONS = _WRITTEN["gsm8k"], _WRITTEN["mt_bench"]
FUNCTIONS, PROBLEMS = _WRITTEN["humaneval"], _WRITTEN["mbpp"]
_LEFT_OUT = [
    {"parent_id": "m0", "role": "assistant"},
    {"parent_id": "m5"},
    {"lang": "es"},
    {"deleted": True},
]
"""Of oasst1: an answer, a later turn, another language, a deleted message."""
ROWS: Mapping[str, list[dict[str, Any]]] = {
    **_WRITTEN,
    "oasst1": [
        *_WRITTEN["oasst1"],
        *({**_message(n), **changes} for n, changes in enumerate(_LEFT_OUT, start=5)),
    ],
}
"""Task -> five rows."""


def write_mirror(folder: Path, task: Mapping[str, Any]):
    """A mirror of the repository that a task reads, with rows of its own, in the hub's layout: the
    files that the task names, or Parquet in two parts for each split, which README.md lists for the
    subset."""
    rows = ROWS[task["name"]]
    files = task["files"]
    if files is not None:
        names = [files] if isinstance(files, str) else list(files)
        for number, name in enumerate(names):
            file, own = folder / name, rows[number :: len(names)]
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(json.dumps(own) if file.suffix == ".json" else _lines(own))
        return
    from datasets import Dataset, disable_progress_bars

    disable_progress_bars()
    subset, split = task["subset"] or "default", task["split"]
    (folder / subset).mkdir(parents=True, exist_ok=True)
    typed = Dataset.from_list(list(rows))
    for number in range(2):
        name = f"{split}-{number:05}-of-00002.parquet"
        typed.shard(2, number, contiguous=True).to_parquet(folder / subset / name)
    listed = [{"split": split, "path": f"{subset}/{split}-*.parquet"}]
    card = json.dumps({"configs": [{"config_name": subset, "data_files": listed}]})
    (folder / "README.md").write_text(f"---\n{card}\n---\n", encoding="utf-8")


def write_rows(folder: Path, name: str, rows: Iterable[Mapping[str, Any]] | None = None) -> Path:
    """The rows (a task's own when None) as a JSONL file."""
    path = folder / f"{name}.jsonl"
    path.write_text(_lines(ROWS[name] if rows is None else rows))
    return path


def _lines(rows):
    return "".join(json.dumps(row) + "\n" for row in rows)
