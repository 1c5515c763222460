"""Options that are files written by another command of this project."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

from pydantic import AfterValidator, BaseModel, ValidationError

Model = TypeVar("Model", bound=BaseModel)


class FileMissing(ValueError):
    """A rule without a file that is measured on its models. `key`: the file is that of `pair.KEY`."""

    def __init__(self, key: str, message: str) -> None:
        super().__init__(message)
        self.key = key


def made_by(command: str) -> AfterValidator:
    """For `Annotated[Path, made_by("bench.train calibrate")]`: the file must exist; `command` writes it."""
    def existing(path: Path) -> Path:
        if not path.is_file():
            raise ValueError(f"no such file; `python -m {command}` writes it")
        return path
    return AfterValidator(existing)


def read_json(model: type[Model], path: Path, content: str) -> Model:
    """The file as a `model`; `content` says in the error what it should hold. Raises ValueError, one line."""
    try:
        return model.model_validate_json(path.read_bytes())
    except ValidationError as error:
        first = error.errors()[0]
        where = "".join(f"{part}: " for part in first["loc"])
        raise ValueError(f"{path}: not {content}: {where}{first['msg']}") from error
