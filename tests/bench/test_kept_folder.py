"""A kept folder: only what was kept there is replaced or removed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench.reports.keep import KeptFolder

ENVIRONMENT = json.dumps({"since": "2026-01-01T00:00:00+00:00", "argv": [], "python": "3.11", "packages": {}})


def made(folder: Path, **files: str) -> list[Path]:
    folder.mkdir(exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text)
    return sorted(folder.iterdir())


def content(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in folder.iterdir() if path.name != "kept.json"}


def test_what_was_kept_is_replaced_and_removed(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    KeptFolder(kept).replace(made(tmp_path / "one", a__md="1", a__png="1", b__md="1", TABLES__md="1"), [])
    made(kept, notes__md="mine")
    folder = KeptFolder(kept)
    folder.check(["a", "b"])
    removed = folder.replace(made(tmp_path / "two", a__md="2", TABLES__md="2"), ["a.png", "b.md", "notes.md", "c.md"])
    assert removed == ["a.png", "b.md"]
    assert content(kept) == {"a.md": "2", "TABLES.md": "2", "notes.md": "mine"}


@pytest.mark.parametrize("name", ["a.md", "a.environment.json", "TABLES.md", "index.html"])
def test_a_file_of_the_user_is_in_the_way(tmp_path: Path, name: str) -> None:
    made(tmp_path / "kept", **{name: "mine"})
    with pytest.raises(ValueError, match=rf"^output.keep=\S+: {name} is no kept file, or was changed since it"):
        KeptFolder(tmp_path / "kept").check(["a"])


def test_a_kept_file_that_was_edited_is_the_user_s(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    KeptFolder(kept).replace(made(tmp_path / "one", a__md="1"), [])
    (kept / "a.md").write_text("edited")
    with pytest.raises(ValueError, match=r"a\.md is no kept file, or was changed"):
        KeptFolder(kept).check(["a"])
    assert KeptFolder(kept).replace([], ["a.md"]) == [] and (kept / "a.md").read_text() == "edited"


def test_a_link_is_in_the_way(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "a.md").symlink_to(tmp_path / "nowhere")
    with pytest.raises(ValueError, match=r"a\.md"):
        KeptFolder(kept).check(["a"])


def test_a_folder_of_before_is_known_by_its_environments(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    made(kept, a__md="1", a__environment__json=ENVIRONMENT, b__md="mine", b__environment__json="{}",
         TABLES__md="# Tables and figures\n\n- [A](a.md)\n")
    folder = KeptFolder(kept)
    folder.check(["a"])
    with pytest.raises(ValueError, match=r"b\.\S+ is no kept file"):
        folder.check(["b"])
    folder.replace(made(tmp_path / "new", c__md="3"), ["a.md", "b.md"])
    assert content(kept).keys() == {"a.environment.json", "b.md", "b.environment.json", "TABLES.md", "c.md"}


def test_a_kill_between_copies_leaves_a_known_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = tmp_path / "kept"
    KeptFolder(kept).replace(made(tmp_path / "one", a__md="1", b__md="1"), [])

    def killed(source: Path, target: Path) -> None:
        if target.name == "b.md":
            raise KeyboardInterrupt
        target.write_bytes(source.read_bytes())

    monkeypatch.setattr("bench.reports.keep.copy_file", killed)
    with pytest.raises(KeyboardInterrupt):
        KeptFolder(kept).replace(made(tmp_path / "two", a__md="2", b__md="2"), [])
    KeptFolder(kept).check(["a", "b"])


@pytest.mark.parametrize("kind", ["list", "folder", "link"])
def test_a_damaged_manifest_is_named(tmp_path: Path, kind: str) -> None:
    manifest = tmp_path / "kept" / "kept.json"
    manifest.parent.mkdir()
    if kind == "folder":
        manifest.mkdir()
    elif kind == "link":
        manifest.symlink_to(tmp_path / "nowhere")
    else:
        manifest.write_text("[]")
    with pytest.raises(ValueError, match=r"kept\.json: not a list of kept files"):
        KeptFolder(tmp_path / "kept")
