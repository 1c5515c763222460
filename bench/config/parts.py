"""What a cell's own modules read of it: they are imported by that of `Cell`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from bench.config.schema import Decoding
    from bench.config.section import Named


class CellParts(Protocol):
    """The sections of a `bench.config.cell.Cell`."""

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
        """A `bench.config.engine.EngineOptions`."""

    def load_task(self) -> Any:
        """A `tasks.base.Task`."""
