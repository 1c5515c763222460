"""The wheels that another machine lacks: the harness' dependencies at their locked versions, for another Python."""

from __future__ import annotations

import platform
import re
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from email import message_from_bytes
from email.message import Message
from pathlib import Path, PurePosixPath
from typing import Any

from packaging.markers import default_environment
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from bench.config.paths import PROJECT

LOCK = PROJECT / "requirements.lock"
LOCKED = re.compile(r"^([\w.-]+)==(?:.*\\\n)*.*$", re.MULTILINE)
"""A package in the lock: its name, its version, and on continued lines its hashes."""
LIBCS = [f"manylinux_2_{minor}" for minor in range(28, 16, -1)] + ["manylinux2014"]
"""Wheels that run on any Linux with glibc 2.28, of 2018, or a later one."""
LICENCE_FILE = re.compile(r"licen[cs]e|copying|notice", re.IGNORECASE)


@dataclass(frozen=True)
class Wheel:
    """A wheel on disk.

    path      the file.
    metadata  what it says of itself: name, version, licence, requirements.
    """

    path: Path
    metadata: Message

    @classmethod
    def read(cls, path: Path) -> Wheel:
        with zipfile.ZipFile(path) as archive:
            name = next(name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
            return cls(path, message_from_bytes(archive.read(name)))

    @property
    def name(self) -> str:
        return canonicalize_name(self.metadata["Name"])

    @property
    def title(self) -> str:
        """NAME-VERSION."""
        return f"{self.name}-{self.metadata['Version']}"

    @property
    def licence(self) -> str:
        """As its metadata give it, in a few words."""
        classifiers = [line.split(" :: ")[-1] for line in self.metadata.get_all("Classifier", [])
                       if line.startswith("License ::")]
        given = [self.metadata["License-Expression"], *classifiers, self.metadata["License"]]
        return next((text.splitlines()[0] for text in given if text), "not given")

    def licences(self) -> dict[str, bytes]:
        """The licence files beside its metadata, or the metadata where there are none: name -> content."""
        with zipfile.ZipFile(self.path) as archive:
            found = [name for name in archive.namelist() if ".dist-info/" in name and not name.endswith("/")]
            named = [name for name in found if LICENCE_FILE.search(PurePosixPath(name).name)]
            return {PurePosixPath(name).name: archive.read(name)
                    for name in named or [name for name in found if name.endswith("/METADATA")]}

    def requirements(self, environment: Mapping[str, Any], extra: str) -> list[Requirement]:
        """What it needs: with an extra, what that adds to the rest."""
        needed = map(Requirement, self.metadata.get_all("Requires-Dist", []))
        values = {**environment, "extra": extra}
        return [each for each in needed if (not extra if each.marker is None else each.marker.evaluate(values))]


def read_have(file: Path) -> dict[str, Version | None]:
    """The packages of a machine: name -> version, or None where the file gives none. Raises ValueError, one line."""
    if not file.is_file():
        raise ValueError(f"have={file}: no such file; write it on that machine: python3 -m pip list --format=freeze")
    have: dict[str, Version | None] = {}
    for number, line in enumerate(file.read_text(encoding="utf-8", errors="replace").splitlines(), 1):
        if text := line.partition("#")[0].strip():
            name, _, version = text.partition("==")
            try:
                have[canonicalize_name(Requirement(name).name)] = Version(version) if version else None
            except (InvalidRequirement, InvalidVersion):
                raise ValueError(f"have={file}: line {number}: {text!r} is no package; write NAME or NAME==VERSION"
                                 ) from None
    return have


def dependencies() -> list[Requirement]:
    """Those of pyproject.toml, without extras."""
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return list(map(Requirement, project["dependencies"]))


def gather(needed: Iterable[Requirement], have: Mapping[str, Version | None], python: str, folder: Path
           ) -> tuple[list[Wheel], list[str]]:
    """Fetch into `folder` the wheels of what is needed and not there, with all that they need in turn.

    needed  requirements of the harness.
    have    the machine's packages, as `read_have`. One whose version is given and does not suffice is fetched.
    python  its Python, such as 3.12.

    Returns the wheels by name, and the requirements that the machine's own packages have to meet. Raises ValueError,
    one line."""
    locked = {canonicalize_name(block[1]): block[0] for block in LOCKED.finditer(LOCK.read_text(encoding="utf-8"))}
    versions = {"python_version": python, "python_full_version": f"{python}.0"}
    environment: dict[str, Any] = {**default_environment(), **versions}
    wheels: dict[str, Wheel] = {}
    followed: set[tuple[str, str]] = set()
    relied: set[str] = set()
    open_ = list(needed)
    while open_:
        lacking = [each for each in open_ if not _meets(have, each)]
        relied |= {f"{each.name}{each.specifier}" for each in open_ if _meets(have, each)}
        new = {canonicalize_name(each.name) for each in lacking} - wheels.keys()
        for each in lacking:
            if canonicalize_name(each.name) not in locked:
                raise ValueError(f"{each.name}: not in {LOCK.name}, so the machine must have it and have= must list "
                                 f"it, as {each.name}{each.specifier}")
        if new:
            _fetch([locked[name] for name in sorted(new)], python, folder)
            wheels = {wheel.name: wheel for wheel in map(Wheel.read, sorted(folder.glob("*.whl")))}
        asked = {(canonicalize_name(each.name), extra) for each in lacking for extra in ("", *each.extras)} - followed
        followed |= asked
        open_ = [each for name, extra in sorted(asked) for each in wheels[name].requirements(environment, extra)]
    return list(wheels.values()), sorted(relied)


def _meets(have: Mapping[str, Version | None], needed: Requirement) -> bool:
    name = canonicalize_name(needed.name)
    return name in have and ((version := have[name]) is None or needed.specifier.contains(version, prereleases=True))


def _fetch(blocks: Iterable[str], python: str, folder: Path) -> None:
    """Fetch these packages of the lock, checked by their hashes; one that has only its source is built, which must give
    a wheel for any machine. Raises ValueError, one line."""
    listed = folder / "requirements.txt"
    listed.write_text("\n".join(blocks) + "\n", encoding="utf-8")
    platforms = [f"--platform={libc}_{platform.machine()}" for libc in LIBCS]
    _pip("download", "--no-deps", "--no-build-isolation", "--require-hashes", f"--dest={folder}",
         f"--python-version={python}", *platforms, f"--requirement={listed}", wanted=f"the wheels for Python {python}")
    listed.unlink()
    for source in [*folder.glob("*.tar.gz"), *folder.glob("*.zip")]:
        _pip("wheel", "--no-deps", "--no-build-isolation", "--use-pep517", "--no-index", f"--wheel-dir={folder}",
             str(source), wanted=f"a wheel of {source.name}")
        source.unlink()
    for wheel in folder.glob("*.whl"):
        if not wheel.stem.endswith(("-any", platform.machine())) or "-linux_" in wheel.name:
            raise ValueError(f"{wheel.name}: built for this machine alone, as its package has no wheel for Python "
                             f"{python}; install it on the machine and list it in have=")


def _pip(command: str, *options: str, wanted: str) -> None:
    done = subprocess.run([sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input", command, "--quiet",
                           *options], capture_output=True, text=True, check=False)
    if done.returncode:
        errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR: ")] or done.stderr.splitlines()
        raise ValueError(f"pip cannot fetch {wanted} ({(errors or ['no message'])[-1].removeprefix('ERROR: ')}); check "
                         "the network and pip's index")
