"""What every command shares: where it runs, and its one line for an error."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.config import command


def test_a_missing_conf_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                    capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(command, "CONF", tmp_path / "conf")
    assert command.run_command(lambda: pytest.fail("it must not run")) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith(f"error: {tmp_path / 'conf'}: no such folder; Leeway is run from its checkout")
