"""What was measured: the store of cells, their summaries with uncertainty, and reports laid out as tables and pages."""

from results.grid import Grid, Outcome
from results.report import Point, ReportSpec
from results.store import CellFolder, Store, StoreError
from results.summary import summarise
from results.tables import render_table

__all__ = ["CellFolder", "Grid", "Outcome", "Point", "ReportSpec", "Store", "StoreError", "render_table", "summarise"]
