"""Files of other programs as imported cells, separate from measured ones.

    <root>/<key>/answers.jsonl   one line per answer of the file, in common terms
                 imported.json   where it came from, and its numbers; written last

The folder holds no cell.yaml: a list of a store's cells does not show it, and no run resumes it. Its key begins with
`imported-`, which no measured cell's does."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar

from pydantic import TypeAdapter, ValidationError

from results.exchange.base import Converter, Exchanged, ExchangeError, Failed, Source
from results.exchange.imported_cells import OVERALL, ImportedCell, Prompts, add_answer, imported_cell
from results.exchange.lines import raw_lines
from results.exchange.plausible import check
from results.store.errors import StoreError, first_fault
from results.store.files import remove, replace_text, replacing
from results.store.json_text import from_json, json_text
from results.store.reasons import one_line
from results.store.sample import STRICT
from results.store.seals import sealed, sealed_line, unsealed, unsealed_line

PREFIX = "imported-"
ABOUT, ANSWERS = "imported.json", "answers.jsonl"


@dataclass(frozen=True, slots=True)
class Imported:
    """What imported.json holds.

    key       the folder's name
    format    name of the converter
    file      the file that was read
    sha256    of its bytes
    at        when it was read, ISO 8601 in UTC
    answers   answers in it
    failed    reason -> records without an answer to measure
    baseline  the imported baseline file's key; None without one
    cells     its numbers: of the whole file, then of each task
    """

    __pydantic_config__: ClassVar[Any] = STRICT
    key: str
    format: str
    file: str
    sha256: str
    at: str
    answers: int
    failed: dict[str, int]
    baseline: str | None
    cells: list[ImportedCell]


_ANSWER, _ABOUT = TypeAdapter(Exchanged), TypeAdapter(Imported)
Count = Callable[[str], int]


class ImportedFolder:
    """The folder of one imported file, which may not exist yet."""

    def __init__(self, root: Path, key: str) -> None:
        self.path = root / key
        self.key = key

    def about(self) -> Imported:
        """Raises StoreError for a folder that holds no imported file."""
        path = self.path / ABOUT
        try:
            return _ABOUT.validate_json(json_text(unsealed(from_json(path.read_bytes()))))
        except (OSError, ValueError) as error:
            fault = first_fault(error) if isinstance(error, ValidationError) else one_line(error)
            raise StoreError(f"{path} is not an imported file ({fault}): import the file again") from error

    def answers(self) -> Iterator[Exchanged]:
        """Its answers, one after another. Raises StoreError for a changed line."""
        for place, line in raw_lines(self.path / ANSWERS):
            try:
                yield _ANSWER.validate_json(unsealed_line(self.key, line))
            except ValueError as error:
                fault = first_fault(error) if isinstance(error, ValidationError) else one_line(error)
                raise StoreError(f"{place} is not an answer ({fault}): import the file again") from error

    def discard(self) -> None:
        """Remove what an interrupted import left; a complete earlier import stays."""
        if not (self.path / ABOUT).exists():
            remove(self.path / ANSWERS)
            with suppress(OSError):  # it holds other files
                self.path.rmdir()

    def source(self) -> Source:
        """The cell to be written to another file."""
        about = self.about()
        nothing = {"imported_from": about.file, "format": about.format, "sha256": about.sha256}
        return Source(self.key, about.format, Path(about.file).stem, None, nothing, self.answers, _none)


def _none() -> Iterator[Exchanged]:
    """An imported file has no baseline of this kind: its baseline is another file."""
    return iter(())


def imported_folders(root: Path) -> list[ImportedFolder]:
    """Every imported file under a folder, sorted by key."""
    return [ImportedFolder(root, path.parent.name) for path in sorted(root.glob(f"{PREFIX}*/{ABOUT}"))]


def bring_in(root: Path, name: str, converter: Converter, file: Path, baseline: Path | None = None,
             count: Count | None = None) -> Imported:
    """Read a file of format `name` into `root`; a second import replaces the first. `baseline`: a file of the
    same format with the baseline's answers to the same prompts, whose own import, if there is one, stays as it is;
    `count`: tokens of a text, for the restated arithmetic of the format's own speed script. Raises ExchangeError for a
    wrong file, of which nothing is kept; StoreError if the folder cannot be written."""
    begun: list[ImportedFolder] = []
    try:
        base = None if baseline is None else _read_in(root, name, converter, baseline, begun)
        own = _read_in(root, name, converter, file, begun)
        if base is not None and not (base.folder.path / ABOUT).exists():
            _finish(base, None, name, converter, count)
        return _finish(own, base, name, converter, count)
    except BaseException:
        for folder in begun:
            folder.discard()
        raise


def _finish(own: _Reading, base: _Reading | None, name: str, converter: Converter, count: Count | None) -> Imported:
    """Write the numbers of a file that was read: it is imported then."""
    at = datetime.now(UTC).isoformat(timespec="seconds")
    about = Imported(own.folder.key, name, str(own.file), own.sha256, at, own.answers, dict(own.failed),
                     None if base is None else base.folder.key, _cells(own, base, converter, count))
    replace_text(own.folder.path / ABOUT, json_text(sealed(asdict(about)), indent=1) + "\n")
    return about


@dataclass(frozen=True, slots=True)
class _Reading:
    """A file that was read: its folder, its digest, and the counts and times of its prompts."""

    file: Path
    folder: ImportedFolder
    sha256: str
    answers: int
    failed: Counter[str]
    prompts: Prompts


def _read_in(root: Path, name: str, converter: Converter, file: Path, begun: list[ImportedFolder]) -> _Reading:
    """Write the answers of a file, line by line; its folder joins `begun`."""
    sha256 = _sha256(file)
    folder = ImportedFolder(root, f"{PREFIX}{name}-{sha256[:12]}")
    begun.append(folder)
    prompts, failed, answers = Prompts(), Counter[str](), 0
    with replacing(folder.path / ANSWERS) as temporary, open(temporary, "wb") as lines:
        for record in converter.read(file):
            if isinstance(record, Failed):
                failed[record.reason] += 1
                continue
            try:
                check(record)
            except ValueError as error:
                raise ExchangeError(f"{file}: {record.id}: {error}") from error
            add_answer(prompts, record)
            lines.write(_line(folder.key, file, record))
            answers += 1
        if not answers:
            reasons = "; ".join(f"{count} × {reason}" for reason, count in failed.items()) or "it is empty"
            raise ExchangeError(f"{file}: no answer to measure: {reasons}")
    return _Reading(file, folder, sha256, answers, failed, prompts)


def _line(key: str, file: Path, answer: Exchanged) -> bytes:
    empty = Exchanged("")
    plain = {name: value for name, value in asdict(answer).items() if value != getattr(empty, name)}
    try:
        return sealed_line(key, {"id": answer.id, **plain})
    except ValueError as error:
        raise ExchangeError(f"{file}: {answer.id}: cannot be written as JSON ({one_line(error)})") from error


def _cells(own: _Reading, base: _Reading | None, converter: Converter,
           count: Count | None) -> list[ImportedCell]:
    """One cell for the file, and one per task if it has several. A format whose tasks share prompts has only cells of
    tasks."""
    tasks: dict[str | None, list[tuple[str | None, str]]] = {}
    for category, prompt in own.prompts:
        tasks.setdefault(converter.task(category), []).append((category, prompt))
    chosen = {OVERALL: list(own.prompts)} if converter.divides else {}
    if len(tasks) > 1 or not converter.divides:
        chosen |= {str(task): keys for task, keys in tasks.items() if task is not None}
    cells = []
    for task, keys in chosen.items():
        beside = [None if base is None else base.prompts.get(key) for key in keys]
        script = {} if base is None or count is None else _script(own, base, converter, count, task)
        cells.append(imported_cell(task, [own.prompts[key] for key in keys], beside,
                                   own.failed.total() if task == OVERALL else 0, script))
    return cells


def _script(own: _Reading, base: _Reading, converter: Converter, count: Count, task: str) -> dict[str, float]:
    """What the format's own script gives for a task of two files."""
    own_answers, base_answers = (
        (answer for answer in one.folder.answers() if task in (OVERALL, converter.task(answer.category)))
        for one in (own, base))
    return converter.script(own_answers, base_answers, count)


def _sha256(file: Path) -> str:
    try:
        with open(file, "rb") as content:
            return hashlib.file_digest(content, "sha256").hexdigest()
    except OSError as error:
        raise ExchangeError(f"{file}: cannot be read: {error.strerror or error}") from error
