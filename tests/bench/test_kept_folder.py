"""A kept folder: one that output.keep made, whose list names its reports."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.reports.keep import HEADING, kept_reports


def made(folder: Path, **files: str) -> list[Path]:
    folder.mkdir(exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text)
    return sorted(folder.iterdir())


@pytest.mark.parametrize("files", [{}, {"TABLES__md": HEADING, "notes__md": "mine"}], ids=["empty", "made"])
def test_a_folder_of_its_own(tmp_path: Path, files: dict[str, str]) -> None:
    made(tmp_path / "kept", **files)
    assert kept_reports(tmp_path / "kept") == set() == kept_reports(tmp_path / "new")


def test_the_list_names_the_reports(tmp_path: Path) -> None:
    made(tmp_path / "kept", TABLES__md=f"{HEADING}- [A](a.md): [numbers](a.csv), [environment](a.environment.json)\n")
    assert kept_reports(tmp_path / "kept") == {"a"}


@pytest.mark.parametrize("name", ["a.md", "TABLES.md", ".hidden"])
def test_another_folder_is_refused(tmp_path: Path, name: str) -> None:
    made(tmp_path / "kept", **{name: "mine"})
    with pytest.raises(ValueError, match=r"^output.keep=\S+: holds files, and no TABLES.md that output.keep"):
        kept_reports(tmp_path / "kept")
