"""The terminal that all commands print to."""

from __future__ import annotations

import sys
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, ConsoleRenderable, RenderHook, RenderResult
from rich.segment import Segment

from results.store.reasons import printable

WIDE = 150


class Printing(RenderHook):
    """Writes out what a text would steer the terminal with: prompts, answers and names come from others."""

    def process_renderables(self, renderables: list[ConsoleRenderable]) -> list[ConsoleRenderable]:
        return [_Printable(renderable) for renderable in renderables]


@dataclass(frozen=True, slots=True)
class _Printable:
    renderable: ConsoleRenderable

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for segment in console.render(self.renderable, options):
            yield segment if segment.control else Segment(printable(segment.text), segment.style)


def console(*, stderr: bool = False) -> Console:
    """The standard output, or `stderr`; where it is no terminal, wide enough for whole rows. Text is printed as it
    stands: `[x]` is no markup."""
    stream = sys.stderr if stderr else sys.stdout
    made = Console(stderr=stderr, width=None if stream.isatty() else WIDE, markup=False, emoji=False)
    made.push_render_hook(Printing())
    return made
