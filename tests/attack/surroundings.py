"""What surrounds a store: a kept folder and a store with files of the user."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

from tests.attack import warm
from tests.attack.foreign import LIMIT, answered, measured, snapshot
from tests.attack.part import Field, Trial
from tests.attack.stores import Decoded, decoded, difference

REPORT = ("report=arc_table7", "n=2", "timed=0", "decoding.max_new_tokens=4", "engine.threads=1")
OF_REPORT = ("arc_table7.", "TABLES.md", "index.html")
MINE = ("arc_table7.md", "arc_table7.csv", "arc_table7.environment.json", "TABLES.md", "index.html", "controls.md",
        "mars_table1.csv", "mars_table1.environment.json", "notes.txt", ".git/config", "a/b.md")
"""Files of the user in a kept folder."""
IN_STORE = (".git/config", "notes/a.md", ".backup.HOST.20240101/a", ".samples.jsonl.1.leeway", "cell-0123456789/.git/a",
            "cell-0123456789/.notes", "lossless-aaaaaaaaaa/trace/own.txt", ".x.host.12.leeway/a", "deep/.lock",
            "samples.jsonl", ".tmp.1")
"""Files of the user in a store."""


def kept(field: Field) -> Iterator[Trial]:
    """A report is drawn into a folder with random files of the user. A folder that was kept before loses none but those
    of this report; any other is refused."""
    output = field.folder / "output"
    first = _keep(output, field.folder / "never", field)
    if first.status != 0:
        raise RuntimeError(f"status {first.status}: {first.err[-300:]}")
    for _ in range(10_000):
        folder = field.folder / "kept"
        own = field.draw.random() < 0.5 and _keep(output, folder, field).status == 0
        chosen = [name for name in field.draw.sample(MINE, field.draw.randint(1, 4))
                  if not (own and name.startswith(OF_REPORT))]
        for name in chosen:
            _write(folder / name, field.draw.choice(["the user's own\n", "", "| a | b |\n"]))
        linked = field.draw.random() < 0.2 and not (folder / "controls.csv").exists()
        if linked:
            folder.mkdir(exist_ok=True)
            (folder / "controls.csv").symlink_to(output)
        before = snapshot(folder) if folder.exists() else {}
        ended, after = _keep(output, folder, field), snapshot(folder)
        changed = [name for name in (*chosen, *["controls.csv"] * linked) if after.get(name) != before[name]]
        fault = answered(ended) or (f"{changed[0]} was changed or removed" if changed else "")
        fault = fault or ("taken for a kept folder" if before and not own and ended.status == 0 else "")
        yield Trial(f"{'kept before, ' * own}{', '.join(chosen)}{', a link' * linked}", fault)
        warm.remove(folder)


def _keep(output: Path, folder: Path, field: Field) -> warm.Ended:
    return warm.start(["bench", *REPORT, f"output.dir={output}", f"output.keep={folder}"],
                      field.folder / "log").ended(LIMIT * 5)


def prune(field: Field) -> Iterator[Trial]:
    """A store with random files, folders and links of the user: listed or not, they stay, and so do the cells."""
    whole, outside = measured(field.folder / "measured"), field.folder / "outside"
    expected = decoded(whole)
    _write(outside / "notes.txt", "the user's own\n")
    for _ in range(10_000):
        store = field.folder / "store"
        shutil.copytree(whole, store)
        chosen = field.draw.sample(IN_STORE, field.draw.randint(1, 4))
        for name in chosen:
            _write(store / name, "the user's own\n")
        if field.draw.random() < 0.5:
            chosen += _stale(store)
        if linked := field.draw.random() < 0.5:
            (store / field.draw.choice(["link", ".link.leeway", "mars-0123456789"])).symlink_to(outside)
        before, again = (snapshot(outside), snapshot(store)), field.draw.choice(["true", "yes"])
        ended = warm.start(["bench.status", f"store.dir={store}", f"prune={again}"], field.folder / "log").ended(LIMIT)
        second = warm.start(["bench.status", f"store.dir={store}", "prune=yes"], field.folder / "log").ended(LIMIT)
        after = snapshot(store)
        changed = [name for name in _mine(before[1], chosen, linked) if after.get(name) != before[1][name]]
        fault = (_pruned(ended) or _pruned(second) or (f"{changed[0]} was changed or removed" if changed else "")
                 or ("a file outside the store was changed" if snapshot(outside) != before[0] else "")
                 or _lost(store, expected))
        yield Trial(f"prune={again}: {', '.join(chosen)}{', a link' * linked}", fault)
        warm.remove(store)


def _stale(store: Path) -> list[str]:
    """Make a copy of a cell that no command reads any longer, with files of the user; returns these."""
    cell, old = next(store.glob("*mars*")), store / "old-0123456789"
    shutil.copytree(cell, old)
    config = old / "cell.yaml"
    config.write_text(re.sub(r"(?m)^identity: \d+", "identity: 1", config.read_text()))
    names = ["old-0123456789/notes.md", "old-0123456789/trace/.own/a"]
    for name in names:
        _write(store / name, "the user's own\n")
    return names


def _pruned(ended: warm.Ended) -> str:
    """As `answered`; what is left because the user's files are in it is named."""
    left = ended.status == 1 and all(line.startswith("left: ") for line in ended.errors) and not ended.traceback
    return "" if left else answered(ended)


def _mine(before: dict[str, str], chosen: list[str], linked: bool) -> list[str]:
    """The user's files and links in a store, but names that only this project gives."""
    own = [name for name in chosen if not name.startswith(".x.host.12.leeway")]
    return own + [name for name in before if linked and name in ("link", ".link.leeway", "mars-0123456789")]


def _lost(store: Path, expected: Decoded) -> str:
    """The cells of a store that differ from what was measured; a stale copy, sealed under another name, is none."""
    warm.remove(store / "old-0123456789")
    return difference({key: cell for key, cell in decoded(store).items() if key in expected}, expected)


def _write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
