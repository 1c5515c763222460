"""What stands behind the hub, its data and the judge while a report is rehearsed.

Every model of the hub is replaced by a tiny one of its architecture, head format, tokenizer kind
and chat template (models.py, hub.yaml), data of the hub by a few rows (rows.py), the judge by a
server on this machine; two prompts of which one is timed, answers of six tokens. Numbers are
bfloat16 where the paper's have 16 bits; the first batch of several prompts does not fit."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from http.server import ThreadingHTTPServer
from pathlib import Path
from threading import Thread
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
from methods.decode import Limits, Request
from methods.engine.source import ModelSource
from results.store.files import locked, replace_text
from tasks import judge_prompts
from tasks.judge_prompts import MT_BENCH
from tasks.sources import text_digest
from tests.helpers.rehearsal.models import HERE, checkpoint, save_sentence_model
from tests.helpers.rehearsal.rows import ROWS, write_mirror
from tests.helpers.replies import Replying, chat_completion

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
SIMILARITY: Mapping[str, tuple[str, ...]] = {
    "sentence": (),
    "entailment": ("entailment", "neutral", "contradiction"),
    "bertscore": (),
}
BERTSCORE_LAYERS = 24
"""Of RoBERTa large, of which one is read."""
THRESHOLDS = (
    "prompts=1",
    "scored=1",
    "trials=1",
    "lengths=[2,3]",
    "thresholds=[0.2,0.4,0.8]",
    f"max_new_tokens={TOKENS}",
)
"""How little of FSD's Appendix D is tried."""
MINED = ("prompts=4", "most=4", "max_new_tokens=8")
"""How little AutoJudge's classifier is trained on."""


@contextmanager
def stand_ins(folder: Path, config_dir: str | None = None) -> Iterator[Rehearsal]:
    """Composes rehearsals while the judge answers; what is made lies in `folder`, which processes
    may share. Judge prompts that are not shipped have stand-ins, and no clock waits for other
    commands: what it says counts for nothing."""
    prompts = {
        "komt_bench": str(MT_BENCH / "judge_prompts.jsonl"),
        "alpaca_eval": str(HERE / "templates" / "alpaca_eval.txt"),
    }
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Judge)
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        with (
            patch.dict(judge_prompts.SOURCES, prompts),
            patch.dict(os.environ, {LOCK: str(folder / f"lock_{os.getpid()}")}),
            patch.object(datasets.config, "HF_DATASETS_CACHE", folder / "datasets"),
            patch.object(NativeMethod, "generate_with_nll", cramped("generate_with_nll")),
            patch.object(NativeMethod, "generate_traced", cramped("generate_traced")),
        ):
            yield Rehearsal(config_dir, folder, f"http://127.0.0.1:{server.server_port}/v1")
    finally:
        server.shutdown()
        server.server_close()


def cramped(name: str) -> Callable[..., list[Generation]]:
    """A method of `NativeMethod`, on a device whose memory the first batch of several prompts does
    not fit."""
    real, met = getattr(NativeMethod, name), list[int]()

    def generate(
        method: NativeMethod, requests: Sequence[Request], limits: Limits
    ) -> list[Generation]:
        if len(requests) > 1 and not met:
            met.append(len(requests))
            raise torch.OutOfMemoryError("CUDA out of memory (a rehearsal)")
        answers: list[Generation] = real(method, requests, limits)
        return answers

    return generate


class Rehearsal(Composer):
    """Composes points as they are rehearsed: every model, data set and length replaced."""

    def __init__(self, config_dir: str | None, folder: Path, judge: str) -> None:
        super().__init__("config", config_dir)
        self.folder, self._judge = folder, judge

    def point(self, overrides: Sequence[str], *, resolve: bool = True) -> ComposedPoint:
        point = super().point(overrides, resolve=resolve)
        config = point.config
        for role in ROLES:
            config["pair"] |= {
                role: self._source(config["pair"].get(role)),
                f"{role}_revision": None,
            }
        self._reduce_task(config["task"])
        halves = {"float16": DTYPE, "bfloat16": DTYPE}  # a CPU is slow in float16
        config["engine"] |= {"parallel": "none", "devices": 1, "threads": 1}
        config["engine"]["dtype"] = halves.get(config["engine"]["dtype"], config["engine"]["dtype"])
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
        config["similarity"] |= {
            name: self._meaning(name, labels) for name, labels in SIMILARITY.items()
        }
        return replace(point, config=config)

    def section(self, group: str, option: str, changes: Sequence[str] = ()) -> dict[str, Any]:
        found = super().section(group, option, changes)
        if group == "report":
            found |= {
                "title": f"{TITLE}: {found['title']}",
                "about": f"{NOTE} {found.get('about', '')}",
            }
        return found

    def reduced_step(self, step: Step, overrides: Sequence[str]) -> Step:
        """The command that makes a file of a pair, with the stand-ins of the pair and of its
        task."""
        given = {key_of(word): word for word in step.argv if "=" in word}
        chosen = [given[key] for key in ("pair", "task") if key in given]
        config = self.point(
            [*chosen, *(line for line in overrides if key_of(line) == "output.dir")]
        ).config
        pair, task = config["pair"], config["task"]
        source = "hub" if task["path"] is None else "path"
        given |= {
            f"pair.{role}": f"pair.{role}={pair[role]}"
            for role in ("target", "draft")
            if pair[role]
        }
        given |= {
            "engine.dtype": f"engine.dtype={DTYPE}",
            "engine.parallel": "engine.parallel=none",
            "engine.devices": "engine.devices=1",
            f"task.{source}": f"task.{source}={task[source]}",
            "prompts": "prompts=4",
        }
        if "calibrate" in step.argv:
            given |= {"min_new_tokens": "min_new_tokens=2", "max_new_tokens": "max_new_tokens=32"}
        elif "judge" in step.argv:
            given |= {word.partition("=")[0]: word for word in MINED}
        elif "thresholds" in step.argv:
            given |= {word.partition("=")[0]: word for word in THRESHOLDS}
        return replace(
            step, argv=(*(word for word in step.argv if "=" not in word), *given.values())
        )

    def _source(self, source: str | None) -> str | None:
        """The stand-in of a name on the hub; what is on this machine stays."""
        if source is None or ModelSource.of(source).kind != "checkpoint" or Path(source).exists():
            return source
        with making(self.folder / "models"):
            return str(checkpoint(self.folder / "models", source))

    def _reduce_task(self, task: dict[str, Any]) -> None:
        """A mirror of the hub's repository with a few rows, where the task's rows are not shipped,
        so that they are read as those of the hub; listed ones are theirs."""
        if task.get("path") is not None or not (task.get("hub") or task.get("files")):
            return
        if task["hub"] is None:  # a URL
            task["files"] = Path(task["files"]).name
        # reports take other files of one repository
        part = text_digest(f"{task.get('files')} {task.get('subset')}")
        mirror = self.folder / "hub" / f"{task['name']}-{part[:8]}"
        with making(mirror):
            if not (mirror / "done").is_file():
                write_mirror(mirror, task)
                (mirror / "done").touch()
        task["hub"], task["revision"] = str(mirror), None
        if task.get("ids") is not None:
            names = [
                text_digest(next(value for value in row.values() if isinstance(value, str)))
                for row in ROWS[task["name"]]
            ]
            task["ids"] = str(self.folder / "hub" / f"{task['name']}.txt")
            replace_text(Path(task["ids"]), "\n".join(names))

    def _meaning(self, name: str, labels: tuple[str, ...]) -> str:
        folder = self.folder / "models" / "meaning" / name
        with making(folder):
            if not (folder / "config.json").is_file():
                save_sentence_model(folder, labels, BERTSCORE_LAYERS if name == "bertscore" else 2)
        return str(folder)

    def _references(self) -> str:
        """Reference answers for the judge, which KoMT-Bench's repository has; those of MT-bench are
        shipped."""
        file = self.folder / "data" / "references.jsonl"
        replace_text(
            file,
            "".join(
                json.dumps({"question_id": number, "choices": [{"turns": ["Yes.", "No."]}]}) + "\n"
                for number in (81, 82)
            ),
        )
        return str(file)


@contextmanager
def making(folder: Path) -> Iterator[None]:
    """Hold a folder of stand-ins: only one process of the rehearsal makes them."""
    with locked(folder / ".lock", "a stand-in", wait=True):
        yield


class _Judge(Replying):
    """Grades an answer 5, and takes the first of two. It has limits: of the first three requests
    of a server two are refused."""

    def do_POST(self) -> None:
        asked = json.dumps(self.asked())
        refusals = vars(self.server).setdefault("refusals", [429, 503])
        if refusals:
            self.reply(b"", refusals.pop(), Retry_After=0)
            return
        said = "m" if "compare two answers" in asked else "Rating: [[5]]"
        self.reply(chat_completion(said))
