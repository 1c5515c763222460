"""What a command costs beside decoding grows with its cells: it reads each file of the store once."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from bench.config.compose import composer
from bench.run.complete import is_current
from bench.run.session import Session
from tests.helpers.generated_store import write_cells


@pytest.mark.parametrize("points", [8, 16])
def test_a_sweep_that_is_complete_reads_each_file_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                                       points: int) -> None:
    values = ",".join(f"{0.5 + place / 100}" for place in range(points))
    with composer() as hydra:
        words = ["method=mars", "n=4", "timed=2", f"rule.theta={values}", f"store.dir={tmp_path}"]
        command = hydra.command(words, multirun=True)
    write_cells(tmp_path, command.cells)
    reads: Counter[str] = Counter()
    real = Path.read_bytes
    monkeypatch.setattr(Path, "read_bytes", lambda path: (reads.update([str(path)]), real(path))[1])
    session = Session(command.settings)
    session.check(command.cells)
    assert all(is_current(session.folder(cell), False) for cell in command.cells)
    assert all(session.compared(cell) is not None for cell in command.cells)
    of_store = {path: count for path, count in reads.items() if path.startswith(str(tmp_path))}
    lines = [count for path, count in of_store.items() if path.endswith((".jsonl", "summary.json", "cell.yaml"))]
    assert set(lines) == {1} and len(lines) == 4 * (points + 1)
    assert sum(of_store.values()) <= 8 * (points + 1)
