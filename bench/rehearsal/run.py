"""`report=NAME scale=paper rehearse=true`: run reports whole with tiny random models, and check
them.

Prompts, methods, scoring, clocks and tables are those of the report. Every model of the hub is
replaced by a tiny one of its architecture, head format, tokenizer kind and chat template
(models.py), data of the hub by a few rows (rows.py), the judge by a server on this machine; two
prompts of which one is timed, answers of six tokens."""

from __future__ import annotations

import json
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import import_module
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any

from bench.config.compose import Composer
from bench.config.errors import ConfigError
from bench.config.schema import ROLES
from bench.rehearsal.models import HERE, HUB, checkpoint, save_sentence_model
from bench.rehearsal.rows import write_rows
from bench.reports.overrides import key_of
from bench.reports.plan import Plan, plan_of, uncollected
from bench.reports.run import Request, load_report, run_reports
from bench.run.locks import LOCK
from bench.run.pool import Child, Pool
from bench.run.session import Session
from methods.engine.source import Source
from results.reports.frame import lay_out
from results.reports.published import by_place, load_published, place_in_paper
from results.reports.spec import TableSpec
from results.store.files import held, replace_text
from tasks import judge_prompts
from tasks.judge_prompts import MT_BENCH
from tasks.sources import text_digest

if TYPE_CHECKING:
    from bench.config.command import Command
    from bench.config.compose import Point
    from bench.reports.steps import Step
    from results.reports.grid import Grid

FOLDER = "outputs/rehearsal"
MARK = "rehearsal.txt"
PROMPTS, TIMED, TOKENS = 2, 1, 6
REPLACED = ("output.dir", "store.dir", "workers", "score")
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
THRESHOLDS = (
    "prompts=1",
    "scored=1",
    "trials=1",
    "lengths=[2,3]",
    "thresholds=[0.2,0.4,0.8]",
    f"max_new_tokens={TOKENS}",
)
"""How little of FSD's Appendix D is tried."""
LABELS, CONTEXT = 24, 6
"""Labels that stand for those AutoJudge mines, half of them important, and the tokens in front of
each."""


def rehearse(command: Command, hydra: Composer) -> int:
    """Rehearse the reports of a command in `workers` processes (one a core), and print a line for
    each. Returns 1 where one fails, else 0. Raises ConfigError for an unknown report, and where the
    folder or the store holds anything but rehearsals."""
    request = Request.from_command(command)
    for name in request.reports:
        hydra.check_option("report", name)
    given = {key_of(line) for line in request.overrides}
    overrides = [*request.overrides, *([] if "output.dir" in given else [f"output.dir={FOLDER}"])]
    settings = hydra.settings(overrides)
    if settings.dry_run:
        raise ConfigError("rehearse=true dry_run=true: give one of the two")
    if "scale=paper" not in request.overrides:
        raise ConfigError("rehearse=true: rehearses a report at the papers' scale; add scale=paper")
    if settings.tracker.name != "none":
        raise ConfigError(
            f"rehearse=true tracker={settings.tracker.name}: random results are not logged; "
            "leave out tracker="
        )
    for key, folder in (("output.dir", settings.output.dir), ("store.dir", settings.store.dir)):
        mark(key, folder)
    own = [line for line in overrides if key_of(line) not in REPLACED]
    own += [f"store.dir={settings.store.dir.absolute()}", "score=later"]
    count, lines = min(settings.workers or len(os.sched_getaffinity(0)), len(request.reports)), []
    for name, found in outcomes(
        request.reports, count, settings.output.dir.absolute(), own, hydra.config_dir
    ):
        lines.append(found.line(name))
        print(lines[-1], flush=True)
        (settings.output.dir / MARK).write_text("\n".join([NOTE, *lines, ""]), encoding="utf-8")
    return int(any(": FAILED" in line for line in lines))


def outcomes(
    reports: Sequence[str],
    count: int,
    folder: Path,
    overrides: Sequence[str],
    config_dir: str | None,
) -> Iterator[tuple[str, Outcome]]:
    """The outcome of each report as it ends, from `count` processes that share a store. A process
    goes on with the reports of one paper, which share cells."""
    names = list(reports)

    def next_report(before: str | None) -> str | None:
        papers = [name.partition("_")[0] for name in names]
        own = before.partition("_")[0] if before else ""
        chosen = own if own in papers else max(papers, key=papers.count, default="")
        return names.pop(papers.index(chosen)) if names else None

    starts = []
    for place in (folder / f"process_{number}" for number in range(1, count + 1)):
        place.mkdir(
            exist_ok=True
        )  # its lock: clocks here say nothing, so none waits for others that decode
        given = [*overrides, f"output.dir={place}", "workers=1"]
        starts.append(
            partial(
                Child,
                "spawn",
                place.name,
                {"OMP_NUM_THREADS": "1", LOCK: str(place / "lock")},
                partial(worker, folder, place, given, config_dir),
            )
        )
    with Pool[str](starts, lambda name: f"rehearsing {name} again") as pool:
        for name, found in pool.run(next_report):
            yield name, found if isinstance(found, Outcome) else Outcome(0, [str(found)], [])


def worker(
    folder: Path, place: Path, overrides: Sequence[str], config_dir: str | None
) -> Callable[[str], Outcome]:
    """Rehearses reports in a process of its own; what it prints goes to a file. Templates that are
    not shipped have stand-ins."""
    file = os.open(place.with_suffix(".log"), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(file, 1)
    os.dup2(file, 2)
    judge_prompts.SOURCES.update(
        komt_bench=str(MT_BENCH / "judge_prompts.jsonl"),
        alpaca_eval=str(HERE / "templates" / "alpaca_eval.txt"),
    )
    hydra = Rehearsal(Composer("config", config_dir), folder, judge_server())

    def rehearse_one(name: str) -> Outcome:
        began = time.perf_counter()
        try:
            found = rehearsed(name, hydra, overrides)
        except ValueError as error:
            found = Outcome(0, [str(error)], [])
        if (
            made := place / "report"
        ).is_dir():  # the page of the next report would draw this one again
            shutil.rmtree(folder / name, ignore_errors=True)
            made.rename(folder / name)
        return replace(found, seconds=time.perf_counter() - began)

    return rehearse_one


def mark(key: str, folder: Path) -> None:
    """Say in a folder what it holds. Raises ConfigError where it holds anything else."""
    if folder.exists() and any(folder.iterdir()) and not (folder / MARK).is_file():
        raise ConfigError(
            f"{key}={folder}: holds real results, and rehearse=true writes random ones; give a "
            f"folder of its own, or leave {key} out ({FOLDER})"
        )
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / MARK).is_file():
        (folder / MARK).write_text(NOTE + "\n", encoding="utf-8")


@dataclass(frozen=True)
class Outcome:
    """What a rehearsal of one report found.

    points    measured points.
    missing   what should be there and is not.
    left_out  rows without public weights.
    seconds   of the rehearsal.
    """

    points: int
    missing: Sequence[str]
    left_out: Sequence[str]
    seconds: float = 0.0

    def line(self, name: str) -> str:
        """One line for people."""
        without = f"; left out: {', '.join(self.left_out)}" if self.left_out else ""
        state = f"FAILED: {'; '.join(self.missing[:6])}" if self.missing else "complete"
        more = f" and {len(self.missing) - 6} more" if len(self.missing) > 6 else ""
        return f"{name}: {state}{more}; {self.points} points, {self.seconds:.0f} s{without}"


def rehearsed(name: str, hydra: Rehearsal, overrides: Sequence[str]) -> Outcome:
    """Run a report and look at all of it. Raises ValueError where it cannot run at all."""
    own = hydra.command([f"report={name}", *overrides])
    for step in {step.file: step for step in _plan(name, hydra, overrides).steps.values()}.values():
        step.file.parent.mkdir(parents=True, exist_ok=True)
        module, *given = hydra.reduced_step(step, overrides).argv
        import_module(module).main(given)  # a failure shows as points that still wait for the file
    status = run_reports(own, hydra)
    plan, session = _plan(name, hydra, overrides), Session(hydra.settings(overrides))
    grid = plan.grid(session)
    left_out = sorted(
        {label for coords in plan.absent for label in coords if label in HUB["without_weights"]}
    )
    missing = [] if status == 0 else [f"exit status {status}"]
    missing += [
        f"{' / '.join(coords)}: {held.reason or held.unjudged}"
        for coords, held in grid.items()
        if (held.summary is None or (held.unjudged and held.summary.judge is None))
        and not set(coords) & set(left_out)
    ]
    if not list((session.settings.output.dir / "report").glob(f"{plan.spec.name}.*")):
        missing.append("not drawn")
    if isinstance(plan.spec, TableSpec):
        missing += _empty(plan.spec, grid, left_out)
        if not {"pair", "pairs"} & {key_of(line) for line in overrides}:
            missing += _unlike_paper(plan.spec)
    return Outcome(sum(held.state == "measured" for held in grid.values()), missing, left_out)


def _plan(name: str, hydra: Rehearsal, overrides: Sequence[str]) -> Plan:
    spec = load_report(name, hydra)
    if spec.kind not in ("table", "figure"):
        raise ConfigError(
            f"report={name} rehearse=true: only tables and figures have points to rehearse"
        )
    with uncollected():
        return plan_of(spec, hydra, overrides)


def _empty(spec: TableSpec, grid: Grid, left_out: Sequence[str]) -> Iterator[str]:
    """The numbers of the paper without one of ours, and the columns without any."""
    frame = lay_out(spec, grid).frame
    frame = frame[[not set(row) & set(left_out) for row in frame["stub"]]]
    frame = frame[~frame["value_name"].isin(HUB["may_be_empty"])]
    lacking = frame[frame["value"].isna() & frame["published"].notna()]
    yield from (
        f"{' / '.join(stub)}: no {name} beside the paper's"
        for stub, name in zip(lacking["stub"], lacking["value_name"], strict=True)
    )
    filled = frame.groupby("value_name")["value"].count()
    yield from (f"no row has {name}" for name in filled[filled == 0].index)


def _unlike_paper(spec: TableSpec) -> Iterator[str]:
    """The numbers that the paper prints and that no cell of the table stands beside."""
    if spec.published is None:
        return
    shown = set()
    for point in spec.points():
        for column in spec.values:
            for header in ("", *([spec.mean] if spec.mean else [])):
                shown.add(
                    place_in_paper(
                        spec, point.coords, column.published_name or column.metric.name, header
                    )
                )
    printed = {
        key._replace(value_name=re.sub("_(low|high)$", "", key.value_name))
        for key in by_place(load_published(spec.published.file))
    }
    yield from sorted(
        f"the paper's {' / '.join([key.pair, *sorted(key.labels)])} has no {key.value_name}"
        for key in printed - shown
    )


class Rehearsal(Composer):
    """Composes points as they are rehearsed: every model, data set and length replaced."""

    def __init__(self, hydra: Composer, folder: Path, judge: str) -> None:
        super().__init__("config", hydra.config_dir)
        self.folder, self._judge = folder, judge

    def point(self, overrides: Sequence[str], *, resolve: bool = True) -> Point:
        point = super().point(overrides, resolve=resolve)
        config = point.config
        for role in ROLES:
            config["pair"] |= {
                role: self._source(config["pair"].get(role)),
                f"{role}_revision": None,
            }
        self._reduce_task(config["task"])
        config["engine"] |= {"dtype": "float32", "parallel": "none", "devices": 1}
        config["decoding"]["max_new_tokens"] = TOKENS
        config["n"] = min(config["n"] or PROMPTS, PROMPTS)
        config["timed"] = 0 if config["timed"] == 0 else TIMED
        config["judge"] |= {
            "base_url": self._judge,
            "model": "stand-in",
            "control_tokens": "text",
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
        given |= {
            f"pair.{role}": f"pair.{role}={pair[role]}"
            for role in ("target", "draft")
            if pair[role]
        }
        given |= {
            "engine.dtype": "engine.dtype=float32",
            "engine.parallel": "engine.parallel=none",
            "engine.devices": "engine.devices=1",
            "task.path": f"task.path={task['path']}",
            "prompts": "prompts=4",
        }
        if "calibrate" in step.argv:
            given |= {"min_new_tokens": "min_new_tokens=2", "max_new_tokens": "max_new_tokens=32"}
        elif "judge" in step.argv:
            given |= {"labels": f"labels={self._labels(step.file)}"}
        elif "thresholds" in step.argv:
            given |= {word.partition("=")[0]: word for word in THRESHOLDS}
        return replace(
            step, argv=(*(word for word in step.argv if "=" not in word), *given.values())
        )

    def _source(self, source: str | None) -> str | None:
        """The stand-in of a name on the hub; what is on this machine stays."""
        if source is None or Source.of(source).kind != "checkpoint" or Path(source).exists():
            return source
        with making(self.folder / "models"):
            return str(checkpoint(self.folder / "models", source))

    def _reduce_task(self, task: dict[str, Any]) -> None:
        """A few rows in the hub's format, where the task's rows are not shipped; listed ones are
        theirs."""
        if task.get("path") is not None or not (task.get("hub") or task.get("files")):
            return
        folder = self.folder / "data"
        file = folder / f"{task['name']}.jsonl"
        with making(folder):
            if not file.is_file():
                write_rows(folder, task["name"])
        task["path"] = str(file)
        if task.get("ids") is not None:
            rows = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
            names = [
                text_digest(next(value for value in row.values() if isinstance(value, str)))
                for row in rows
            ]
            task["ids"] = str(file.with_suffix(".txt"))
            replace_text(Path(task["ids"]), "\n".join(names))

    def _meaning(self, name: str, labels: tuple[str, ...]) -> str:
        folder = self.folder / "models" / "meaning" / name
        with making(folder):
            if not (folder / "config.json").is_file():
                save_sentence_model(folder, labels)
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

    def _labels(self, file: Path) -> Path:
        """Labels of a classifier's training: answers of random models hold none to mine."""
        labels = file.with_suffix(".labels.jsonl")
        labels.parent.mkdir(parents=True, exist_ok=True)
        rows = [
            {
                "group": f"p{number // 3}",
                "ids": [(7 * number + place) % 400 + 100 for place in range(CONTEXT)],
                "important": number % 2,
            }
            for number in range(LABELS)
        ]
        labels.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        return labels


@contextmanager
def making(folder: Path) -> Iterator[None]:
    """Hold a folder of stand-ins: only one process of the rehearsal makes them."""
    with held(folder / ".lock", "a stand-in", wait=True):
        yield


def judge_server() -> str:
    """The URL of a server that grades any answer while this process lives."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Judge)
    Thread(target=server.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{server.server_port}/v1"


class _Judge(BaseHTTPRequestHandler):
    """Grades an answer 5, and takes the first of two."""

    def do_POST(self) -> None:
        asked = self.rfile.read(int(self.headers["Content-Length"])).decode()
        said = "m" if "compare two answers" in asked else "Rating: [[5]]"
        content = json.dumps(
            {"choices": [{"message": {"role": "assistant", "content": said}}]}
        ).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        pass
