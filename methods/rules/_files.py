"""Files that `models.train` writes for rules."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar

from pydantic import AfterValidator, BaseModel, ValidationError

File = TypeVar("File", bound=BaseModel)


class FileMissing(ValueError):
    """A rule without a file that is measured on its models. `key`: the file is that of
    `pair.KEY`."""

    def __init__(self, key: str, message: str) -> None:
        super().__init__(message)
        self.key = key


def made_by(command: str) -> AfterValidator:
    """For `Annotated[Path, made_by("models.train calibrate")]`: the file must exist; `command`
    writes it."""

    def existing(path: Path) -> Path:
        if not path.is_file():
            raise ValueError(f"no such file; `python -m {command}` writes it")
        return path

    return AfterValidator(existing)


def read_json(model: type[File], path: Path, content: str) -> File:
    """The file as a `model`; `content` says in the error what it should hold. Raises ValueError,
    one line."""
    try:
        return model.model_validate_json(path.read_bytes())
    except ValidationError as error:
        first = error.errors()[0]
        where = "".join(f"{part}: " for part in first["loc"])
        raise ValueError(f"{path}: not {content}: {where}{first['msg']}") from error


def check_model(
    option: str, command: str, role: str, source: str | None, fingerprint: str | None, loaded: Any
) -> None:
    """Refuse the file `option` that `command` made with another model than that in its role. Raises
    ValueError, one line."""
    if loaded is None or loaded.fingerprint != fingerprint:
        has = "none" if loaded is None else f"{loaded.source} ({loaded.fingerprint})"
        raise ValueError(
            f"{option}: made with the {role} {source} ({fingerprint}), and the {role} here is "
            f"{has}; run `python -m {command}` for this pair"
        )
