"""trackio: what was logged is read back from its database."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bench.run.trackers import follower


@pytest.fixture(scope="module")
def trackio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The library, which reads once where its files are."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRACKIO_DIR", str(tmp_path_factory.mktemp("trackio")))
        import trackio
        yield trackio


@pytest.fixture
def project(trackio: Any, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(follower, "EVERY_S", 0.02)
    return request.node.name.replace("_", "-")


def rows(project: str, run: Any) -> list[dict[str, Any]]:
    from trackio.sqlite_storage import SQLiteStorage

    return SQLiteStorage.get_logs(project, run.name, run_id=run.id)


def test_a_run_is_resumed_and_not_doubled(command, trackio: Any, project: str) -> None:
    given = "method=sps", "tracker=trackio", f"tracker.project={project}", "trace=true"
    first = command(*given)
    assert first.status == 0 and first.err == ""
    [run] = trackio.Api().runs(project)
    assert run.id == first.cell.key and run.config["rule"]["name"] == "lossless"
    *live, last = rows(project, run)
    assert live[-1]["live/prompts"] == 3 and last["tau"] == first.cell.summary().tau
    page = Path(trackio.utils.MEDIA_DIR) / last["coloured"]["file_path"]
    assert "<span" in page.read_text() and "drafted" in page.read_text()

    more = command(*given, "n=5")
    [run] = trackio.Api().runs(project)
    *live, last = rows(project, run)
    assert last["n"] == 5 and last["speedup"] == more.cell.summary().speedup
    assert {row["id"] for row in last["answers"]["_value"]} == {sample.id for sample in more.cell.samples()}
    assert live[-1]["live/prompts"] == 5

    before = rows(project, run)
    assert command(*given, "n=5").status == 0
    assert rows(project, run) == before, "nothing was measured, nothing is logged"
    assert trackio.Api().runs(project)[0].config["summary"]["n"] == 5


def test_a_sweep_is_a_group_with_a_run_of_its_figure(command, trackio: Any, project: str) -> None:
    result = command("+sweep=draft_length", "task=mini_gsm", "draft.length=2,3", "tracker=trackio", "timed=0",
                     f"tracker.project={project}")
    assert result.status == 0 and result.err == ""
    runs = {run.id: run for run in trackio.Api().runs(project)}
    assert {run.config["_Group"] for run in runs.values()} == {"sweep_draft_length"}
    [figure] = [run for name, run in runs.items() if name == "report-sweep_draft_length"]
    [row] = rows(project, figure)
    kinds = {value["_type"] for value in row.values() if isinstance(value, dict)}
    assert kinds == {"trackio.image", "trackio.table"}


def test_a_database_that_cannot_be_written_costs_one_line(command, trackio: Any, project: str,
                                                          monkeypatch: pytest.MonkeyPatch, tmp_path: Path,
                                                          caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setattr("trackio.sqlite_storage.TRACKIO_DIR", tmp_path / "file")
    result = command("method=sps,pld", "tracker=trackio", f"tracker.project={project}", "timed=0", flags=["-m"])
    assert result.status == 0 and [cell.summary().n for cell in result.cells] == [3, 3]
    [line] = caplog.messages
    assert "trackio: logging disabled from" in line and "all results are in the store" in line
