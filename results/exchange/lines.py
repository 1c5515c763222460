"""Formats of one JSON object per line: read line by line with a size limit, written line by line."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from results.exchange.base import Converter, Exchanged, ExchangeError, Read, Source, Written
from results.exchange.plausible import check, check_depth
from results.store.errors import first_fault
from results.store.files import replacing
from results.store.json_text import from_json, json_text
from results.store.reasons import one_line

LINE_BYTES = 16 << 20
"""A longer line is refused: no answer is that long."""
Parsed = TypeVar("Parsed", bound=BaseModel)


class Fields(BaseModel):
    """An object of a format. Unknown fields are kept (`model_extra`)."""

    model_config = ConfigDict(frozen=True, extra="allow", strict=True, allow_inf_nan=False)


def parsed(model: type[Parsed], data: Any) -> Parsed:
    """The typed object of plain data. Raises ValueError, one line that begins with the field."""
    try:
        return model.model_validate(data)
    except ValidationError as error:
        raise ValueError(first_fault(error)) from None


def raw_lines(file: Path) -> Iterator[tuple[str, bytes]]:
    """(place, line) of each line that is not blank. Raises ExchangeError for a file that cannot be read and a line
    above `LINE_BYTES`."""
    try:
        with open(file, "rb") as lines:
            number = 0
            while line := lines.readline(LINE_BYTES + 1):
                number += 1
                if len(line) > LINE_BYTES:
                    raise ExchangeError(f"{file} line {number}: longer than {LINE_BYTES >> 20} MiB, the limit")
                if line.strip():
                    yield f"{file} line {number}", line
    except OSError as error:
        raise ExchangeError(f"{file}: cannot be read: {error.strerror or error}") from error


def json_lines(file: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """(place, object) of each line of a file. Raises ExchangeError, naming file and line, for any other line."""
    for place, line in raw_lines(file):
        try:
            data = from_json(line, unique=True)
        except ValueError as error:
            raise ExchangeError(f"{place}: is not JSON ({one_line(error)})") from error
        if not isinstance(data, dict):
            raise ExchangeError(f"{place}: is not a JSON object but {type(data).__name__}")
        try:
            check_depth(data)
        except ValueError as error:
            raise ExchangeError(f"{place}: {error}") from error
        yield place, data


class LineFormat(Converter):
    """A format of one JSON object per line."""

    @abstractmethod
    def parse(self, data: dict[str, Any]) -> Iterator[Read]:
        """The records of one line's object. Raises ValueError, one line that begins with the field."""

    @abstractmethod
    def objects(self, source: Source, answers: Iterable[Exchanged]) -> Iterator[Mapping[str, Any] | None]:
        """The objects of a cell's lines; None for an answer that the format cannot hold."""

    def files(self, source: Source) -> Iterator[tuple[str, Iterator[Exchanged]]]:
        """(name, answers) of each file of a cell."""
        yield f"{source.name}.jsonl", source.answers()

    def read(self, file: Path) -> Iterator[Read]:
        """As `Converter.read`. A repeated prompt is refused."""
        first: dict[tuple[str, str | None, int], str] = {}
        for place, data in json_lines(file):
            try:
                records = list(self.parse(data))
                for record in records:
                    if isinstance(record, Exchanged):
                        check(record)
            except (ValueError, OverflowError) as error:
                raise ExchangeError(f"{place}: {one_line(error)}") from error
            for record in records:
                if isinstance(record, Exchanged):
                    key = record.id, record.category, record.choice
                    if key in first:
                        raise ExchangeError(f"{place}: repeats {record.id!r} of line {first[key]}: remove one of them")
                    first[key] = place.rpartition(" ")[2]
                yield record

    def write(self, sources: Iterable[Source], folder: Path) -> Iterator[Written]:
        for source in sources:
            for name, answers in self.files(source):
                yield write_objects(folder / name, self.objects(source, answers))


def write_objects(path: Path, objects: Iterable[Mapping[str, Any] | None]) -> Written:
    """Write one object per line. Raises StoreError."""
    written = left_out = 0
    with replacing(path) as temporary, open(temporary, "w", encoding="utf-8") as file:
        for one in objects:
            if one is None:
                left_out += 1
            else:
                file.write(json_text(one) + "\n")
                written += 1
    return Written(path, written, left_out)

