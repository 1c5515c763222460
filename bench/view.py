"""`python -m bench.view [store.dir=DIR] [bundle=DIR]`: the answers of a store as a page
(conf/view.yaml)."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.cli.command import StoreOptions, run_yaml_command
from bench.reports.render import groups_of_stored, latest_environment, stored_cells
from results.reports.page import write_index
from results.store.files import check_writable


class ViewOptions(StoreOptions):
    """conf/view.yaml, which explains every field."""

    bundle: Path


def run(config: Mapping[str, Any]) -> None:
    """Write <bundle>/index.html over all cells of a store. Raises ValueError, StoreError, one
    line."""
    settings = ViewOptions.from_args(config)
    store = settings.opened()
    check_writable(settings.bundle, "bundle")
    cells = stored_cells(store)
    groups = groups_of_stored(cells, store)
    environment = latest_environment(store.cell(cell.key) for cell in cells)
    title = f"Cells of {settings.store.dir}"
    page = write_index(settings.bundle, [], environment, title=title, groups=groups)
    print(f"page: {page}")


def main(argv: Sequence[str] | None = None) -> int:
    """Exit status: 0 done, 2 the command is wrong."""
    return run_yaml_command("view", run, argv)


if __name__ == "__main__":
    sys.exit(main())
