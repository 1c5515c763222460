"""`output.keep=FOLDER`: the files of reports that are kept beside the code. No two give one number differently."""

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
from results.reports.viewer.parts import FOLDER

if TYPE_CHECKING:
    from bench.reports.plan import Plan
    from bench.run.session import Session
    from results.reports.page import Item

KEPT = (".md", ".csv", ".tex", ".png", ".environment.json")
"""Endings of a report's files that are kept; PDF, SVG and HTML are made from the store again."""
INDEX = "TABLES.md"
LARGEST_PAGE = 4 * 2**20
"""Bytes: a larger page is not kept."""


def keep_reports(plans: Sequence[Plan], items: Sequence[Item], names: Iterable[str], folder: Path,
                 session: Session) -> None:
    """Copy what was drawn of the reports `plans` into `folder`, each with the environment it was measured in, the page,
    without answers and where it is not too large, and a list of all. Files of other reports (`names`: all there are, in
    this edition) stay unless they give a number otherwise than it is now: those are of an earlier measurement, and are
    removed. Other files stay.

    Raises ValueError where two of the reports give one number differently."""
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
        folder.mkdir(parents=True, exist_ok=True)
        own = {plan.spec.name for plan in plans}
        earlier = {name for name in names if (folder / f"{name}.environment.json").exists()} - own
        outdated = contradicted(earlier, folder, fresh)
        staying = earlier - outdated
        for name in {*names} - staying:
            for ending in KEPT:
                (folder / f"{name}{ending}").unlink(missing_ok=True)
        lines = listed(folder / INDEX, staying) | index(items)
        (fresh / INDEX).write_text("# Tables and figures\n\n" + "".join(lines[name] for name in sorted(lines)),
                                   encoding="utf-8")
        page = page_of(items, plans, fresh, session, answers=False)
        too_large = page.stat().st_size > LARGEST_PAGE or any((fresh / FOLDER).glob("*"))
        (folder / page.name).unlink(missing_ok=True)
        kept = [path for path in sorted(fresh.iterdir()) if path.name.endswith((*KEPT, INDEX))]
        for path in [*kept, *([] if too_large else [page])]:
            shutil.copy(path, folder / path.name)
    page_note = "; the page is too large, and in output.dir alone" if too_large else ""
    session.print(f"kept in {folder}: {len(kept)} files{page_note}", soft_wrap=True)
    for name in sorted(outdated):
        session.print(f"removed from {folder}: {name}, of an earlier measurement of the same cells", soft_wrap=True)


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


def listed(file: Path, names: set[str]) -> dict[str, str]:
    """The lines of these reports in an existing list of files, by name."""
    lines = file.read_text(encoding="utf-8").splitlines(keepends=True) if file.exists() else []
    return {found[1]: line for line in lines if (found := re.search(r"\[numbers\]\((\w+)\.csv\)", line))
            and found[1] in names}
