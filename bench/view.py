"""`python -m bench.view [store.dir=DIR] [bundle=DIR]`: the answers of a store in a browser (conf/view.yaml)."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import Field

from bench.commands.command import StoreOptions, run_yaml_command
from bench.reports.site import serve, write_site
from results.store.files import check_writable


class View(StoreOptions):
    """conf/view.yaml, which explains every field."""

    bundle: Path | None
    port: int = Field(ge=0, le=65535)


def run(config: Mapping[str, Any]) -> None:
    """Write the site, or serve it until Ctrl-C. Raises ValueError, StoreError, one line."""
    settings = View.from_args(config)
    store = settings.opened()
    if settings.bundle is None:
        serve(store, settings.port)
    else:
        check_writable(settings.bundle, "bundle")
        print(f"page: {write_site(store, settings.bundle)}")


def main(argv: Sequence[str] | None = None) -> int:
    """Exit status: 0 done, 2 the command is wrong, 130 interrupted."""
    return run_yaml_command("view", run, argv)


if __name__ == "__main__":
    sys.exit(main())
