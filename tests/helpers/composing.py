"""Configurations and cells, from the words of a command line."""

from __future__ import annotations

from bench.config.cell import Cell
from bench.config.compose import Composer

COMPOSER = Composer("config", None)


def cell_of(*lines: str) -> Cell:
    return COMPOSER.point(" ".join(lines).split()).cell
