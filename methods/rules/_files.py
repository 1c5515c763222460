"""Options that are files which a command of this project measures on a pair."""

from __future__ import annotations

from pathlib import Path

from pydantic import AfterValidator


def made_by(command: str) -> AfterValidator:
    """For `Annotated[Path, made_by("bench.calibrate")]`: the file must be there; `command` is what makes it."""
    def there(path: Path) -> Path:
        if not path.is_file():
            raise ValueError(f"no such file; `python -m {command}` makes it")
        return path
    return AfterValidator(there)
