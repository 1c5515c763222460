"""`output.keep=FOLDER`: the files of reports, kept in a folder of their own."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from bench.reports.render import latest_environment, page_of
from results.store.files import copy_file, replace_text

if TYPE_CHECKING:
    from bench.reports.plan import Plan
    from bench.run.session import Session
    from results.reports.page import Item

KEPT = (".md", ".csv", ".tex", ".png", ".environment.json")
"""Endings of a report's files that are kept; PDF, SVG and HTML are made from the store again."""
HEADING = "# Tables and figures\n\n"
INDEX, PAGE = "TABLES.md", "index.html"
LARGEST_PAGE = 4 * 2**20
"""Bytes: a larger page is not kept."""


def kept_reports(folder: Path) -> set[str]:
    """The names of the reports whose files `output.keep` wrote into a folder: those that its TABLES.md lists. Raises
    ValueError for a folder with other files and without such a list."""
    index = folder / INDEX
    if index.is_file() and index.read_text(encoding="utf-8").startswith(HEADING):
        return set(listed(index))
    if folder.is_dir() and any(folder.iterdir()):
        raise ValueError(f"output.keep={folder}: holds files, and no {INDEX} that output.keep wrote; give a new folder")
    return set()


def keep_reports(plans: Sequence[Plan], items: Sequence[Item], folder: Path, session: Session) -> None:
    """Copy what was drawn of the reports `plans` into a folder, each with the environment it was measured in, the page,
    without answers and where it is not too large, and a list of all reports there. Raises ValueError as
    `kept_reports`."""
    kept_reports(folder)
    folder.mkdir(parents=True, exist_ok=True)
    lines = listed(folder / INDEX) | index(items)  # the list first: it makes the folder a kept one
    replace_text(folder / INDEX, HEADING + "".join(lines[name] for name in sorted(lines)))
    for path in (path for item in items for path in item.paths if path.name.endswith(KEPT)):
        copy_file(path, folder / path.name)
    for plan in plans:
        record = json.dumps(latest_environment([plan], session), indent=1, ensure_ascii=False)
        replace_text(folder / f"{plan.spec.name}.environment.json", f"{record}\n")
    (folder / PAGE).unlink(missing_ok=True)
    with TemporaryDirectory() as made:
        page = page_of(items, plans, Path(made), session, answers=False)
        too_large = page.stat().st_size > LARGEST_PAGE
        if not too_large:
            copy_file(page, folder / PAGE)
    note = "; the page is too large, and in output.dir alone" if too_large else ""
    session.print(f"kept in {folder}: {', '.join(sorted(index(items)))}{note}", soft_wrap=True)


def index(items: Iterable[Item]) -> dict[str, str]:
    """The report's name -> its line in the list of files, with its command."""
    lines = {}
    for item in items:
        name = item.spec.name
        shown = f"{name}.md" if item.spec.kind == "table" else f"{name}.png"
        lines[name] = (f"- [{item.spec.title}]({shown}): [numbers]({name}.csv), "
                       f"[environment]({name}.environment.json), `{item.command}`\n")
    return lines


def listed(file: Path) -> dict[str, str]:
    """The lines of a list of files, by the report's name."""
    lines = file.read_text(encoding="utf-8").splitlines(keepends=True) if file.exists() else []
    return {found[1]: line for line in lines if (found := re.search(r"\[numbers\]\((\w+)\.csv\)", line))}
