"""Every YAML of conf/ says the command that runs it, and that command is one that would run."""

from __future__ import annotations

import re
import shlex
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import yaml

from bench.config.cell import Cell
from bench.config.command import check_effects
from bench.config.compose import Composer
from bench.config.errors import ConfigError
from bench.config.help import TEXT
from bench.config.paths import CONF, PROJECT
from bench.config.schema import ALL_TIMED, Pair
from bench.config.settings import Settings
from bench.reports.overrides import PairSelection
from bench.reports.plan import plan_of, uncollected
from bench.reports.run import ALL, EVERY, LIST, load_report
from bench.reports.steps import KINDS
from bench.reports.sweep import plan_of_sweep
from methods import registry
from results.reports.spec import parse_report
from tasks import registry as task_registry
from tests.helpers.rehearsal.rows import ROWS, write_rows
from tests.helpers.rule_table import SHIPPED

OWN_COMMANDS = {
    "screen.yaml",
    "calibrate.yaml",
    "cost.yaml",
    "dashboard.yaml",
    "exchange.yaml",
    "merge.yaml",
    "train_heads.yaml",
    "train_judge.yaml",
    "train_pair.yaml",
    "thresholds.yaml",
    "view.yaml",
}
OWN_FOLDERS = {"recipe"}
"""Of commands beside bench."""
FILES = sorted(
    path
    for path in CONF.rglob("*.yaml")
    if path.name not in OWN_COMMANDS and path.parent.name not in OWN_FOLDERS
)


def identify(path: Path) -> str:
    return str(path.relative_to(CONF))


@pytest.fixture(scope="module")
def stand_ins(pair_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What the words of a documented command stand for here."""
    folder = tmp_path_factory.mktemp("files")
    (folder / "prompts.jsonl").write_text('{"id": "1", "prompt": "Hello"}\n')
    (folder / "test.jsonl").write_text('{"question": "1 + 1?", "answer": "#### 2"}\n')
    prompts, questions = (
        f"task.path={folder / 'prompts.jsonl'}",
        f"task.path={folder / 'test.jsonl'}",
    )
    datasets = {f"task.path={name}.jsonl": f"task.path={write_rows(folder, name)}" for name in ROWS}
    return {
        **datasets,
        "data=DIR": f"data={folder}",
        "pair.target=DIR": f"pair.target={pair_folder / 'target'}",
        "pair.draft=DIR": f"pair.draft={pair_folder / 'draft'}",
        **{
            f"pair.{head}=DIR": f"pair.{head}=random:{pair_folder / head}"
            for head in ("eagle3", "eagle", "hass", "medusa")
        },
        "task.path=FILE.jsonl": prompts,
        "task.path=my_prompts.jsonl": prompts,
        "task.path=test.jsonl": questions,
        **{
            # a file is there; it is read when work begins
            f"{key}=FILE": f"{key}={folder / 'prompts.jsonl'}"
            for key in (
                "rule.constants",
                "rule.classifier",
                "rule.second.classifier",
                "pair.arc",
                "pair.autojudge",
                "pair.judge",
                "pair.answers",
            )
        },
        "engine.device=cuda": "engine.device=cpu",
    }


@pytest.fixture(autouse=True)
def vllm(monkeypatch: pytest.MonkeyPatch) -> None:
    """A command with engine=vllm is composed where vLLM is not installed, too."""
    monkeypatch.setattr("bench.config.engine.vllm_version", lambda: "0.32.0")


def check_command(line: str, hydra: Composer, stand_ins: dict[str, str], pair: list[str]) -> None:
    """Compose and validate all that a documented `python -m bench …` would run, on the small
    pair."""
    words = [
        stand_ins.get(word, word)
        for word in shlex.split(line.partition("python -m bench")[2], comments=True)
    ]
    overrides = [word for word in words if word != "-m"]
    if "pair=local" not in overrides:
        overrides = [word for word in overrides if not word.startswith("pair=")] + pair
    command = hydra.command([*overrides, *(word for word in words if word == "-m")])
    if command.reports:  # their points: test_digests.py
        assert set(command.reports) <= {*hydra.options("report"), ALL, EVERY, LIST}
        return
    for point in command.points:
        Settings.from_config(point.config)
    cells = command.cells
    if command.sweep is not None:
        figure = plan_of_sweep(command)
        assert len(figure.cells) == len({cell.name for cell in cells}) == len(cells) > 1
        assert {point.coords for point in figure.spec.points()} == set(figure.cells)


@pytest.mark.parametrize("path", FILES, ids=identify)
def test_first_comment_is_a_command_that_would_run(path: Path, hydra, stand_ins, pair) -> None:
    comments = [line for line in path.read_text().splitlines()[:3] if line.startswith("# ")]
    line = next((comment for comment in comments if "python -m bench" in comment), None)
    assert line is not None, "no command in its first comment"
    group, name = path.parent.name, path.stem
    if path.parent != CONF:
        assert re.search(rf"\b{group}(\.\w+)?={name}\b", line) or name == "default", (
            "the command must use the file"
        )
    check_command(line, hydra, stand_ins, pair)


@pytest.mark.parametrize(
    "line", [line.strip() for line in TEXT.splitlines() if line.startswith("  python -m bench")]
)
def test_examples_of_the_help_would_run(line: str, hydra, stand_ins, pair) -> None:
    check_command(line, hydra, stand_ins, pair)


@pytest.mark.parametrize(
    ("group", "name", "options"),
    [
        *(("rule", name, registry.rule(name)) for name in registry.names("rules")),
        *(("drafter", name, registry.drafter(name)) for name in registry.names("drafters")),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_yaml_lists_every_option_with_its_default(group: str, name: str, options, hydra) -> None:
    given = hydra.section(group, name)
    assert given.pop("name") == name
    assert set(given) == set(options.model_fields)
    for key, value in given.items():
        field = options.model_fields[key]
        if str(value).startswith(
            "${pair."
        ):  # the pair's preset, which is the same unless the pair has another
            value = Pair.model_fields[str(value)[len("${pair.") : -1]].default
        assert value == "???" if field.is_required() else value == field.default, f"{group}.{key}"


def test_controls_cover_every_rule() -> None:
    """of a paper, an engine or this project, but greedy, which is lossless at temperature 0; a
    rule may stand there by the name of a preset."""

    def name_of(choice: str) -> str:
        given = yaml.safe_load((CONF / "rule" / f"{choice}.yaml").read_text())
        return given["name"] if "name" in given else name_of(given["defaults"][0])

    rows = [
        row
        for name in ("controls", "controls_chains")
        for row in yaml.safe_load((CONF / "report" / f"{name}.yaml").read_text())["axes"]["Rule"]
        if "variants" not in row
    ]
    rules = [
        word.removeprefix("rule=")
        for row in rows
        for word in row["overrides"]
        if word.startswith("rule=")
    ]
    assert {name_of(choice) for choice in rules} == SHIPPED - {"greedy"}


@pytest.mark.parametrize("name", task_registry.names())
def test_task_yaml_lists_every_option(name: str) -> None:
    given = yaml.safe_load((CONF / "task" / f"{name}.yaml").read_text())
    assert given.pop("name") == name and set(given) == set(task_registry.options(name).model_fields)


def test_rule_and_drafter_win_over_a_preset(hydra, pair) -> None:
    preset = hydra.point([*pair, "method=mars_released"]).cell
    assert not preset.drafter.options.sample
    assert (preset.rule.options.variant, preset.rule.options.q_mode) == ("released", "draft")
    other = hydra.point([*pair, "method=mars_released", "rule=fsd", "rule.threshold=0.7"]).cell
    assert (other.drafter.name, other.rule.name, other.rule.options.threshold) == (
        "model",
        "fsd",
        0.7,
    )
    for choices, label in (
        (["drafter=prompt_lookup", "method=mars"], "prompt_lookup-mars"),
        (["drafter=model", "rule=fsd", "rule.divergence=js"], "fsd"),
    ):
        assert hydra.point([*pair, *choices]).cell.label == label


def test_command_line_wins_over_a_sweep(hydra, pair) -> None:
    full = hydra.command(["+sweep=mars_theta", *pair])
    assert len(full.points) == 2 * 2 * 2 * 8
    narrowed = hydra.command(
        ["+sweep=mars_theta", *pair, "task=mini_chat", "rule.theta=0.5,0.7", "method=mars"]
    )
    cells = [point.cell for point in narrowed.points]
    assert [(cell.task.name, cell.draft.length, cell.rule.options.theta) for cell in cells] == [
        ("mini_chat", 7, 0.5),
        ("mini_chat", 7, 0.7),
        ("mini_chat", 10, 0.5),
        ("mini_chat", 10, 0.7),
    ]


def test_draft_length_is_the_levels_of_a_tree(hydra) -> None:
    """MARS Figure 4 on EAGLE-3: K = 7 and 10 are trees of as many levels. Where K is not given, a
    tree is what its YAML says, and a report's own depth stays."""
    swept = hydra.command(
        ["+sweep=mars_theta", "drafter=eagle3", "task=mini_gsm", "rule.theta=0.9"]
    )
    shapes = [
        (cell.draft.length, cell.drafter.options.shape(cell.draft.length)) for cell in swept.cells
    ]
    assert [(K, shape.depth + 1) for K, shape in shapes] == [(7, 7), (10, 10), (7, 7), (10, 10)]
    check_effects([point.overrides for point in swept.points], swept.cells)
    depths = {
        " ".join(words): hydra.point(["drafter=eagle3", *words]).config["drafter"]["depth"]
        for words in (
            [],
            ["draft.length=5"],
            ["draft.length=7", "drafter.depth=3"],
            ["drafter.depth=3"],
        )
    }
    assert depths == {
        "": 7,
        "draft.length=5": 4,
        "draft.length=7 drafter.depth=3": 3,
        "drafter.depth=3": 3,
    }


@pytest.mark.parametrize(
    ("words", "idle"),
    [
        (["method=medusa", "draft.length=5,7"], "draft.length=5,7: drafter=medusa ignores it"),
        (
            ["method=eagle3", "drafter.depth=4", "draft.length=5,7"],
            "drafter.depth=4 beside draft.length=7: a tree",
        ),
        (
            ["method=sps,lookahead", "draft.length=5,7"],
            "draft.length=5,7: drafter=lookahead ignores it",
        ),
        (
            ["method=eagle3", "drafter.tree=chain", "drafter.total=8,16"],
            "drafter.total=8,16: drafter=eagle3 ignores it",
        ),
        (["method=ar,sps", "draft.length=5,7"], ""),
        (["method=eagle3", "drafter.total=8,16"], ""),
    ],
)
def test_a_swept_key_that_decides_nothing_is_refused(hydra, words, idle) -> None:
    command = hydra.command(["-m", *words])
    with pytest.raises(ConfigError, match=idle) if idle else nullcontext():
        check_effects([point.overrides for point in command.points], command.cells)


def test_a_sweep_has_the_edition_of_its_paper(hydra) -> None:
    """scale=paper of +sweep=mars_theta is MARS, Figure 4; what the command line gives wins."""
    points = hydra.command(["+sweep=mars_theta", "scale=paper", "timed=12"]).points
    cells = [Cell.parsed(point.config) for point in points]
    figure = plan_of(
        parse_report(hydra.section("report", "mars_fig4")),
        hydra,
        ["scale=paper", "engine.device=cpu"],
    )
    assert {(c.pair.name, c.drafter.options.shape(7), c.rule.options.theta) for c in cells} == {
        (c.pair.name, c.drafter.options.shape(7), c.rule.options.theta)
        for c in figure.cells.values()
    }
    assert {(cell.timed, cell.n, cell.task.name) for cell in cells} == {
        (12, None, "humaneval_mars"),
        (12, None, "gsm8k_mars_release"),
    }
    assert (
        Cell.parsed(hydra.command(["+sweep=mars_theta", "scale=paper"]).points[0].config).timed
        == ALL_TIMED
    )
    with pytest.raises(
        ConfigError, match=r"scale=paper: \+sweep=arc_theta does not have it, it has"
    ):
        hydra.command(["+sweep=arc_theta", "scale=paper"])


def test_settings_of_the_papers(hydra) -> None:
    """What digests.txt does not hold: pass@1 of HumanEval, what a paper does not print, and that
    the command line wins over a setting that goes with a model."""
    spec = parse_report(hydra.section("report", "mars_table1"))
    plan = plan_of(
        spec, hydra, ["pair=qwen3_8b", "engine.device=cpu", "decoding.max_new_tokens=100"]
    )
    assert {
        cell.load_task().metric for cell in plan.cells.values() if "humaneval" in cell.task.name
    } == {"pass@1"}
    assert (
        "Not printed in the paper: Nodes, here 50" in plan.spec.about
        and "Not printed" not in spec.edition().about
    )
    assert {cell.max_new_tokens for cell in plan.cells.values()} == {100}


def test_a_classifier_that_people_label_is_left_out(hydra) -> None:
    """No step makes it; the other rows are composed, and none is refused."""
    plan = plan_of(load_report("controls_chains", hydra), hydra, ["engine.device=cpu"])
    assert plan.cells and not plan.refused and not plan.steps
    assert {
        coords: "kind=judge labels=FILE" in reason for coords, reason in plan.absent.items()
    } == {
        coords: True
        for coords in (point.coords for point in plan.spec.points())
        if "judge" in coords
    }


PAGE = (PROJECT / "docs" / "papers.md").read_text(encoding="utf-8")
ABSENT = object()


def presets() -> dict[str, list[tuple[str, Any, str]]]:
    """Report -> (key, value, label of the points that have it, or empty for all)."""
    found: dict[str, list[tuple[str, Any, str]]] = {}
    for line in PAGE.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if not line.startswith("|") or cells[0] in ("report", ":--"):
            continue
        assert len(cells) == 5 and all(cells), line
        for preset in cells[3].split("; "):
            key, value, _, label = re.fullmatch(r"`([\w.]+)=([^`]+)`( at (.+))?", preset).groups()
            for report in cells[0].split(", "):
                found.setdefault(report, []).append((key, yaml.safe_load(value), label or ""))
    return found


def held(config: dict[str, Any], key: str) -> Any:
    for part in key.split("."):
        if part not in config:
            return ABSENT
        config = config[part]
    return config.removeprefix(f"{PROJECT}/") if isinstance(config, str) else config


@pytest.mark.slow
@pytest.mark.parametrize("report", sorted(presets()))
def test_presets_are_those_of_the_page(report: str, hydra: Any) -> None:
    spec = PairSelection.from_overrides(["scale=paper"]).edition(
        parse_report(hydra.section("report", report))
    )
    with uncollected():
        configs = [
            (point.coords, hydra.point(point.overrides).config)
            for point in spec.points()
            if not any(entry.no_cell for entry in spec.entries(point.coords).values())
        ]
    for key, value, label in presets()[report]:
        values = [
            found
            for coords, config in configs
            if not label or label in coords
            if (found := held(config, key)) is not ABSENT
        ]
        assert values and all(found == value for found in values), (
            key,
            value,
            label,
            set(map(str, values)),
        )


def test_the_page_names_how_files_are_made() -> None:
    commands = [
        KINDS["arc"].overrides,
        KINDS["autojudge"].overrides,
        *KINDS["autojudge"].of_task.values(),
    ]
    text = " ".join(PAGE.split())
    assert all(f"`{' '.join(words)}`" in text for words in commands)
