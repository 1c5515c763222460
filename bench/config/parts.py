"""What modules read of a cell that `bench.config.cell` itself imports.

They cannot name `Cell`, not even for a type checker: no module of this project imports one that
imports it (`no circles` in pyproject.toml)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from bench.config.schema import Decoding
    from bench.config.section import Named


class CellParts(Protocol):
    """The sections of a `bench.config.cell.Cell`, and its task. `Cell` says what each holds."""

    @property
    def drafter(self) -> Named[Any]: ...

    @property
    def rule(self) -> Named[Any]: ...

    @property
    def pruning(self) -> Named[Any] | None: ...

    @property
    def task(self) -> Named[Any]: ...

    @property
    def decoding(self) -> Decoding: ...

    @property
    def engine(self) -> Any:
        """A `bench.config.engine.EngineOptions`, whose module imports this one."""

    def load_task(self) -> Any:
        """A `tasks.base.Task`."""
