"""The index reads each cell once, and never stands between a reader and damage."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from results.store import index
from results.store.cells import Store
from results.store.errors import StoreError
from results.store.files import replace_text
from results.store.index import FILES, Entry
from tests.helpers.generated_store import Writer, write_store

CONFIG = {"pair": {"name": "p"}, "drafter": {"name": "model"}, "rule": {"name": "mars", "theta": 0.9}, "batch": 1}
CELLS = index.LEAST + 10


@pytest.fixture(autouse=True)
def settled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files that were just written count as settled; rows are written in small batches."""
    monkeypatch.setattr(index, "SETTLED_NS", 0)
    monkeypatch.setattr(index, "BATCH", 25)


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The keys of the cells that were read, in order."""
    keys: list[str] = []
    real = index.read_content
    monkeypatch.setattr(index, "read_content", lambda cell: (keys.append(cell.key), real(cell))[1])
    return keys


@pytest.fixture
def root(tmp_path: Path) -> Path:
    write_store(tmp_path / "store", CELLS, 3, CONFIG)
    return tmp_path / "store"


def entries(root: Path) -> list[Entry]:
    return list(Store(root).entries())


def test_an_entry_says_what_the_files_say(root: Path) -> None:
    first, *others = entries(root)
    assert len(others) == CELLS - 1 and first.key == first.baseline == "made-ar-000000"
    assert {(entry.complete, entry.answered, entry.failed, entry.timed, entry.damage) for entry in others} == \
        {(True, 3, 0, 2, "")}
    assert {entry.baseline for entry in others} == {first.key}


@pytest.mark.parametrize("cells", [CELLS, 2 * CELLS])
def test_each_cell_is_read_once_in_the_life_of_a_store(reads: list[str], tmp_path: Path, cells: int) -> None:
    root = tmp_path / "store"
    write_store(root, cells, 3, CONFIG)
    first = entries(root)
    assert sorted(reads) == [cell.key for cell in Store(root).cells()], "cost grows with the number of cells"
    reads.clear()
    found = Store(root).find()
    assert reads == [] and entries(root) == first and reads == []
    assert list(found.index) == [entry.key for entry in first]
    assert found.loc["made-mars-000001", "rule.theta"] == pytest.approx(1 / cells)
    assert found.loc["made-mars-000001", "summary.tau"] == 3


@pytest.mark.parametrize("name", FILES)
def test_a_cell_whose_file_changed_is_read_again_alone(root: Path, reads: list[str], name: str) -> None:
    entries(root)
    reads.clear()
    path = root / "made-mars-000007" / name
    content = path.read_text() if path.exists() else '{"reason": "no memory"}'
    replace_text(path, content)  # as the store writes: another inode
    after = {entry.key: entry for entry in entries(root)}
    assert reads == ["made-mars-000007"]
    assert after["made-mars-000007"].failure == ("no memory" if name == "failure.json" else None)


def flip(path: Path) -> None:
    """Change a byte in place, and put the times of the last change of content back."""
    before, content = path.stat(), bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    with open(path, "r+b") as file:
        file.write(content)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


@pytest.mark.parametrize("name", ["samples.jsonl", "timed.jsonl", "summary.json"])
def test_damage_behind_an_index_is_noticed_at_every_look(root: Path, name: str) -> None:
    entries(root)
    flip(root / "made-mars-000007" / name)
    for _ in range(3):
        [damaged] = [entry for entry in entries(root) if entry.damage]
        assert damaged.key == "made-mars-000007" and name in damaged.damage
        with pytest.raises(StoreError, match=name):
            Store(root).find()


def test_an_unfinished_line_is_never_stored(root: Path, caplog: pytest.LogCaptureFixture) -> None:
    with open(root / "made-mars-000007" / "samples.jsonl", "ab") as file:
        file.write(b'{"id": "p')
    for _ in range(2):
        caplog.clear()
        assert [entry.key for entry in entries(root) if entry.damage] == ["made-mars-000007"]
        assert "is unfinished and left out" in caplog.text


def test_a_file_that_has_just_changed_is_not_trusted(root: Path, reads: list[str],
                                                     monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index, "SETTLED_NS", 60 * 10**9)
    assert entries(root) == entries(root)
    assert len(reads) == 2 * CELLS


def garbage(path: Path, rng: random.Random) -> None:
    path.write_bytes(rng.randbytes(5000))


def bytes_changed(path: Path, rng: random.Random) -> None:
    content = bytearray(path.read_bytes())
    for place in rng.sample(range(len(content)), 200):
        content[place] ^= rng.randrange(1, 256)
    path.write_bytes(content)


def cut_off(path: Path, rng: random.Random) -> None:
    path.write_bytes(path.read_bytes()[:rng.randrange(1, path.stat().st_size)])


def of_another_version(path: Path, rng: random.Random) -> None:
    with index.sqlite3.connect(path) as database:
        database.execute("PRAGMA user_version = 99")
        database.execute("ALTER TABLE cells RENAME COLUMN entry TO other")


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("damage", [garbage, bytes_changed, cut_off, of_another_version, lambda path, _: path.unlink()])
def test_a_damaged_index_changes_nothing_that_is_read(root: Path, seed: int,
                                                      damage: Callable[[Path, random.Random], None]) -> None:
    expected = [(content.entry, content.config, content.summary) for content in contents(root)]
    [path] = root.glob(".index-*")
    damage(path, random.Random(seed))
    for _ in range(2):
        assert [(one.entry, one.config, one.summary) for one in contents(root)] == expected


def contents(root: Path) -> Iterator[index.Content]:
    store = Store(root)
    return store.contents(cell.key for cell in store.cells())


def test_a_row_of_another_cell_is_not_taken(root: Path, reads: list[str]) -> None:
    before = entries(root)
    [path] = root.glob(".index-*")
    with index.sqlite3.connect(path) as database:
        database.execute("UPDATE cells SET key = 'x' WHERE key = 'made-mars-000001'")
        database.execute("UPDATE cells SET key = 'made-mars-000001' WHERE key = 'made-mars-000002'")
    reads.clear()
    assert entries(root) == before and sorted(reads) == ["made-mars-000001", "made-mars-000002"]


def test_a_small_store_gets_no_index(tmp_path: Path) -> None:
    write_store(tmp_path, 5, 2, CONFIG)
    assert len(entries(tmp_path)) == 5 and not list(tmp_path.glob(".index-*"))


def test_a_store_that_cannot_be_written_is_read(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = entries(root)

    def refuse(*args: object, **options: object) -> None:
        raise index.sqlite3.OperationalError("attempt to write a readonly database")

    monkeypatch.setattr(index.sqlite3, "connect", refuse)
    assert entries(root) == expected


@pytest.fixture
def large(root: Path, monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The store counts as large on a machine of three cores; the commands of the processes started for it."""
    monkeypatch.setattr(index, "MANY", CELLS)
    monkeypatch.setattr(index.os, "sched_getaffinity", lambda process: {0, 1, 2})
    started: list[list[str]] = []
    real = index.subprocess.Popen

    def start(command: list[str], **options: object) -> object:
        """The other processes trust files however young they are."""
        started.append(command)
        python, _, module, *words = command
        code = (f"import sys\nfrom {module} import main\nfrom results.store import index\nindex.SETTLED_NS = 0\n"
                "main(sys.argv[1:])")
        return real([python, "-c", code, *words], **options)

    monkeypatch.setattr(index.subprocess, "Popen", start)
    return started


def test_each_core_reads_a_part_of_a_large_store(root: Path, reads: list[str], large: list[list[str]]) -> None:
    write_store(root, 3 * CELLS, 3, CONFIG)
    found = entries(root)
    assert [command[-2:] for command in large] == [["0", "3"], ["1", "3"], ["2", "3"]]
    assert reads == [] and len(found) == 3 * CELLS and all(entry.complete for entry in found)
    assert entries(root) == found and len(large) == 3, "only once"


def test_what_other_processes_do_not_read_is_read_here(root: Path, reads: list[str], large: list[list[str]],
                                                       monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index.sys, "executable", "/bin/false")
    assert len(entries(root)) == CELLS == len(reads) and len(large) == 3


def test_a_few_new_cells_are_read_here(root: Path, reads: list[str], large: list[list[str]],
                                       monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index, "MANY", CELLS + 1)
    entries(root)
    monkeypatch.setattr(index, "MANY", 10)
    write_store(root, CELLS + 9, 3, CONFIG)
    assert len(entries(root)) == CELLS + 9 and large == []


def test_a_store_that_is_not_there_is_empty(tmp_path: Path) -> None:
    assert entries(tmp_path / "none") == [] and Store(tmp_path / "none").find().empty
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("text", ["[" * 10**5 + "]" * 10**5, "{a: " * 10**5 + "}" * 10**5, "- " * 10**5 + "a",
                                  "? " * 10**5 + "a"], ids=["list", "mapping", "items", "keys"])
def test_a_configuration_nested_without_end_is_an_error(tmp_path: Path, text: str) -> None:
    (tmp_path / "cell").mkdir()
    (tmp_path / "cell" / "cell.yaml").write_text(text)
    with pytest.raises(StoreError, match=r"cell\.yaml is not YAML|cell\.yaml is no configuration"):
        Store(tmp_path).cell("cell").config()


def test_cells_of_a_later_schema_are_refused(tmp_path: Path) -> None:
    Writer(tmp_path, ["p0"]).write("cell", {"schema": 3, **CONFIG})
    with pytest.raises(StoreError, match=r"schema 3: this version reads schemas up to 2"):
        Store(tmp_path).cell("cell").config()
