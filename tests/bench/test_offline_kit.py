"""`python -m bench.offline_kit`: the wheels that another machine lacks, a kit in parts, and its installation."""

from __future__ import annotations

import hashlib
import importlib.metadata
import io
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

from bench import offline_kit
from bench import offline_kit as wheels
from bench.config.paths import CONF, PROJECT
from bench.offline_kit import Wheel, dependencies, gather, main, meets, read_have

HERE = f"{sys.version_info[0]}.{sys.version_info[1]}"
STOCK = CONF / "offline" / "stock_pytorch.txt"
NOT_NEEDED = ("datasets", "evalplus", "gguf", "immutabledict", "langdetect", "lm_eval", "rouge_score", "wandb",
              "trackio")
"""Modules that a measurement of the embedded pair must not import."""


def write_wheel(folder: Path, name: str, tag: str = "py3-none-any", requires: tuple[str, ...] = ()) -> Path:
    """An empty package NAME, version 1.0."""
    stem = f"{name.replace('-', '_')}-1.0"
    info = "".join(f"Requires-Dist: {each}\n" for each in requires)
    path = folder / f"{stem}-{tag}.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"{stem}.dist-info/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n"
                                                       f"License-Expression: MIT\n{info}")
        archive.writestr(f"{stem}.dist-info/WHEEL", f"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: {tag}\n")
        archive.writestr(f"{stem}.dist-info/RECORD", "")
    return path


def write_source(folder: Path, name: str, setup: str = "") -> Path:
    """A source archive of package NAME, version 1.0."""
    root = folder / f"{name}-1.0"
    root.mkdir()
    (root / f"{name}.py").write_text("")
    (root / "setup.py").write_text(f"from setuptools import Extension, setup\nsetup(name={name!r}, version='1.0', "
                                   f"py_modules=[{name!r}]{setup})\n")
    (root / "PKG-INFO").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    with tarfile.open(folder / f"{name}-1.0.tar.gz", "w:gz") as archive:
        archive.add(root, root.name)
    shutil.rmtree(root)
    return folder / f"{name}-1.0.tar.gz"


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that pip fetches from in place of an index; `lock_all` locks what lies in it."""
    folder = tmp_path / "index"
    folder.mkdir()
    for name, value in (("PIP_CONFIG_FILE", os.devnull), ("PIP_NO_INDEX", "1"), ("PIP_FIND_LINKS", str(folder))):
        monkeypatch.setenv(name, value)
    return folder


def lock_all(index: Path, monkeypatch: pytest.MonkeyPatch, damage: str = "") -> None:
    """The lock: every package of the folder, with the hashes of all its files; wrong ones for `damage`."""
    files: dict[str, list[Path]] = {}
    for file in sorted(index.iterdir()):
        files.setdefault(file.name.split("-")[0], []).append(file)
    lock = index.parent / "requirements.lock"
    with lock.open("w") as opened:
        for name, found in files.items():
            digests = ["0" * 64 if name == damage else hashlib.sha256(file.read_bytes()).hexdigest() for file in found]
            opened.write(" \\\n    ".join([f"{name}==1.0", *(f"--hash=sha256:{digest}" for digest in digests)]) + "\n")
    monkeypatch.setattr(wheels, "LOCK", lock)


def collect(tmp_path: Path, needed: str, have: dict[str, Version | None], python: str = "3.12"
            ) -> tuple[list[Wheel], list[str]]:
    folder = tmp_path / "fetched"
    folder.mkdir()
    return gather(map(Requirement, needed.split()), have, python, folder)


def test_the_closure_of_what_a_machine_lacks(index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Extras, markers and versions decide what is fetched; wheels are those of the other Python."""
    write_wheel(index, "top", requires=("there>=2", "old>=3", "unsure>=1", "any", "deep[fast]",
                                        "optional; extra == 'more'", "elsewhere; python_version < '3.12'"))
    write_wheel(index, "deep", "cp312-cp312-manylinux_2_28_x86_64", requires=("quick; extra == 'fast'",))
    write_wheel(index, "deep", "cp311-cp311-manylinux_2_28_x86_64")
    for name in ("old", "unsure", "any", "optional", "elsewhere", "there", "unasked"):
        write_wheel(index, name)
    write_source(index, "quick")
    lock_all(index, monkeypatch)
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    have = {"there": Version("2.1+local"), "old": Version("2.9"), "unsure": None, "any": None}
    found, relied = collect(tmp_path, "top", have)
    assert [wheel.name for wheel in found] == ["deep", "old", "quick", "top", "unsure"]
    assert found[0].path.name == "deep-1.0-cp312-cp312-manylinux_2_28_x86_64.whl"
    assert relied == ["any", "there>=2"]


def test_the_list_of_a_machines_packages(tmp_path: Path) -> None:
    file = tmp_path / "have.txt"
    file.write_text("# a comment\nTorch==2.11.0+cu130\n\nscikit_learn  # any version\nrich>=13\n")
    assert read_have(file) == {"torch": Version("2.11.0+cu130"), "scikit-learn": None, "rich": Version("13")}
    assert {"torch", "transformers", "numpy", "pandas"} <= read_have(STOCK).keys()
    assert not {"hydra-core", "omegaconf", "pydantic", "rapidfuzz", "datasets", "wandb"} & read_have(STOCK).keys()


def test_the_default_kit_carries_what_the_stock_image_has_too_old() -> None:
    """filelock 3.32.5 was read off the image; the large packages there suffice and do not travel."""
    have = read_have(STOCK)
    travel = {each.name for each in dependencies() if not meets(have, each)}
    assert "filelock" in travel
    assert not {"torch", "transformers", "numpy", "scipy", "scikit-learn", "matplotlib", "pandas"} & travel


@pytest.fixture(scope="module")
def kit(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A kit without weights for this very environment, which lacks nothing, in parts of one MiB."""
    folder = tmp_path_factory.mktemp("offline")
    have = folder / "have.txt"
    have.write_text("".join(f"{each.name}=={importlib.metadata.version(each.name)}\n" for each in dependencies()))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(offline_kit, "PART", 2**20)
        assert main([f"into={folder / 'kit'}", f"python={HERE}", f"have={have}", "pairs=[]"]) == 0
    return folder / "kit"


def install(kit: Path, into: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["sh", str(kit / "install.sh"), str(into)], capture_output=True, text=True, check=False,
                          env=os.environ | {"PYTHON": sys.executable} | variables)


def test_a_kit_lists_its_parts_and_holds_no_picture(kit: Path) -> None:
    parts = sorted(kit.glob("*.tar.gz.*"))
    assert len(parts) > 3 and all(part.stat().st_size <= 2**20 for part in parts)
    listed = (kit / "CONTENTS.md").read_text()
    assert all(f"| {part.name} " in listed for part in parts)
    whole = b"".join(part.read_bytes() for part in parts if part.name.startswith("checkout"))
    with tarfile.open(fileobj=io.BytesIO(whole)) as archive:
        names = archive.getnames()
    assert {"run", "checkout/pyproject.toml", "checkout/commit.json",
            "checkout/models/shapes/tiny/config.json"} <= {*names}
    assert not [name for name in names if name.endswith((".png", ".xz", ".safetensors")) or name.startswith(".git/")]
    assert "checkout/tasks/mini/rows/mini_gsm.jsonl.gz" in names


def test_an_installed_kit_runs_and_knows_its_commit(kit: Path, tmp_path: Path) -> None:
    done = install(kit, tmp_path / "machine")
    assert (done.returncode, done.stderr) == (0, "") and f"installed: {tmp_path}/machine/leeway" in done.stdout
    assert sorted(path.name for path in (tmp_path / "machine").iterdir()) == ["leeway"]
    code = "from bench.config.environment import *; print(PROJECT, checked_out()['commit'])"
    said = subprocess.run([tmp_path / "machine/leeway/run", "-c", code], capture_output=True, text=True, check=True)
    head = subprocess.run(["git", "-C", PROJECT, "rev-parse", "HEAD"], capture_output=True, text=True, check=True)
    assert said.stdout.split() == [f"{tmp_path}/machine/leeway/checkout", head.stdout.strip()]
    again = install(kit, tmp_path / "machine")
    assert again.returncode == 2 and "leeway: there already, left as it is" in again.stderr


@pytest.mark.parametrize(("spoil", "says"), [
    (lambda kit: (kit / "checkout.tar.gz.01").unlink(), "checkout.tar.gz.01: missing; copy it again"),
    (lambda kit: (kit / "checkout.tar.gz.01").write_bytes(b"cut"), "checkout.tar.gz.01: damaged; copy it again"),
    (lambda kit: (kit / "SHA256SUMS").unlink(), "SHA256SUMS: missing; copy the whole kit again"),
], ids=["missing", "damaged", "no sums"])
def test_a_kit_that_is_not_whole_installs_nothing(spoil, says: str, kit: Path, tmp_path: Path) -> None:
    shutil.copytree(kit, tmp_path / "kit")
    spoil(tmp_path / "kit")
    done = install(tmp_path / "kit", tmp_path / "machine")
    assert done.returncode == 2 and done.stderr.startswith(f"install.sh: {says}") and done.stderr.count("\n") == 1
    assert not (tmp_path / "machine").exists()


def test_another_python_and_none_are_refused(kit: Path, tmp_path: Path) -> None:
    other = tmp_path / "python"
    other.write_text("#!/bin/sh\necho 3.9\n")
    other.chmod(0o755)
    for python, says in ((other, f"{other} is Python 3.9 and this kit is for {HERE}"),
                         (tmp_path / "none", f"{tmp_path / 'none'}: cannot be run")):
        done = install(kit, tmp_path / "machine", PYTHON=str(python))
        assert done.returncode == 2 and done.stderr.startswith(f"install.sh: {says}")


def blocking(folder: Path) -> dict[str, str]:
    """An environment in which NOT_NEEDED cannot be imported, in processes that a process starts, too."""
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(f"import sys\nsys.modules.update(dict.fromkeys({NOT_NEEDED!r}))\n")
    return os.environ | {"PYTHONPATH": f"{folder}{os.pathsep}{PROJECT}"}


@pytest.mark.slow
def test_a_measurement_imports_none_of_what_a_kit_leaves_out(tmp_path: Path) -> None:
    code = ("import sys, bench.commands.open_cell\nfrom bench.__main__ import main\n"
            f"assert all(sys.modules[name] is None for name in {NOT_NEEDED!r})\n"
            f"sys.exit(main(['method=mars', 'n=2', 'timed=2', 'store.dir={tmp_path / 'store'}', "
            f"'output.dir={tmp_path / 'out'}']))\n")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=PROJECT,
                          env=blocking(tmp_path / "blocked"))
    assert done.returncode == 0, done.stderr
    assert "mars mini_gsm" in done.stdout
