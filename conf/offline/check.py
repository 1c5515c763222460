"""`python check.py needs.txt`: whether this machine holds the packages that the kit counts on. Run
by install.sh."""

import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from pip._vendor.packaging.requirements import Requirement  # pip is there, packaging need not be

complaints = []
for line in Path(sys.argv[1]).read_text().splitlines():
    needed = Requirement(line)
    try:
        found = version(needed.name)
    except PackageNotFoundError:
        complaints.append(f"no {needed.name}")
        continue
    if not needed.specifier.contains(found, prereleases=True):
        complaints.append(f"{needed.name} {found}, not {needed.specifier}")
if complaints:
    sys.exit(
        f"install.sh: {sys.executable} has {', '.join(complaints)}; make the kit with a have= of "
        "what is here"
    )
