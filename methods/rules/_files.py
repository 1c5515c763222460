"""Options that are files written by another command of this project."""

from __future__ import annotations

from pathlib import Path

from pydantic import AfterValidator


def made_by(command: str) -> AfterValidator:
    """For `Annotated[Path, made_by("bench.calibrate")]`: the file must exist; `command` writes it."""
    def existing(path: Path) -> Path:
        if not path.is_file():
            raise ValueError(f"no such file; `python -m {command}` writes it")
        return path
    return AfterValidator(existing)
