"""`output.keep=FOLDER`: the files of reports that are kept beside the code, all from one store and in one go."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from bench.reports.render import latest_environment, render_plans
from results.reports.consistency import contradictions
from results.reports.viewer.parts import FOLDER

if TYPE_CHECKING:
    from bench.reports.plan import Plan
    from bench.run.session import Session

KEPT = (".md", ".csv", ".tex", ".png", ".environment.json")
"""Endings of a report's files that are kept; PDF, SVG and HTML are made from the store again."""
PAGE, INDEX = "index.html", "TABLES.md"
LARGEST_PAGE = 4 * 2**20
"""Bytes: a larger page is not kept."""


def keep_reports(plans: Mapping[str, Plan], commands: Sequence[str], names: Iterable[str], folder: Path,
                 session: Session) -> None:
    """Write the reports `plans`, by name, into `folder`, each with the environment it was measured in, the page, where
    it is not too large, and a list of all. Files of other reports (`names`: all there are, in this edition) are
    removed: what the folder holds comes from one store. Other files stay.

    Raises ValueError where two of the files give one number differently."""
    with TemporaryDirectory() as made:
        fresh = Path(made)
        render_plans(list(plans.values()), commands, fresh, session)
        for plan in plans.values():
            record = json.dumps(latest_environment([plan], session), indent=1, ensure_ascii=False)
            (fresh / f"{plan.spec.name}.environment.json").write_text(f"{record}\n", encoding="utf-8")
        if faults := contradictions(sorted(fresh.glob("*.csv"))):
            raise ValueError(f"{faults[0]}; {len(faults)} such numbers, so that nothing was kept: measure again with "
                             "fresh=true")
        (fresh / INDEX).write_text(index(plans, commands), encoding="utf-8")
        folder.mkdir(parents=True, exist_ok=True)
        for name in names:
            for ending in KEPT:
                (folder / f"{name}{ending}").unlink(missing_ok=True)
        page = fresh / PAGE
        too_large = page.stat().st_size > LARGEST_PAGE or any((fresh / FOLDER).glob("*"))
        (folder / PAGE).unlink(missing_ok=True)
        kept = [path for path in sorted(fresh.iterdir()) if path.name.endswith((*KEPT, INDEX))]
        for path in [*kept, *([] if too_large else [page])]:
            shutil.copy(path, folder / path.name)
    page_note = "; the page is too large, and in output.dir alone" if too_large else ""
    session.print(f"kept in {folder}: {len(kept)} files{page_note}", soft_wrap=True)


def index(plans: Mapping[str, Plan], commands: Sequence[str]) -> str:
    """The list of the files: a line for each report, with its command."""
    lines = []
    for plan, command in zip(plans.values(), commands, strict=True):
        name = plan.spec.name
        shown = f"{name}.md" if plan.spec.kind == "table" else f"{name}.png"
        lines.append(f"- [{plan.spec.title}]({shown}): [numbers]({name}.csv), [environment]({name}.environment.json), "
                     f"`{command}`")
    return "# Tables and figures\n\n" + "\n".join(lines) + "\n"
