"""What stands behind the hub, its data and the judge while a report is rehearsed.

Every model of the hub is replaced by a tiny one of its architecture, head format, tokenizer kind
and chat template (models.py, hub.yaml), data of the hub by a few rows (rows.py), the judge by a
server on this machine; two prompts of which one is timed, answers of six tokens. Numbers are
bfloat16 where the paper's have 16 bits; the first batch of several prompts does not fit."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import datasets
import torch

from bench.config.command import key_of
from bench.config.compose import Composer
from bench.config.schema import ROLES
from bench.run.locks import LOCK
from bench.run.models import NativeMethod
from methods.batch import Generation
from methods.engine.source import ModelSource
from results.store.files import locked, replace_text
from tasks import judge_prompts
from tasks.judge_prompts import MT_BENCH
from tasks.sources import text_digest
from tests.helpers.rehearsal.models import HERE, HUB, checkpoint, save_sentence_model
from tests.helpers.rehearsal.rows import ROWS, write_mirror
from tests.helpers.replies import Replying, Serving, chat_completion

if TYPE_CHECKING:
    from bench.config.compose import ComposedPoint
    from bench.reports.steps import Step

PROMPTS, TIMED, TOKENS = 2, 1, 6
DTYPE = "bfloat16"
TITLE = "REHEARSAL, random models"
NOTE = (
    f"A rehearsal: models with random weights, {PROMPTS} prompts, answers of at most {TOKENS} "
    "tokens. No number here says anything about a method or a paper."
)
SIMILARITY = {"sentence": (), "entailment": ("entailment", "neutral", "contradiction")}
"""The labels of each model of meaning; that of BERTScore has layers as RoBERTa large."""


@contextmanager
def stand_ins(folder: Path, config_dir: str | None = None) -> Iterator[Rehearsal]:
    """Composes rehearsals while the judge answers; what is made lies in `folder`, which processes
    may share. Judge prompts that are not shipped have stand-ins, and no clock waits for other
    commands: what it says counts for nothing."""
    prompts = {
        "komt_bench": str(MT_BENCH / "judge_prompts.jsonl"),
        "alpaca_eval": str(HERE / "templates" / "alpaca_eval.txt"),
    }
    server = Serving(_Judge)
    try:
        with (
            patch.dict(judge_prompts.SOURCES, prompts),
            patch.dict(os.environ, {LOCK: str(folder / f"lock_{os.getpid()}")}),
            patch.object(datasets.config, "HF_DATASETS_CACHE", folder / "datasets"),
            patch.object(NativeMethod, "generate_with_nll", cramped("generate_with_nll")),
            patch.object(NativeMethod, "generate_traced", cramped("generate_traced")),
        ):
            yield Rehearsal(config_dir, folder, server.url)
    finally:
        server.shutdown()
        server.server_close()


def cramped(name: str) -> Callable[..., list[Generation]]:
    """A method of `NativeMethod`, on a device whose memory the first batch of several prompts does
    not fit."""
    real, room = getattr(NativeMethod, name), iter([False])

    def generate(method, requests, limits):
        if len(requests) > 1 and not next(room, True):
            raise torch.OutOfMemoryError("CUDA out of memory (a rehearsal)")
        return real(method, requests, limits)

    return generate


class Rehearsal(Composer):
    """Composes points as they are rehearsed: every model, data set and length replaced."""

    def __init__(self, config_dir, folder, judge):
        super().__init__("config", config_dir)
        self.folder, self._judge = folder, judge

    def point(self, overrides: Sequence[str], *, resolve: bool = True) -> ComposedPoint:
        point = super().point(overrides, resolve=resolve)
        config = point.config
        for role in ROLES:
            source = self._source(config["pair"].get(role))
            config["pair"] |= {role: source, f"{role}_revision": None}
        self._reduce_task(config["task"])
        engine = config["engine"]
        engine |= {"parallel": "none", "devices": 1, "threads": 1}
        if engine["dtype"] == "float16":  # a CPU is slow in it
            engine["dtype"] = DTYPE
        config["decoding"]["max_new_tokens"] = TOKENS
        config["n"] = min(config["n"] or PROMPTS, PROMPTS)
        config["timed"] = 0 if config["timed"] == 0 else TIMED
        config["judge"] |= {
            "base_url": self._judge,
            "model": "stand-in",
            "control_tokens": "text",
            "wait_s": 0.01,
            "references": self._references(),
        }
        meanings = {name: self._meaning(name, labels) for name, labels in SIMILARITY.items()}
        config["similarity"] |= meanings | {"bertscore": self._meaning("bertscore", (), 24)}
        return replace(point, config=config)

    def section(self, group: str, option: str, changes: Sequence[str] = ()) -> dict[str, Any]:
        found = super().section(group, option, changes)
        if group == "report":
            about = f"{NOTE} {found.get('about', '')}"
            found |= {"title": f"{TITLE}: {found['title']}", "about": about}
        return found

    def reduced_step(self, step: Step, overrides: Sequence[str]) -> Step:
        """The command that makes a file of a pair, with the stand-ins of the pair and of its
        task."""
        given = {key_of(word): word for word in step.argv if "=" in word}
        chosen = [given[key] for key in ("pair", "task") if key in given]
        places = [line for line in overrides if key_of(line) == "output.dir"]
        config = self.point([*chosen, *places]).config
        pair, task = config["pair"], config["task"]
        source = "hub" if task["path"] is None else "path"
        words = [f"pair.{role}={pair[role]}" for role in ("target", "draft") if pair[role]]
        words += [f"engine.dtype={DTYPE}", "engine.parallel=none", "engine.devices=1"]
        words += [f"task.{source}={task[source]}", "prompts=4"]
        for command, reduced in HUB["reduced"].items():
            words += reduced if command in step.argv else ()
        given |= {key_of(word): word for word in words}
        command = [word for word in step.argv if "=" not in word]
        return replace(step, argv=(*command, *given.values()))

    def _source(self, source):
        """The stand-in of a name on the hub; what is on this machine stays."""
        if source is None or ModelSource.of(source).kind != "checkpoint" or Path(source).exists():
            return source
        with making(self.folder / "models"):
            return str(checkpoint(self.folder / "models", source))

    def _reduce_task(self, task):
        """A mirror of the hub's repository with a few rows, where the task's rows are not shipped,
        so that they are read as those of the hub; listed ones are theirs."""
        if task.get("path") is not None or not (task.get("hub") or task.get("files")):
            return
        if task["hub"] is None:  # a URL
            task["files"] = Path(task["files"]).name
        # reports take other files of one repository
        part = text_digest(f"{task.get('files')} {task.get('subset')}")
        mirror = self.folder / "hub" / f"{task['name']}-{part[:8]}"
        made(mirror, lambda folder: write_mirror(folder, task))
        task["hub"], task["revision"] = str(mirror), None
        if task.get("ids") is not None:
            texts = [
                next(value for value in row.values() if isinstance(value, str))
                for row in ROWS[task["name"]]
            ]
            task["ids"] = str(self.folder / "hub" / f"{task['name']}.txt")
            replace_text(Path(task["ids"]), "\n".join(map(text_digest, texts)))

    def _meaning(self, name, labels, layers=2):
        folder = self.folder / "models" / "meaning" / name
        made(folder, lambda folder: save_sentence_model(folder, labels, layers))
        return str(folder)

    def _references(self):
        """Reference answers for the judge, which KoMT-Bench's repository has; those of MT-bench are
        shipped."""
        file = self.folder / "data" / "references.jsonl"
        rows = [{"question_id": n, "choices": [{"turns": ["Yes.", "No."]}]} for n in (81, 82)]
        replace_text(file, "".join(json.dumps(row) + "\n" for row in rows))
        return str(file)


@contextmanager
def making(folder: Path) -> Iterator[None]:
    """Hold a folder of stand-ins: only one process of the rehearsal makes them."""
    with locked(folder / ".lock", "a stand-in", wait=True):
        yield


def made(folder: Path, make: Callable[[Path], object]) -> None:
    """Make a folder once."""
    with making(folder):
        if not (folder / "done").is_file():
            make(folder)
            (folder / "done").touch()


class _Judge(Replying):
    """Grades an answer 5, and takes the first of two. It has limits: of the first three requests
    of a server two are refused."""

    def do_POST(self):
        asked = json.dumps(self.asked())
        refusals = vars(self.server).setdefault("refusals", [429, 503])
        said = "m" if "compare two answers" in asked else "Rating: [[5]]"
        if refusals:
            self.reply(b"", refusals.pop(), Retry_After=0)
        else:
            self.reply(chat_completion(said))
