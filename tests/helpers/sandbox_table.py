"""Run every attack and write the table of docs/sandbox.md: `python -m tests.helpers.sandbox_table`."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

from tasks.sandbox.run import SandboxError
from tests.helpers.attacks import ATTACKS, Attack, attempt, prey

PAGE = Path(__file__).parents[2] / "docs" / "sandbox.md"
BEGIN, END = "<!-- table of attacks: begin -->\n", "<!-- table of attacks: end -->\n"


def main() -> int:
    """Rewrite the table; exit status 1 where an attack was not stopped."""
    rows, failures = [], 0
    with prey() as aims:
        for attack in ATTACKS:
            how = _how_it_ended(attack, aims)
            failures += how.startswith("**")
            rows.append(f"| {attack.kind} | {attack.name} | {how} |")
    table = "\n".join(["| after | attack | how it ended |", "|---|---|---|", *rows])
    said = f"{len(ATTACKS)} attacks, {failures} not stopped. {machine()}"
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    after = rest.partition(END)[2]
    PAGE.write_text(f"{before}{BEGIN}{said}\n\n{table}\n{END}{after}", encoding="utf-8")
    print(said)
    return int(failures > 0)


def listed() -> list[str]:
    """The attacks that the page lists, in its order."""
    table = PAGE.read_text(encoding="utf-8").partition(BEGIN)[2].partition(END)[0]
    return [line.split(" | ")[1] for line in table.splitlines() if line.startswith("| ")][1:]


def _how_it_ended(attack: Attack, aims: dict[str, str]) -> str:
    try:
        stopped, how = attempt(attack, aims, timeout_s=3.0)
    except SandboxError as error:
        stopped, how = False, f"no verdict: {error}"
    text = how.partition(" (line ")[0].replace("|", "\\|").replace("<", "&lt;")
    for name, value in aims.items():
        text = text.replace(value, name.strip("{}")) if len(value) > 4 else text
    text = text if len(text) <= 60 else f"{text[:57]}…"
    return text if stopped else f"**{text}**"


def machine() -> str:
    version = "no bubblewrap"
    if shutil.which("bwrap"):
        version = subprocess.run(["bwrap", "--version"], capture_output=True, text=True, check=True).stdout.strip()
    user = "root" if os.geteuid() == 0 else "an ordinary user"
    return (f"Run on {datetime.now(UTC):%d %B %Y} by {user}: Linux {platform.release()}, {platform.machine()}, "
            f"Python {platform.python_version()}, {version}.")


if __name__ == "__main__":
    sys.exit(main())
