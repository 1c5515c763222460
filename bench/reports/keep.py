"""`output.keep=FOLDER`: the files of reports, kept in a folder of their own. No two give one number differently."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from bench.reports.render import latest_environment, page_of
from results.reports.consistency import contradictions
from results.store.files import copy_file

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
    without answers and where it is not too large, and a list of all. Files of other reports that the list names stay
    unless they give a number otherwise than it is now: those are of an earlier measurement, and are removed.

    Raises ValueError where two of the reports give one number differently, and as `kept_reports`."""
    with TemporaryDirectory() as made:
        fresh = Path(made)
        for path in (path for item in items for path in item.paths):
            shutil.copy(path, fresh / path.name)
        for plan in plans:
            record = json.dumps(latest_environment([plan], session), indent=1, ensure_ascii=False)
            (fresh / f"{plan.spec.name}.environment.json").write_text(f"{record}\n", encoding="utf-8")
        if faults := contradictions(sorted(fresh.glob("*.csv"))):
            raise ValueError(f"{faults[0]}; {len(faults)} such numbers, so nothing was written to {folder}: measure "
                             "again with fresh=true")
        own = {plan.spec.name for plan in plans}
        earlier = kept_reports(folder) - own
        outdated = contradicted(earlier, folder, fresh)
        lines = listed(folder / INDEX) | index(items)
        (fresh / INDEX).write_text(HEADING + "".join(lines[name] for name in sorted(lines.keys() - outdated)),
                                   encoding="utf-8")
        page = page_of(items, plans, fresh, session, answers=False)
        too_large = page.stat().st_size > LARGEST_PAGE
        files = [path for path in sorted(fresh.iterdir()) if path.name.endswith((*KEPT, INDEX))]
        removed = replace([*files, *([] if too_large else [page])], folder,
                          [PAGE, *(f"{name}{ending}" for name in own | outdated for ending in KEPT)])
    page_note = "; the page is too large, and in output.dir alone" if too_large else ""
    session.print(f"kept in {folder}: {len(files)} files{page_note}", soft_wrap=True)
    for name in removed:
        why = "of an earlier measurement of the same cells" if name.split(".")[0] in outdated else "no longer drawn"
        session.print(f"removed from {folder}: {name}, {why}", soft_wrap=True)


def replace(fresh: Sequence[Path], folder: Path, outdated: Iterable[str]) -> list[str]:
    """Copy these files into a folder, and remove the others of `outdated`. Returns the names of the removed ones."""
    folder.mkdir(parents=True, exist_ok=True)
    for path in sorted(fresh, key=lambda path: path.name != INDEX):  # the list first: it makes the folder a kept one
        copy_file(path, folder / path.name)
    removed = sorted(name for name in {*outdated} - {path.name for path in fresh} if (folder / name).is_file())
    for name in removed:
        (folder / name).unlink()
    return removed


def contradicted(earlier: Iterable[str], folder: Path, fresh: Path) -> set[str]:
    """Which of these reports in `folder` give a number otherwise than the files in `fresh` do."""
    files = {path.name: name for name in earlier if (path := folder / f"{name}.csv").exists()}
    paths = [*sorted(fresh.glob("*.csv")), *(folder / file for file in sorted(files))]
    return {files[file] for fault in contradictions(paths) for file in fault.files & set(files)}


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
