"""Where a command writes: a disk that is full, a kept folder and a store with files of the user."""

from __future__ import annotations

import random
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers.commands import Ended, run
from tests.helpers.stores import Decoded, decoded, difference, doubled, leftovers, snapshot

pytestmark = pytest.mark.attack


def sizes() -> list[str]:
    """Of disks: pages of 4 KiB, and numbers of files and folders."""
    return [*(f"size={4 * pages}k" for pages in range(1, 17)),
            *(f"size=64m,nr_inodes={count}" for count in range(2, 17))]


@pytest.fixture
def disk(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Path]:
    """A file system in memory."""
    folder = tmp_path / "disk"
    folder.mkdir()
    words = ["mount", "-t", "tmpfs", "-o", request.param, "none", folder]
    mounted = subprocess.run(words, capture_output=True, text=True)
    if mounted.returncode:
        pytest.skip(f"no file system can be mounted here: {mounted.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "--lazy", folder], check=True)


def traced(output: Path) -> Ended:
    return run("bench", "-m", "method=sps,ar", "n=3", "trace=true", "decoding.max_new_tokens=12", "engine.threads=1",
               f"output.dir={output}")


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> Decoded:
    """What is decoded where there is room."""
    output = tmp_path_factory.mktemp("room")
    assert traced(output).status == 0
    return decoded(output / "store")


@pytest.mark.parametrize("disk", sizes(), indirect=True)
def test_a_full_disk(disk: Path, expected: Decoded) -> None:
    """It is named, no half-written file is left, and the same command completes where there is room."""
    store = disk / "store"
    for status in ((0, 1, 2), (0,)):
        ended = traced(disk)
        assert ended.status in status and (ended.status == 0 or "No space left" in ended.err), ended.err
        assert not (difference(decoded(store), expected, complete=ended.status == 0) or doubled(store)
                    or leftovers(store))
        subprocess.run(["mount", "-o", "remount,size=64m,nr_inodes=100000", disk], check=True)


REPORT = ("report=arc_table7", "n=2", "timed=0", "decoding.max_new_tokens=4", "engine.threads=1")
OF_REPORT = ("arc_table7.", "TABLES.md", "index.html")
MINE = ("arc_table7.md", "arc_table7.csv", "arc_table7.environment.json", "TABLES.md", "index.html", "controls.md",
        "mars_table1.csv", "mars_table1.environment.json", "notes.txt", ".git/config", "a/b.md")
"""Files of the user in a kept folder."""
IN_STORE = (".git/config", "notes/a.md", ".backup.HOST.20240101/a", ".samples.jsonl.1.leeway", "cell-0123456789/.git/a",
            "cell-0123456789/.notes", "lossless-aaaaaaaaaa/trace/own.txt", ".x.host.12.leeway/a", "deep/.lock",
            "samples.jsonl", ".tmp.1")
"""Files of the user in a store."""


def write(file: Path, text: str = "the user's own\n") -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An output folder whose store holds what the report needs."""
    output = tmp_path_factory.mktemp("drawn")
    assert run("bench", *REPORT, f"output.dir={output}").status == 0
    return output


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("kept_before", [False, True])
def test_a_kept_folder_with_files_of_the_user(kept_before: bool, seed: int, drawn: Path, tmp_path: Path) -> None:
    """A folder that was kept before loses none but those of this report; any other is refused."""
    folder, draw = tmp_path / "kept", random.Random(f"{kept_before} {seed}")
    keep = ("bench", *REPORT, f"output.dir={drawn}", f"output.keep={folder}")
    if kept_before:
        assert run(*keep).status == 0
    chosen = [name for name in draw.sample(MINE, draw.randint(1, 4))
              if not (kept_before and name.startswith(OF_REPORT))]
    for name in chosen:
        write(folder / name, draw.choice(["the user's own\n", "", "| a | b |\n"]))
    if draw.random() < 0.2 and not (folder / "controls.csv").exists():
        folder.mkdir(exist_ok=True)
        (folder / "controls.csv").symlink_to(drawn)
        chosen.append("controls.csv")
    before, ended = snapshot(folder), run(*keep)
    assert ended.answered and ended.status == (0 if kept_before else 2), ended.err
    after = snapshot(folder)
    assert not [name for name in chosen if after.get(name) != before[name]]


@pytest.mark.parametrize("seed", range(20))
def test_pruning_a_store_with_files_of_the_user(seed: int, measured: Path, tmp_path: Path) -> None:
    """Random files, folders and links, also in a stale cell: listed or not, they stay, and so do the cells."""
    outside, store, draw = tmp_path / "outside", tmp_path / "store", random.Random(seed)
    write(outside / "notes.txt")
    shutil.copytree(measured, store)
    mine = draw.sample(IN_STORE, draw.randint(1, 4))
    if draw.random() < 0.5:
        shutil.copytree(next(store.glob("*mars*")), store / "old-0123456789")
        config = store / "old-0123456789" / "cell.yaml"
        config.write_text(re.sub(r"(?m)^identity: \d+", "identity: 1", config.read_text()))
        mine += ["old-0123456789/notes.md", "old-0123456789/trace/.own/a"]
    for name in mine:
        write(store / name)
    if draw.random() < 0.5:
        mine.append(draw.choice(["link", ".link.leeway", "mars-0123456789"]))
        (store / mine[-1]).symlink_to(outside)
    before = snapshot(outside), snapshot(store)
    for word in (draw.choice(["true", "yes"]), "yes"):
        ended = run("bench.status", f"store.dir={store}", f"prune={word}")
        left = ended.status == 1 and all(line.startswith("left: ") for line in ended.errors)
        assert ended.answered or left, ended.err
    after = snapshot(store)  # a name like .x.HOST.12.leeway is given by this project alone
    assert not [name for name in mine if after.get(name) != before[1][name] and not name.startswith(".x.host.")]
    assert snapshot(outside) == before[0]
    shutil.rmtree(store / "old-0123456789", ignore_errors=True)
    expected = decoded(measured)
    assert not difference({key: cell for key, cell in decoded(store).items() if key in expected}, expected)
