"""Wrong commands: each is answered by one line that names what is wrong, in time, before anything is decoded."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path

from tests.attack import warm
from tests.attack.commands import COMMON, Wrong, rows, some
from tests.attack.files import Files
from tests.attack.part import Field, Trial
from tests.attack.warm import Ended

REAL, LONGEST, SLACK = 20, 1500, 4
"""Commands that are run as processes of their own; characters of a line; seconds by the clock, on a busy machine, for
one of CPU time."""
PREFIX = {1: "failed: ", 2: "error: "}


def trials(field: Field) -> Iterator[Trial]:
    """Every row in a warm process, in random order, after some as real processes."""
    files = Files(field.folder / "files")
    for wrong in some(REAL):
        yield attempt(wrong, files, field.folder, real=True)
    chosen = list(rows())
    field.draw.shuffle(chosen)
    for wrong in chosen:
        yield attempt(wrong, files, field.folder)


def attempt(wrong: Wrong, files: Files, folder: Path, real: bool = False) -> Trial:
    """Run one wrong command; the defect is the first thing that is not as it should be."""
    output = folder / "output"
    given, log = words(wrong, files, output), folder / "log"
    running = warm.real(given, log) if real else warm.start(given, log, cpu=wrong.limit)
    ended = running.ended(SLACK * wrong.limit)
    trial = Trial(f"{'real: ' if real else ''}{wrong.words[:150]}", fault(wrong, ended, files, output))
    warm.remove(output)
    return trial


def words(wrong: Wrong, files: Files, output: Path) -> list[str]:
    """The command's words, with the common ones that it does not give itself."""
    given = shlex.split(files.filled(wrong.words))
    if given and given[0].startswith(("bench.", "plots")):
        return given
    keys = {word.partition("=")[0].lstrip("+~") for word in given}
    common = [word for word in (*COMMON, f"output.dir={output}") if word.partition("=")[0] not in keys]
    return ["bench", *common, *given]


def fault(wrong: Wrong, ended: Ended, files: Files, output: Path) -> str:
    """What is wrong with an answer to a wrong command; empty where nothing is."""
    if files.marker.exists():
        files.marker.unlink()
        return "a file of the user ran code"
    if ended.status is None:
        return f"no end after {wrong.limit:g} s"
    if ended.traceback:
        return f"traceback, status {ended.status}: {ended.err.splitlines()[-1]}"
    if ended.status != wrong.status:
        return f"status {ended.status}, not {wrong.status}: {' / '.join(ended.errors)[-200:]}"
    lines = ended.err.splitlines()
    if len(lines) != 1:
        return f"{len(lines)} lines: {' / '.join(lines)[:300]}"
    [line] = lines
    if not line.startswith(PREFIX[wrong.status]):
        return f"does not begin with {PREFIX[wrong.status]!r}: {line[:200]}"
    if not line.isprintable():
        return f"not printable: {line[:200]!r}"
    if len(line) > LONGEST:
        return f"{len(line)} characters: {line[:200]}"
    if missing := [text for text in wrong.says if files.filled(text) not in line]:
        return f"does not say {' or '.join(missing)}: {line[:250]}"
    return _left(wrong, output)


def _left(wrong: Wrong, output: Path) -> str:
    """What the command has written although it could have known better."""
    samples = [path for path in output.glob("store/*/samples.jsonl") if b'"output_ids"' in path.read_bytes()]
    if samples and wrong.known != "decoded":
        return "it decoded before it refused"
    if wrong.known == "composed" and (output / "store").exists():
        return "it made a folder in the store"
    return ""
