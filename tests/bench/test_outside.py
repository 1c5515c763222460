"""Rules and drafters outside of the project, named where a name stands, from any folder."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from bench.__main__ import main
from bench.config.compose import composer
from bench.config.paths import CONF
from bench.config.section import parse
from bench.reports.plan import plan_of
from bench.reports.render import groups_of_stored, stored_cells
from bench.reports.run import load_report
from bench.screen import Screening, listed
from bench.screen import main as screen
from methods import outside, registry, user_yaml
from results.store.cells import Store
from tests.helpers.refusals import FLOOR
from tests.helpers.stores import answers

STORE = Path("outputs", "store")
QUICK = ["task=mini_chat", "n=2", "timed=0", "decoding.temperature=1", "decoding.max_new_tokens=12"]


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch) -> Path:
    """An empty folder outside of the checkout, with a rule in it, where commands are given."""
    (tmp_path / "floor.py").write_text(FLOOR)
    monkeypatch.chdir(tmp_path)
    return tmp_path


AGAIN = """
from methods.drafters.lookup import PromptLookup


class Again(PromptLookup):
    pass
"""


def test_an_edited_rule_is_decoded_anew_beside_the_old_one(folder, caplog):
    """On the drafts of a drafter that is outside, too."""
    (folder / "drafts.py").write_text(AGAIN)
    command = ["rule=floor.py:Floor", "drafter=drafts.py:Again", *QUICK]
    assert main(command) == 0
    first = answers(folder / STORE, "again-floor")
    (folder / "floor.py").write_text(FLOOR + "# a comment\n")
    assert main(command) == 0
    assert answers(folder / STORE, "again-floor") == first
    edited = FLOOR.replace("> self.floor", "< self.floor")
    (folder / "floor.py").write_text(edited)
    forget()
    assert main(command) == 0
    both = answers(folder / STORE, "again-floor")
    assert len(first) == 1 and len(both) == 2 and first.items() < both.items()
    assert len(set(both.values())) == 2
    assert "floor" in caplog.text
    store = Store(folder / STORE)
    groups = groups_of_stored(stored_cells(store), store)
    assert groups and all(group.texts is not None for group in groups), "the page's tokens"


def forget() -> None:
    """As a new process: the file was not read yet, its digest not taken."""
    from bench.config import code

    for name in [name for name in sys.modules if name.startswith("leeway_outside")]:
        del sys.modules[name]
    for taken in (code._tree, code._statements, code._content, code.of_classes):
        taken.cache_clear()


def test_a_rule_is_screened(folder):
    words = ["n=2", "decoding.max_new_tokens=12"]
    assert screen(["-m", "rule=floor.py:Floor", "rule.floor=0.2,0.6", *words]) == 0
    text = (folder / "outputs" / "screen.csv").read_text()
    assert "floor,floor=0.2" in text and "floor,floor=0.6" in text


@pytest.mark.parametrize(
    ("report", "words", "named", "floors"),
    [
        ("evidence", "rule=floor.py:Floor", ["floor"], {0.3}),
        ("evidence", "rules=[floor.py:Floor,typical]", ["floor", "typical"], {0.3}),
        ("my_rule", "rule=floor.py:Floor", ["floor"], {0.1, 0.2, 0.3, 0.533, 0.767}),
    ],
)
def test_a_report_has_it_by_its_title(report, words, named, floors):
    with composer([]) as hydra:
        plan = plan_of(load_report(report, hydra), hydra, [words])
    rules = [(plan.spec.labels(place)["Rule"], cell.rule) for place, cell in plan.cells.items()]
    rules = [(label, rule) for label, rule in rules if label in ("floor", "typical")]
    titles = {(label, registry.title("rules", rule.name)) for label, rule in rules}
    assert titles == {(name, name) for name in named} and not plan.refused
    assert {rule.options.floor for label, rule in rules if label == "floor"} == floors
    assert plan.spec.name == "_".join([report, *named])


EXACT = """
from typing import ClassVar

from tasks.base import Score
from tasks.scorers import Scorer


class Exact(Scorer):
    metric: ClassVar[str] = "exact"
    least: int = 1

    def _score(self, reference, texts):
        return Score(float(len(texts[-1]) >= self.least), texts[-1])
"""


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize("scorer", ["exact.py:Exact", "exactly"])
def test_rules_and_a_scorer_in_worker_processes_in_a_sweep(folder, scorer):
    (folder / "mine").mkdir()
    (folder / "mine" / "__init__.py").touch()
    (folder / "mine" / "rules.py").write_text(FLOOR.replace("Floor", "Ceiling"))
    (folder / "exact.py").write_text(EXACT)
    (folder / "rows.jsonl").write_text('{"q": "Hello", "a": "x"}\n{"q": "Hi", "a": "y"}\n')
    rows = ["task.path=rows.jsonl", "task.prompt='{{ q }}'", "task.target='{{ a }}'"]
    assert {"ground", "lost", "lossless"} <= {*registry.names("rules")}, "listed, not imported"
    sweep = ["-m", "rule=mine.rules:Ceiling,ground", "rule.floor=0.2,0.6", "drafter=eagle3"]
    command = [*sweep, "task=dataset", *rows, f"task.scorer.name={scorer}", "workers=2", *QUICK[1:]]
    assert main([*command, "task.scorer.least=0"]) == 0
    store = Store(folder / STORE)
    number = len(store.cells())
    for rule in ("ceiling", "ground"):
        assert len(answers(folder / STORE, f"eagle3-{rule}")) == 2

    def scores() -> set[float | None]:
        return {sample.score for cell in store.cells() for sample in cell.good_samples()}

    assert scores() == {1.0}
    assert main([*command, "task.scorer.least=9999"]) == 0
    assert scores() == {0.0, 1.0} and len(store.cells()) == 2 * number


def test_the_engine_of_another_environment_loads_the_rule():
    """What `engine=vllm` sends to its process: the rule's name and options, as JSON."""
    with composer([]) as hydra:
        rule = hydra.point(["rule=floor.py:Floor", "rule.floor=0.7"]).cell.rule
    sent = json.dumps([rule.name, rule.options.model_dump(mode="json")])
    code = (
        "import json, sys; from bench.config.section import parse; from methods import registry\n"
        "name, options = json.loads(sys.argv[1])\n"
        "print(parse(registry.rule(name), {'rule': options}, 'rule').floor)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, sent], cwd="/", capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "0.7"


@pytest.fixture
def installed(folder, monkeypatch):
    """A package that offers a scorer `exactly`, a rule `ground`, one named as the project's, and
    one that does not import."""
    info = folder / "own-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: own\nVersion: 1.0\n")
    lines = ["[leeway.rules]", "ground = floor:Floor", "mars = floor:Floor", "lost = nowhere:Rule"]
    lines += ["[leeway.scorers]", "exactly = exact:Exact"]
    (info / "entry_points.txt").write_text("\n".join(lines))
    monkeypatch.syspath_prepend(str(folder))
    outside.installed.cache_clear()
    yield
    outside.installed.cache_clear()


@pytest.mark.usefixtures("installed")
def test_rules_of_packages_are_screened_where_that_is_asked_for():
    known = user_yaml.mapping(CONF / "screen.yaml")
    options = parse(Screening, {**known, "rules": None}, "")
    assert "ground" not in {one.rule for one in listed(options)}
    plugins = options.model_copy(update={"plugins": True})
    assert {"ground", "lost"} <= {one.rule for one in listed(plugins)}
    named = options.model_copy(update={"rules": ("ground",)})
    assert [one.rule for one in listed(named)][-1] == "ground"


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(
    ("name", "complaint"), [("lost", "cannot be imported"), ("mars", "has the name of one")]
)
def test_a_wrong_entry_point_is_one_line(name, complaint):
    with pytest.raises(outside.OutsideError, match=complaint):
        registry.rule(name)
