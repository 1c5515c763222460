"""Files from elsewhere: archives to merge and answers to import. Each is read whole or refused in one line,
and nothing is written outside the folder that the command names."""

from __future__ import annotations

import io
import json
import os
import random
import signal
import tarfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

from tests.attack import warm
from tests.attack.part import Field, Trial
from tests.attack.stores import Decoded, decoded, difference

LIMIT, KILLS = 60.0, 8
"""Seconds that a command may take; kills of each command that is killed."""
EXCHANGED = warm.PROJECT / "tests" / "results" / "exchange_files"


def snapshot(folder: Path) -> dict[str, str]:
    """Each file of a folder with its digest, each link with its target."""
    return {str(path.relative_to(folder)): os.readlink(path) if path.is_symlink() else
            sha256(path.read_bytes()).hexdigest() if path.is_file() else "" for path in sorted(folder.rglob("*"))}


def answered(ended: warm.Ended) -> str:
    """What is wrong with how a command ended: status 0, or 2 and one line."""
    if ended.status is None or ended.traceback:
        return f"status {ended.status}: {(ended.err.splitlines() or ['no end'])[-1][:200]}"
    if ended.status not in (0, 2) or (ended.status == 2 and len(ended.errors) != 1):
        return f"status {ended.status}, {len(ended.errors)} lines: {' / '.join(ended.errors)[:300]}"
    if not all(line.isprintable() for line in ended.errors):
        return f"not printable: {ended.err[:200]!r}"
    return f"a line of {len(ended.err)} characters" if len(ended.err) > 5000 and ended.status else ""


def measured(folder: Path) -> Path:
    """A store of two cells and their baseline."""
    ended = warm.start(["bench", "-m", "method=sps,mars_sampling", "n=3", "decoding.max_new_tokens=8", "timed=0",
                        "engine.threads=1", f"output.dir={folder}"], folder / "log").ended(LIMIT * 5)
    if ended.status != 0:
        raise RuntimeError(f"status {ended.status} with an empty store: {ended.err[-300:]}")
    return folder / "store"


def archives(field: Field) -> Iterator[Trial]:
    """Archives of a store with hostile members at random places, some damaged; then `kill -9` of a merge."""
    store = measured(field.folder / "measured")
    expected, outside = decoded(store), field.folder / "outside"
    outside.mkdir()
    (outside / "notes.txt").write_text("the user's own\n")
    for number in range(10_000):
        if number % 10 == 9:
            yield _killed_merge(store, expected, field)
            continue
        file, into = outside / "a.tar", field.folder / "into"
        names = field.draw.choices(list(MEMBERS), k=field.draw.randint(1, 4))
        _pack(file, store, names, outside, field.draw)
        damage = field.draw.choice(list(ARCHIVES)) if field.draw.random() < 0.4 else ""
        if damage:
            file.write_bytes(ARCHIVES[damage](file.read_bytes(), field.draw))
        before = snapshot(outside)
        ended = warm.start(["bench.merge", f"store.dir={into}", f"from={file}"], field.folder / "log").ended(LIMIT)
        spoilt = ended.status == 1 and all(line.startswith("left alone: ") for line in ended.errors)
        fault = "" if damage and spoilt and not ended.traceback else answered(ended)  # a damaged cell is not merged
        fault = fault or ("" if snapshot(outside) == before else "a file outside the store was changed")
        if not fault and into.exists():
            strange = [path for path in into.rglob("*") if path.is_symlink() or path.name.startswith(".archive")]
            fault = f"{strange[0].name} in the store" if strange else ""
            if not damage:
                fault = fault or difference(decoded(into), expected)
        yield Trial(f"{' + '.join(names)}{', ' * bool(damage)}{damage}", fault)
        warm.remove(into)


def _killed_merge(store: Path, expected: Decoded, field: Field) -> Trial:
    """Merges that are killed at random moments, then one that ends."""
    file, into = field.folder / "whole.tar", field.folder / "killed"
    with tarfile.open(file, "w") as archive:
        archive.add(store, "store")
    command = ["bench.merge", f"store.dir={into}", f"from={file}"]
    fault = _killed(command, field, lambda: difference(decoded(into), expected, complete=False))
    fault = fault or difference(decoded(into), expected)
    left = [path.name for path in into.iterdir() if path.name.startswith(".") and path.name.endswith(".leeway")]
    warm.remove(into)
    return Trial(f"{KILLS} merges killed", fault or (f"left in the store: {left[0]}" if left else ""))


def _killed(command: list[str], field: Field, fault: Callable[[], str]) -> str:
    """What is wrong after one of the kills, or at the end of the command that nothing disturbs."""
    for _ in range(KILLS):
        running = warm.start(command, field.folder / "log")
        running.poll(field.draw.uniform(0, 1.0))
        with suppress(ProcessLookupError):
            os.kill(running.pid, signal.SIGKILL)
        running.ended(LIMIT)
        if found := fault():
            return f"after a kill: {found}"
    ended = warm.start(command, field.folder / "log").ended(LIMIT)
    return answered(ended) or (f"status {ended.status} after the kills: {ended.err[:200]}" if ended.status else "")


def _member(name: str, content: bytes = b"", **fields: Any) -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.size = len(content)
    for key, value in fields.items():
        setattr(info, key, value)
    return info, content


def _through_links(outside: Path) -> list[tuple[tarfile.TarInfo, bytes]]:
    """The pattern of CVE-2025-4517: a path longer than PATH_MAX, through links."""
    part, path, members = "d" * 247, "", []
    for letter in "abcdefghijklmnop":
        members += [_member(f"store/{path}{part}", type=tarfile.DIRTYPE),
                    _member(f"store/{path}{letter}", type=tarfile.SYMTYPE, linkname=part)]
        path += f"{part}/"
    links = "/".join("abcdefghijklmnop")
    return [*members, _member(f"store/{links}/{'l' * 254}", type=tarfile.SYMTYPE, linkname="../" * 16),
            _member("store/escape", type=tarfile.SYMTYPE, linkname=f"{links}/{'l' * 254}/../../../../..{outside}"),
            _member("store/escape/notes.txt", b"changed")]


MEMBERS: Mapping[str, Callable[[Path], list[tuple[tarfile.TarInfo, bytes]]]] = {
    "long names through links": _through_links,
    "a link and a file behind it": lambda out: [_member("store/link", type=tarfile.SYMTYPE, linkname=str(out)),
                                                _member("store/link/notes.txt", b"changed")],
    "a hard link": lambda out: [_member("store/hard", type=tarfile.LNKTYPE, linkname=f"{out}/notes.txt"),
                                _member("store/hard", b"changed")],
    "an absolute name": lambda out: [_member(f"{out}/notes.txt", b"changed")],
    "a name with ..": lambda out: [_member(f"store/../../../..{out}/notes.txt", b"changed"),
                                   _member("store/../cell.yaml", b"a: 1")],
    "a link as a cell": lambda out: [_member("store/cell-0123456789", type=tarfile.SYMTYPE, linkname=str(out)),
                                     _member("store/cell-0123456789/notes.txt", b"changed")],
    "a device and a pipe": lambda out: [_member("store/null", type=tarfile.CHRTYPE, devmajor=1, devminor=3),
                                        _member("store/pipe", type=tarfile.FIFOTYPE)],
    "control characters": lambda out: [_member("store/\x1b[2J\nnotes.txt", b"x")],
    "files that no cell has": lambda out: [_member("store/.git/config", b"x"), _member("store/notes.md", b"x")],
    "many members": lambda out: [_member(f"store/f{number}") for number in range(5000)],
    "zeros": lambda out: [_member("store/zeros", bytes(30_000_000))],
    "another owner": lambda out: [_member("store/own.txt", b"x", uid=1 << 20, gid=1 << 20, mode=0o4777)],
}
"""Name -> members of an archive, of which none may be written; the path is a folder of the user's."""


def _pack(file: Path, store: Path, names: list[str], outside: Path, draw: random.Random) -> None:
    """An archive of the store with hostile members before and behind its cells."""
    mode: Any = draw.choice(["w", "w:gz", "w:bz2", "w:xz"])
    with tarfile.open(file, mode, format=draw.choice([tarfile.PAX_FORMAT, tarfile.GNU_FORMAT])) as archive:
        behind = draw.random() < 0.5
        for late in (False, True):
            if late == behind:
                for member, content in (one for name in names for one in MEMBERS[name](outside)):
                    archive.addfile(member, io.BytesIO(content))
            if not late:
                archive.add(store, "store")


def _flipped(content: bytes, draw: random.Random) -> bytes:
    changed = bytearray(content)
    for _ in range(draw.randint(1, 20)):
        changed[draw.randrange(len(changed))] ^= 1 << draw.randrange(8)
    return bytes(changed)


BYTES: Mapping[str, Callable[[bytes, random.Random], bytes]] = {
    "bits flipped": _flipped,
    "cut short": lambda content, draw: content[:draw.randrange(len(content))],
    "a piece doubled": lambda content, draw: content[:(at := draw.randrange(len(content)))] + content[at // 2:],
    "zeros inside": lambda content, draw: content[:(at := draw.randrange(len(content)))] + bytes(600) + content[at:],
    "another beginning": lambda content, draw: draw.randbytes(40) + content,
}
ARCHIVES = {**BYTES, "headers of headers": lambda content, draw: 3000 * (
    _member("x", bytes(512), type=tarfile.GNUTYPE_LONGNAME)[0].tobuf(tarfile.GNU_FORMAT) + bytes(512)) + content}
VALUES: Mapping[str, Any] = {
    "10^400": 10 ** 400, "2^63": 1 << 63, "-1": -1, "1e308": 1e308, "a text": "x", "null": None, "true": True,
    "an empty list": [], "an object": {"a": 1}, "a list of lists": [[[]]], "0": 0, "a fraction": 0.5,
}


def imports(field: Field) -> Iterator[Trial]:
    """Files of Spec-Bench and EAGLE with one value replaced, lines moved, nested deeply, or bytes damaged; then
    `kill -9`, also of exports."""
    store = measured(field.folder / "measured")
    file, into = field.folder / "in.jsonl", field.folder / "into"
    command = ["bench.exchange", "from=spec_bench", f"file={file}", f"into={into}"]
    for number in range(10_000):
        source = EXCHANGED / field.draw.choice(["spec_bench.jsonl", "eagle.jsonl"])
        if number % 20 == 19:
            file.write_bytes(source.read_bytes())
            fault = _killed(command, field, lambda: "")
            left = [path.name for path in into.rglob("*") if path.name.startswith(".")]
            yield Trial(f"{source.stem}: {KILLS} imports killed", fault or (f"left: {left[0]}" if left else ""))
            yield _killed_export(store, field)
        else:
            what = _damage(source, file, field.draw)
            ended = warm.start(command, field.folder / "log").ended(LIMIT)
            kept = [path.name for path in into.glob("*")] if into.exists() else []
            fault = answered(ended) or (f"status 2, but {kept[0]} was kept" if ended.status == 2 and kept else "")
            yield Trial(f"{source.stem}: {what}", fault)
        warm.remove(into)


def _killed_export(store: Path, field: Field) -> Trial:
    """Exports that are killed leave whole files alone."""
    out = field.folder / "out"
    name = field.draw.choice(["parquet", "parquet", "spec_bench", "lm_eval"])
    command = ["bench.exchange", f"to={name}", f"store.dir={store}", f"out={out}", "prompts=all"]
    fault = _killed(command, field, lambda: next(filter(None, map(_unfinished, out.rglob("*"))), ""))
    left = [path.name for path in out.rglob(".*")]
    warm.remove(out)
    return Trial(f"{name}: {KILLS} exports killed", fault or (f"left: {left[0]}" if left else ""))


def _unfinished(file: Path) -> str:
    """Why a file of an export is none."""
    import pyarrow.parquet as pq

    try:
        if file.suffix == ".parquet":
            pq.ParquetFile(file).metadata  # noqa: B018  its footer comes last
        elif file.suffix == ".jsonl" and (content := file.read_bytes()) and not content.endswith(b"\n"):
            return f"{file.name} ends within a line"
    except (OSError, ValueError) as error:
        return f"{file.name}: {error}"
    return ""


def _damage(source: Path, file: Path, draw: random.Random) -> str:
    """Write a damaged copy of a file of lines; returns what was done to it."""
    lines = source.read_text().splitlines()
    kind = draw.choice(["value", "value", "value", "value", "nested", "lines", *BYTES])
    if kind == "value":
        at = draw.randrange(len(lines))
        data = json.loads(lines[at])
        path, name = _replace_value(data, draw)
        lines[at], kind = json.dumps(data), f"{path} is {name}"
    elif kind == "nested":
        levels = draw.choice([100, 900, 100_000])
        lines.insert(draw.randrange(len(lines)), '{"id": ' + "[" * levels + "]" * levels + "}")
        kind = f"{levels} levels"
    elif kind == "lines":
        lines = draw.choices(lines, k=len(lines) + 1)
    else:
        file.write_bytes(BYTES[kind](source.read_bytes(), draw))
        return kind
    file.write_text("\n".join(lines) + "\n")
    return kind


def _replace_value(data: Any, draw: random.Random) -> tuple[str, str]:
    """Replace a random value anywhere in plain data; returns its place and the name of the new value."""
    places: list[tuple[str, Any, Any]] = []

    def walk(value: Any, path: str) -> None:
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            places.append((f"{path}.{key}", value, key))
            if isinstance(inner, dict | list):
                walk(inner, f"{path}.{key}")

    walk(data, "")
    path, holder, key = draw.choice(places)
    name = draw.choice(list(VALUES))
    holder[key] = VALUES[name]
    return path.lstrip("."), name
