"""What each wrong command is answered: its exit status and the first line of its error stream.

The commands run in this process, those that load a model too."""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path

from tests.helpers.commands import run
from tests.helpers.refusals import Files, Wrong, rows
from tests.oracles.frozen import PROJECT, Result, read, renames, write

Answers = dict[str, list[int | str | None]]
"""Words of a command -> [exit status, first line]."""


def found_now(wanted: Iterable[Wrong]) -> Answers:
    """What these commands are answered now."""
    with tempfile.TemporaryDirectory(prefix="oracle") as folder:
        return {wrong.words: answered(wrong, Files(Path(folder) / "files"), Path(folder)) for wrong in wanted}


def answered(wrong: Wrong, files: Files, folder: Path) -> list[int | str | None]:
    ended = run(*wrong.given(files, folder / "output"))
    shutil.rmtree(folder / "output", ignore_errors=True)
    line = next((line for line in ended.err.splitlines() if line.strip()), "")
    return [ended.status, same_everywhere(line, folder)]


def same_everywhere(line: str, folder: Path) -> str:
    """The line without the names of this run's folders and of what it cannot know beforehand."""
    line = line.replace(str(folder), "%folder%").replace(f"{PROJECT}/", "")
    return re.sub(r"-[0-9a-f]{10}\b", "-…", re.sub(r"0x[0-9a-f]{6,}", "0x…", line))


def freeze(part: str = "") -> None:
    print(write("commands", found_now(wrong for wrong in rows() if part in wrong.words)))


def compare(part: str = "") -> Result:
    """Compare with the frozen answers. A row that the table no longer has is run all the same."""
    result, frozen, changes = Result(), read("commands"), renames()["commands"]
    wanted = [Wrong(given, (), 2, "composed") for given in frozen if part in given and given not in changes["gone"]]
    for given, now in found_now(wanted).items():
        status, line = changes["now"].get(given) or frozen[given]
        for before, after in changes["texts"].items():
            line = line.replace(before, after)
        result.check(given[:100], [status, line], now)
    return result
