"""Every point of every report and edition, of every sweep, and of every command that a YAML of conf/ documents, as
plain data; for those of reports also the name that its settings give the cell, or why it has none.

`points_of_report` and `points_of_command` are the only functions that know the composer."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Any
from unittest import mock

from bench.config.compose import Composer, composer
from bench.config.errors import ConfigError
from bench.reports.overrides import key_of, of_points, taken_by, takes_rule
from bench.reports.plan import plan_of, uncollected
from bench.reports.run import load_report
from results.reports.axes import pairs_of
from results.reports.scales import SCALES
from tests.oracles.frozen import FOLDER, PROJECT, Result, portable, read, renames, write

DEVICE = "engine.device=cpu"
PROMPTS = FOLDER / "prompts.jsonl"
Points = dict[str, list[dict[str, Any]]]
"""Name of a report's edition, a sweep or a command -> its points."""


def points_of_report(hydra: Composer, name: str) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Each edition of a report with its points: coordinates, resolved settings, and the name of the cell without the
    content of its models, with its numbers of prompts; or why the report has none there."""
    report = load_report(name, hydra)
    if name == "workload":
        return  # it needs a user's prompts
    pairs = pairs_of(report.axes)
    for scale in SCALES:
        if scale == "real" and pairs["real"] == ["smollm2"]:
            yield f"{name} pair=smollm2", _planned(hydra, report, ["pair=smollm2"])
        elif scale == "embedded" or pairs[scale]:
            yield f"{name} scale={scale}", _planned(hydra, report, [f"scale={scale}"])


def _planned(hydra: Composer, report: Any, overrides: list[str]) -> list[dict[str, Any]]:
    given = [*overrides, *(["rule=mars"] if takes_rule(report) else []), DEVICE]
    plan = plan_of(report, hydra, given)
    found = []
    for point in plan.spec.points():
        cell, step = plan.cells.get(point.coords), plan.steps.get(point.coords)
        if cell is not None:
            outcome = f"{cell.named(cell.identity({}, {}))} n={cell.n} timed={cell.timed}"
        else:
            outcome = plan.refused.get(point.coords) or plan.absent.get(point.coords, "nothing")
        fixed = {key_of(line) for line in point.fixed} - {"pair"}
        own = [line for line in of_points(given) if taken_by(fixed, key_of(line), plan.spec)]
        found.append({"at": list(point.coords), "cell": outcome, "step": str(step or ""),
                      "config": hydra.point([*point.overrides, *own]).config})
    return found


def points_of_command(hydra: Composer, words: list[str]) -> list[dict[str, Any]]:
    """The points of a command line: the overrides that name each and its resolved settings."""
    command = hydra.command(words)
    return [{"at": list(point.overrides), "config": point.config} for point in command.points]


def found_now(part: str = "") -> Points:
    """What the code gives now for the reports, sweeps and commands with `part` in their name."""
    points: Points = {}
    with composer() as hydra, uncollected(), mock.patch("bench.config.engine.vllm_version", lambda: "0.32.0"):
        for name in (name for name in hydra.options("report") if part in f"report={name}"):
            points |= {f"report={edition}": of for edition, of in points_of_report(hydra, name)}
        commands = {f"+sweep={name}": [f"+sweep={name}"] for name in hydra.options("sweep")} | documented()
        for name, words in ((name, words) for name, words in commands.items() if part in name):
            try:
                with composer() as alone:  # the old composer carried values of one command over to the next
                    points[name] = points_of_command(alone, words)
            except ConfigError as error:
                points[name] = [{"at": [], "cell": str(error)}]
    return {name: portable(of) for name, of in points.items()}


def documented() -> dict[str, list[str]]:
    """The command in the first comment of each YAML of a group, reports and sweeps left out."""
    commands = {}
    for path in sorted((PROJECT / "conf").glob("*/*.yaml")):
        line = next((line for line in path.read_text().splitlines()[:3] if "python -m bench " in line), "")
        words = shlex.split(line.partition("python -m bench ")[2], comments=True)
        if words and not any(re.match(r"report=|\+sweep=", word) for word in words):
            commands[shlex.join(words)] = words
    return commands


def freeze() -> None:
    """Write data/points.json.xz: sections that points share stand in it once."""
    sections: dict[str, int] = {}

    def numbers(config: Mapping[str, Any]) -> list[int]:
        return [sections.setdefault(json.dumps({key: config[key]}), len(sections)) for key in config]

    points = {name: [{**point, "config": numbers(point.get("config", {}))} for point in of]
              for name, of in found_now().items()}
    print(write("points", {"points": points, "sections": [json.loads(text) for text in sections]}))


def compare(part: str = "") -> Result:
    """Compare with the frozen points."""
    frozen, found, result, changes = read("points"), found_now(part), Result(), renames()["points"]
    for name, of in frozen["points"].items():
        if name in changes["gone"] or part not in (name.partition(" ")[0] if name.startswith("report=") else name):
            continue
        now = found.pop(name, [])
        if any(fnmatchcase(name, pattern) for pattern in changes["changed"]):
            continue
        if len(now) != len(of):
            result.check(f"{name}: points", len(of), len(now))
            continue
        for i, (point, given) in enumerate(zip(of, now, strict=True)):
            config: dict[str, Any] = {}
            for number in point["config"]:
                config |= frozen["sections"][number]
            result.check(f"{name} [{i}]", reworded({**point, "config": changed(config, changes)}),
                         reworded({"config": {}, **given}))
    result.differences += [f"{name}: not in the frozen data" for name in found
                           if not any(word in changes["new"] for word in name.split())]
    return result


def changed(config: dict[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """A frozen point with the keys that it is meant to have now."""
    if not config:
        return config
    config = json.loads(json.dumps(config))
    for key in changes["removed"]:
        _pop(config, key)
    for old, new in changes["renamed"].items():
        if (value := _pop(config, old)) is not None:
            _set(config, new, value)
    for key, value in changes["added"].items():
        _set(config, key, value)
    for key, (value, beside) in changes["added_beside"].items():
        if _has(config, beside):
            _set(config, key, value)
    return config


def reworded(point: Any) -> Any:
    """A point with its messages as they read now."""
    text = json.dumps(point, ensure_ascii=False)
    for before, after in renames()["points"]["texts"].items():
        text = text.replace(before, after)
    return json.loads(text)


def _has(config: dict[str, Any], key: str) -> bool:
    for part in key.split("."):
        if part not in (config or {}):
            return False
        config = config[part]
    return True


def _pop(config: dict[str, Any], key: str) -> Any:
    *path, last = key.split(".")
    for part in path:
        config = config.get(part) or {}
    return config.pop(last, None)


def _set(config: dict[str, Any], key: str, value: Any) -> None:
    *path, last = key.split(".")
    for part in path:
        config = config.setdefault(part, {})
    config[last] = value
