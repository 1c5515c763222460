"""Cells of an earlier identity stay readable in reports, marked, until they are measured again."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from bench.config import cell, identity, older
from bench.config.compose import composer
from bench.reports.plan import OLDER, outcome
from bench.run.session import Session
from results.reports.grid import Outcome
from results.reports.layout import lay_out
from results.reports.spec import TableSpec
from results.store.cells import Store

SPEC = TableSpec.model_validate({
    "name": "demo", "title": "A demo", "kind": "table", "rows": ["Method"], "columns": ["Task"], "values": ["tau"],
    "axes": {"Method": [{"label": "MARS", "overrides": ["method=mars"]}],
             "Task": [{"label": "mini_gsm", "overrides": ["task=mini_gsm"]}]}})


@pytest.fixture
def shown(pair: list[str], tmp_path: Path) -> Callable[[], Outcome]:
    """What a report shows of the cell that `command("method=mars", "timed=0")` measures."""
    def made() -> Outcome:
        settings = ["n=3", "timed=0", "decoding.max_new_tokens=12", f"store.dir={tmp_path / 'store'}"]
        with composer() as hydra:
            point = hydra.point([*pair, "method=mars", *settings])
        return outcome(point.cell, Session(point.settings), SPEC)
    return made


def later_identity(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (identity, cell, older):
        monkeypatch.setattr(module, "IDENTITY_VERSION", identity.UNRECORDED + 1)


def test_a_cell_of_an_earlier_identity_is_shown_with_a_footnote(command, shown: Callable[[], Outcome],
                                                                monkeypatch: pytest.MonkeyPatch) -> None:
    measured = command("method=mars", "timed=0")
    assert shown().notes == () and measured.cell.config()["identity"] == 3
    before = shown()
    later_identity(monkeypatch)
    held = shown()
    assert held.state == "measured" and held.notes == (OLDER.format(3),)
    assert held.summary == before.summary and held.conditions == before.conditions
    assert OLDER.format(3) in lay_out(SPEC, {("MARS", "mini_gsm"): held}).notes
    assert command("method=mars", "timed=0").status == 0
    assert shown().notes == () and len(Store(measured.store.root).cells()) == 4, "measured again, beside it"


def test_a_cell_on_other_models_is_not_shown(command, shown: Callable[[], Outcome],
                                             monkeypatch: pytest.MonkeyPatch) -> None:
    measured = command("method=mars", "timed=0")
    for stored in measured.store.cells():
        config = stored.config()
        stored.write_config({**config, "fingerprints": {**config["fingerprints"], "draft": "another"}})
    later_identity(monkeypatch)
    assert shown().state == "missing"


def test_a_cell_whose_options_are_gone_is_not_shown(command, shown: Callable[[], Outcome],
                                                    monkeypatch: pytest.MonkeyPatch) -> None:
    measured = command("method=mars", "timed=0")
    for stored in measured.store.cells():
        stored.write_config(json.loads(json.dumps(stored.config()).replace('"theta"', '"gone"')))
    later_identity(monkeypatch)
    assert shown().state == "missing"
