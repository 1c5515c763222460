"""`bench.gpu`: every part on tiny shapes, what it refuses, and how a result travels."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from bench import gpu
from bench.commands.gpu import controls, cycle, exact, forward, profile
from bench.commands.gpu.part import Found, Machine
from methods import registry
from methods.decode import Limits, Request, generate

H100 = gpu.MEASURED / "nvidia_h100_80gb_hbm3"


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the command writes on a CPU, its longest part apart."""
    folder = tmp_path_factory.mktemp("gpu") / "cpu"
    assert (
        gpu.main(
            ["device=cpu", "parts=forward,cycle,profile,controls", f"into={folder}", "minutes=9"]
        )
        == 0
    )
    return folder


def found(folder: Path, part: str) -> dict[str, list[dict[str, object]]]:
    tables: dict[str, list[dict[str, object]]] = json.loads((folder / f"{part}.json").read_text())[
        "tables"
    ]
    return tables


def test_every_part_writes_its_tables(measured: Path) -> None:
    assert {row["k"] for row in found(measured, "forward")[forward.TITLE]} == {1, 8}
    assert [row["arm"] for row in found(measured, "cycle")[cycle.CYCLE]] == [
        arm.name for arm in cycle.ARMS
    ]
    assert [row["method"] for row in found(measured, "controls")[controls.TITLE]] == list(
        controls.METHODS
    )
    assert "no GPU" in (measured / "README.md").read_text(), "a CPU's page must not read as a GPU's"

    rows = found(measured, "controls")[controls.TITLE]
    assert all(row["τ on a CPU"] == pytest.approx(row["τ"], rel=0.1) for row in rows), (
        "committed, of another CPU"
    )


def test_a_second_run_into_the_same_folder_is_refused(
    measured: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = (measured / "forward.json").read_bytes()
    assert gpu.main(["device=cpu", "parts=forward", f"into={measured}"]) == 2
    assert (
        "holds forward already" in capsys.readouterr().err
        and (measured / "forward.json").read_bytes() == before
    )


def test_a_part_that_fails_leaves_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(machine: Machine, result: Found) -> None:
        raise KeyError("nothing there")

    monkeypatch.setattr(forward, "measure", broken)
    assert gpu.main(["device=cpu", "parts=forward,profile", f"into={tmp_path / 'x'}"]) == 1
    said = json.loads((tmp_path / "x" / "forward.json").read_text())["failures"]
    assert "forward ended early" in said[0] and (tmp_path / "x" / "profile.json").is_file()


@pytest.fixture(scope="module")
def pair() -> exact.Subject:
    return exact._pair(Machine(torch.device("cpu"), float("inf"), print), "float32", 2)


def test_greedy_answers_equal_those_of_generate(pair: exact.Subject, tmp_path: Path) -> None:
    result = Found(tmp_path / "exact.json")
    rows = list(exact._beside(pair, result))
    assert all(row["equal"] == row["answers"] == 2 for row in rows) and not result.failures


def test_a_wrong_engine_is_a_failure(pair: exact.Subject, tmp_path: Path) -> None:
    """The largest logit's sign turned: every answer differs, far from any tie."""
    method, result = pair.arms["plain"], Found(tmp_path / "exact.json")
    lean = method.target.lean
    try:
        method.target.lean = lambda *given, **named: (-lean(*given, **named)[0], None, None)  # type: ignore[assignment, misc]
        subject = exact.Subject(
            "x", "float32", pair.stock, pair.prompts, {"plain": method}, pair.new
        )
        [row] = exact._beside(subject, result)
    finally:
        method.target.lean = lean
    assert row["equal"] == 0 and len(result.failures) == 2


def test_replayed_lengths_are_kept() -> None:
    """A cycle keeps what the record says, whatever its rule would keep."""
    machine, accepted = Machine(torch.device("cpu"), 0.0, print), [0, 3, 1, 2]
    target = forward.random_model(machine, "tiny")
    head, drafter = (
        forward.random_head(machine, "tiny", target),
        registry.drafter("eagle3")(tree="chain"),
    )
    method = cycle.build_method(
        target, head, drafter, registry.rule("lossless")(), cycle.SAMPLING, 5
    )
    replayed = cycle.Replayed(method.rule, accepted, machine.device)
    answer = generate(
        cycle.replace(method, rule=replayed), [Request([1, 2, 3], "x")], Limits(20, frozenset())
    )[0]
    assert answer.accepted[:8] == [0, 3, 1, 2, 0, 3, 1, 2]


def test_the_profile_of_the_h100_predicts_its_cycles(tmp_path: Path) -> None:
    """Made again from the committed measurements: within 5% of every cycle."""
    for name in profile.NEEDED:
        shutil.copy(H100 / f"{name}.json", tmp_path)
    result = Found(tmp_path / "profile.json")
    profile.measure(Machine(torch.device("cpu"), float("inf"), print), result)
    ratios = [row["predicted ÷ measured"] for row in result.tables[profile.PREDICTED]]
    assert len(ratios) == len(cycle.ARMS) and np.abs(np.array(ratios) - 1).max() < 0.05


@pytest.mark.parametrize(
    "error, listed",
    [
        (torch.OutOfMemoryError("none"), "skipped"),
        (ValueError("refused"), "skipped"),
        (RuntimeError("a graph"), "failures"),
    ],
)
def test_what_ends_a_step(error: Exception, listed: str, tmp_path: Path) -> None:
    """A model without memory is no failure of the program; a device that fails is one, and the exit
    status says so."""
    result = Found(tmp_path / "exact.json")

    def fail() -> None:
        raise error

    result.step(Machine(torch.device("cpu"), float("inf"), print), "a step", fail)
    assert len(getattr(result, listed)) == 1 == len(result.failures) + len(result.skipped)
