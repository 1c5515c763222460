"""Every YAML of conf/ says the command that runs it, and that command is one that would run."""

from __future__ import annotations

import re
import shlex
from importlib.util import find_spec
from pathlib import Path

import pytest

from bench.config.cell import Cell
from bench.config.command import check_effects
from bench.config.compose import Composer
from bench.config.help import TEXT
from bench.config.paths import CONF
from bench.config.schema import ALL_TIMED, Pair
from bench.config.settings import Settings
from bench.reports.plan import plan_of
from bench.reports.run import ALL, CONTRADICTIONS, EVERY, LIST, load_report
from bench.reports.sweep import plan_of_sweep
from methods import registry
from results.reports.spec import parse_report
from tasks import registry as tasks
from tests.helpers.rehearsal.rows import ROWS, write_rows
from tests.helpers.rule_table import SHIPPED

pytestmark = pytest.mark.usefixtures("vllm")
COMMAND = re.compile(r"# .*?(python -m ([\w.]+).*)")
FILES = sorted(CONF.rglob("*.yaml"))


def identify(path: Path) -> str:
    return str(path.relative_to(CONF))


@pytest.fixture(scope="module")
def stand_ins(pair_folder, tmp_path_factory) -> dict[str, str]:
    """What the words of a documented command stand for here. A file is there; it is read when work
    begins."""
    folder = tmp_path_factory.mktemp("files")
    prompts = write_rows(folder, "prompts", [{"id": "1", "prompt": "Hello"}])
    questions = write_rows(folder, "test", [{"question": "1 + 1?", "answer": "#### 2"}])
    rules = "rule.constants rule.classifier rule.second.classifier"
    files = f"{rules} pair.arc pair.autojudge pair.judge pair.answers".split()
    heads = ("eagle3", "eagle", "hass", "medusa")
    return {
        **{f"task.path={name}.jsonl": f"task.path={write_rows(folder, name)}" for name in ROWS},
        "data=DIR": f"data={folder}",
        **{f"pair.{role}=DIR": f"pair.{role}={pair_folder / role}" for role in ("target", "draft")},
        **{f"pair.{head}=DIR": f"pair.{head}=random:{pair_folder / head}" for head in heads},
        "task.path=FILE.jsonl": f"task.path={prompts}",
        "task.path=my_prompts.jsonl": f"task.path={prompts}",
        "task.path=test.jsonl": f"task.path={questions}",
        **{f"{key}=FILE": f"{key}={prompts}" for key in files},
        "engine.device=cuda": "engine.device=cpu",
    }


def check_command(line: str, hydra: Composer, stand_ins: dict[str, str], pair: list[str]) -> None:
    """Compose and validate all that a documented `python -m bench …` would run, on the small
    pair."""
    overrides = shlex.split(line.partition("python -m bench")[2], comments=True)
    words = [stand_ins.get(word, word) for word in overrides]
    if "pair=local" not in words:
        words = [word for word in words if not word.startswith("pair=")] + pair
    command = hydra.command(words)
    if command.reports:  # their points: test_digests.py
        assert set(command.reports) <= {*hydra.options("report"), ALL, CONTRADICTIONS, EVERY, LIST}
        return
    for point in command.points:
        Settings.from_config(point.config)
    if command.sweep is not None:
        figure, cells = plan_of_sweep(command), command.cells
        assert len(figure.cells) == len({cell.name for cell in cells}) == len(cells) > 1
        assert {point.coords for point in figure.spec.points()} == set(figure.cells)


@pytest.mark.parametrize("path", FILES, ids=identify)
def test_first_comment_is_a_command_that_would_run(path, hydra, stand_ins, pair):
    """Those of commands beside `bench` name one that exists."""
    comments = [COMMAND.match(line) for line in path.read_text().splitlines()[:3]]
    command = next(filter(None, comments), None)
    assert command is not None, "no command in its first comment"
    line, module = command.groups()
    if module != "bench":
        assert find_spec(module) is not None
        return
    group, name = path.parent.name, path.stem
    if path.parent != CONF and name != "default":
        assert re.search(rf"\b{group}(\.\w+)?={name}\b", line), "the command must use the file"
    check_command(line, hydra, stand_ins, pair)


@pytest.mark.parametrize(
    "line", [line.strip() for line in TEXT.splitlines() if line.startswith("  python -m bench")]
)
def test_examples_of_the_help_would_run(line, hydra, stand_ins, pair):
    check_command(line, hydra, stand_ins, pair)


OPTIONS = {
    **{("rule", name): registry.rule(name) for name in registry.names("rules")},
    **{("drafter", name): registry.drafter(name) for name in registry.names("drafters")},
    **{("task", name): tasks.options(name) for name in tasks.names()},
}


@pytest.mark.parametrize(("group", "name"), OPTIONS)
def test_yaml_lists_every_option_with_its_default(group, name, hydra):
    """A task's YAML chooses its own values."""
    listed, fields = hydra.section(group, name), OPTIONS[group, name].model_fields
    assert listed.pop("name") == name
    assert set(listed) == set(fields)
    for key, value in ({} if group == "task" else listed).items():
        field = fields[key]
        if str(value).startswith(
            "${pair."
        ):  # the pair's preset, which is the same unless the pair has another
            value = Pair.model_fields[str(value)[len("${pair.") : -1]].default
        assert value == "???" if field.is_required() else value == field.default, f"{group}.{key}"


def test_controls_cover_every_rule(hydra):
    """of a paper, an engine or this project, but greedy, which is lossless at temperature 0; a
    rule may stand there by the name of a preset."""
    rows = [
        row
        for name in ("controls", "controls_chains")
        for row in hydra.section("report", name)["axes"]["Rule"]
        if "variants" not in row
    ]
    words = {word for row in rows for word in row["overrides"] if word.startswith("rule=")}
    names = {hydra.section("rule", word.removeprefix("rule="))["name"] for word in words}
    assert names == SHIPPED - {"greedy"}


def test_draft_length_is_the_levels_of_a_tree(hydra):
    """MARS Figure 4 on EAGLE-3: K = 7 and 10 are trees of as many levels. Where K is not given, a
    tree is what its YAML says, and a report's own depth stays."""
    words = "+sweep=mars_theta drafter=eagle3 task=mini_gsm rule.theta=0.9"
    swept = hydra.command(words.split())
    for cell in swept.cells:
        assert cell.drafter.options.shape(cell.draft.length).depth + 1 == cell.draft.length
    assert [cell.draft.length for cell in swept.cells] == [7, 10, 7, 10]
    check_effects([point.overrides for point in swept.points], swept.cells)
    for given, depth in {
        "": 7,
        "draft.length=5": 4,
        "draft.length=7 drafter.depth=3": 3,
        "drafter.depth=3": 3,
    }.items():
        point = hydra.point(["drafter=eagle3", *given.split()])
        assert point.config["drafter"]["depth"] == depth, given


def test_a_sweep_has_the_edition_of_its_paper(hydra):
    """scale=paper of +sweep=mars_theta is MARS, Figure 4; what the command line gives wins."""

    def cells_of(*words: str) -> list[Cell]:
        points = hydra.command(["+sweep=mars_theta", "scale=paper", *words]).points
        return [Cell.parsed(point.config) for point in points]

    def settings(cells) -> set:
        return {(c.pair.name, c.drafter.options.shape(7), c.rule.options.theta) for c in cells}

    report = parse_report(hydra.section("report", "mars_fig4"))
    figure = plan_of(report, hydra, ["scale=paper", "engine.device=cpu"])
    cells = cells_of("timed=12")
    assert settings(cells) == settings(figure.cells.values())
    assert {(cell.timed, cell.n) for cell in cells} == {(12, None)}
    assert {cell.task.name for cell in cells} == {"humaneval_mars", "gsm8k_mars_release"}
    assert cells_of()[0].timed == ALL_TIMED


def test_settings_of_the_papers(hydra):
    """What digests.txt does not hold: pass@1 of HumanEval, what a paper does not print, and that
    the command line wins over a setting that goes with a model."""
    words = "pair=qwen3_8b engine.device=cpu decoding.max_new_tokens=100"
    spec = parse_report(hydra.section("report", "mars_table1"))
    plan = plan_of(spec, hydra, words.split())
    cells = plan.cells.values()
    assert {c.load_task().metric for c in cells if "humaneval" in c.task.name} == {"pass@1"}
    assert "Not printed in the paper: Nodes, here 50" in plan.spec.about
    assert "Not printed" not in spec.edition().about
    assert {cell.max_new_tokens for cell in cells} == {100}


def test_a_classifier_that_people_label_is_left_out(hydra):
    """No step makes it; the other rows are composed, and none is refused."""
    plan = plan_of(load_report("controls_chains", hydra), hydra, ["engine.device=cpu"])
    assert plan.cells and not plan.refused and not plan.steps
    judged = {point.coords for point in plan.spec.points() if "judge" in point.coords}
    assert plan.absent.keys() == judged
    assert all("kind=judge labels=FILE" in reason for reason in plan.absent.values())
