"""`output.keep=FOLDER`: the files of reports that are kept beside the code. No two give one number differently."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from pydantic import TypeAdapter, ValidationError

from bench.reports.render import latest_environment, page_of
from results.reports.consistency import contradictions
from results.reports.viewer.parts import FOLDER
from results.store.errors import first_fault
from results.store.files import copy_file, replace_text

if TYPE_CHECKING:
    from bench.reports.plan import Plan
    from bench.run.session import Session
    from results.reports.page import Item

KEPT = (".md", ".csv", ".tex", ".png", ".environment.json")
"""Endings of a report's files that are kept; PDF, SVG and HTML are made from the store again."""
HEADING = "# Tables and figures\n\n"
INDEX, PAGE, MANIFEST = "TABLES.md", "index.html", "kept.json"
LARGEST_PAGE = 4 * 2**20
"""Bytes: a larger page is not kept."""


class KeptFolder:
    """A folder with files of reports, and which of them `output.keep` wrote: kept.json holds their SHA-256. Only these
    are ever replaced or removed. A folder that was kept before there was a kept.json is known by its environments."""

    def __init__(self, path: Path) -> None:
        """Raises ValueError for a kept.json that is none."""
        self.path = path
        self._digests = self._recorded() if os.path.lexists(path / MANIFEST) else self._recognised()

    def _recorded(self) -> dict[str, list[str]]:
        manifest = self.path / MANIFEST
        try:
            if manifest.is_symlink():
                raise OSError("it is a link")
            return TypeAdapter(dict[str, list[str]]).validate_json(manifest.read_bytes())
        except (ValidationError, OSError) as error:
            fault = first_fault(error) if isinstance(error, ValidationError) else error.strerror or error
            raise ValueError(f"{manifest}: not a list of kept files ({fault}); restore it, or give another "
                             "output.keep") from error

    def _recognised(self) -> dict[str, list[str]]:
        suffix = ".environment.json"
        reports = [path.name.removesuffix(suffix) for path in self.path.glob(f"*{suffix}") if _is_environment(path)]
        index = self.path / INDEX
        own = [f"{name}{ending}" for name in reports for ending in KEPT]
        own += [INDEX] if reports and index.is_file() and index.read_text("utf-8").startswith(HEADING) else []
        return {name: [_sha256(self.path / name)] for name in own if (self.path / name).is_file()}

    def owns(self, name: str) -> bool:
        """Whether a file is there, and as it was kept."""
        path = self.path / name
        return path.is_file() and not path.is_symlink() and _sha256(path) in self._digests.get(name, ())

    def check(self, reports: Iterable[str]) -> None:
        """Raises ValueError, naming it, for a file that is in the way of these reports and that was not kept."""
        for name in (INDEX, PAGE, *(f"{report}{ending}" for report in reports for ending in KEPT)):
            if os.path.lexists(self.path / name) and not self.owns(name):
                raise ValueError(f"output.keep={self.path}: {name} is no kept file, or was changed since it was kept; "
                                 "move it away or give another folder")

    def replace(self, fresh: Sequence[Path], outdated: Iterable[str]) -> list[str]:
        """Copy these files, and remove of `outdated` those that are kept. Returns the names of the removed ones."""
        self.path.mkdir(parents=True, exist_ok=True)
        removed = sorted(name for name in {*outdated} - {path.name for path in fresh} if self.owns(name))
        digests = {path.name: _sha256(path) for path in fresh}
        before = {name: digest for name, digest in self._digests.items() if name not in removed}
        either = {name: [*before.get(name, ()), new] for name, new in digests.items()}  # a kill may leave both
        self._write({**before, **either})
        for path in fresh:
            copy_file(path, self.path / path.name)
        for name in removed:
            (self.path / name).unlink()
        self._write({**before, **{name: [new] for name, new in digests.items()}})
        return removed

    def _write(self, digests: dict[str, list[str]]) -> None:
        replace_text(self.path / MANIFEST, json.dumps(dict(sorted(digests.items())), indent=1) + "\n")
        self._digests = digests


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _is_environment(path: Path) -> bool:
    """Whether a file holds the environment of a measurement."""
    try:
        plain = json.loads(path.read_bytes())
    except ValueError:
        return False
    return isinstance(plain, dict) and {"since", "argv", "python", "packages"} <= plain.keys()


def keep_reports(plans: Sequence[Plan], items: Sequence[Item], names: Iterable[str], kept: KeptFolder,
                 session: Session) -> None:
    """Copy what was drawn of the reports `plans` into a folder, each with the environment it was measured in, the page,
    without answers and where it is not too large, and a list of all. Kept files of other reports (`names`: all there
    are, in this edition) stay unless they give a number otherwise than it is now: those are of an earlier measurement,
    and are removed. What was not kept stays.

    Raises ValueError where two of the reports give one number differently, and as `KeptFolder.check`."""
    with TemporaryDirectory() as made:
        fresh = Path(made)
        for path in (path for item in items for path in item.paths):
            shutil.copy(path, fresh / path.name)
        for plan in plans:
            record = json.dumps(latest_environment([plan], session), indent=1, ensure_ascii=False)
            (fresh / f"{plan.spec.name}.environment.json").write_text(f"{record}\n", encoding="utf-8")
        if faults := contradictions(sorted(fresh.glob("*.csv"))):
            raise ValueError(f"{faults[0]}; {len(faults)} such numbers, so nothing was written to {kept.path}: measure "
                             "again with fresh=true")
        own = {plan.spec.name for plan in plans}
        kept.check(own)
        earlier = {name for name in names if kept.owns(f"{name}.environment.json")} - own
        outdated = contradicted(earlier, kept.path, fresh)
        lines = listed(kept.path / INDEX, earlier - outdated) | index(items)
        (fresh / INDEX).write_text(HEADING + "".join(lines[name] for name in sorted(lines)), encoding="utf-8")
        page = page_of(items, plans, fresh, session, answers=False)
        too_large = page.stat().st_size > LARGEST_PAGE or any((fresh / FOLDER).glob("*"))
        files = [path for path in sorted(fresh.iterdir()) if path.name.endswith((*KEPT, INDEX))]
        removed = kept.replace([*files, *([] if too_large else [page])],
                               [PAGE, *(f"{name}{ending}" for name in own | outdated for ending in KEPT)])
    page_note = "; the page is too large, and in output.dir alone" if too_large else ""
    session.print(f"kept in {kept.path}: {len(files)} files{page_note}", soft_wrap=True)
    for name in removed:
        why = "of an earlier measurement of the same cells" if name.split(".")[0] in outdated else "no longer drawn"
        session.print(f"removed from {kept.path}: {name}, {why}", soft_wrap=True)


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
