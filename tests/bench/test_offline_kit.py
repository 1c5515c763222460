"""`python -m bench.offline_kit`: the wheels that another machine lacks, a kit in parts, and its
installation."""

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
from bench.config.paths import CONF, PROJECT
from bench.offline_kit import dependencies, fetch, lacking, main, meets, read_have

HERE = f"{sys.version_info[0]}.{sys.version_info[1]}"
STOCK = CONF / "offline" / "stock_pytorch.txt"
NOT_NEEDED = (
    "datasets",
    "evalplus",
    "gguf",
    "immutabledict",
    "langdetect",
    "lm_eval",
    "rouge_score",
    "wandb",
)
"""Modules that a measurement of the embedded pair must not import."""


def write_wheel(folder: Path, name: str, tag: str = "py3-none-any") -> None:
    """An empty package NAME, version 1.0."""
    with zipfile.ZipFile(folder / f"{name}-1.0-{tag}.whl", "w") as archive:
        archive.writestr(
            f"{name}-1.0.dist-info/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n"
        )
        archive.writestr(
            f"{name}-1.0.dist-info/WHEEL",
            f"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: {tag}\n",
        )
        archive.writestr(f"{name}-1.0.dist-info/RECORD", "")


def install_here(folder: Path, name: str, *needs: str) -> None:
    """The metadata of an installed package NAME, version 1.0."""
    info = folder / f"{name}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n"
        + "".join(f"Requires-Dist: {each}\n" for each in needs)
    )


def write_source(folder: Path, name: str) -> None:
    """A source archive of package NAME, version 1.0."""
    root = folder / f"{name}-1.0"
    root.mkdir()
    (root / f"{name}.py").write_text("")
    (root / "setup.py").write_text(
        f"from setuptools import setup\nsetup(name={name!r}, version='1.0', "
        f"py_modules=[{name!r}])\n"
    )
    (root / "PKG-INFO").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    with tarfile.open(folder / f"{name}-1.0.tar.gz", "w:gz") as archive:
        archive.add(root, root.name)
    shutil.rmtree(root)


def test_the_closure_of_what_a_machine_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Extras, markers and versions decide."""
    site = tmp_path / "site"
    install_here(
        site,
        "top",
        "there>=2",
        "old>=3",
        "unsure>=1",
        "any",
        "deep[fast]",
        "optional; extra == 'more'",
        "elsewhere; python_version < '3.12'",
    )
    install_here(site, "deep", "quick; extra == 'fast'")
    for name in ("old", "unsure", "quick"):
        install_here(site, name)
    monkeypatch.syspath_prepend(site)
    have = {"there": Version("2.1+local"), "old": Version("2.9"), "unsure": None, "any": None}
    assert lacking([Requirement("top")], have, "3.12") == (
        ["deep", "old", "quick", "top", "unsure"],
        ["any", "there>=2"],
    )
    with pytest.raises(ValueError, match=r"^elsewhere: not installed here"):
        lacking([Requirement("top")], have, "3.11")


def test_wheels_of_the_other_python_are_fetched_by_their_hashes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder that pip fetches from stands for an index."""
    index, fetched = tmp_path / "index", tmp_path / "fetched"
    for folder in (index, fetched):
        folder.mkdir()
    for name, value in (
        ("PIP_CONFIG_FILE", os.devnull),
        ("PIP_NO_INDEX", "1"),
        ("PIP_FIND_LINKS", str(index)),
    ):
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    for python in ("cp311", "cp312"):
        write_wheel(index, "deep", f"{python}-{python}-manylinux_2_28_x86_64")
    write_source(index, "quick")
    lock = {
        name: [
            f"--hash=sha256:{hashlib.sha256(file.read_bytes()).hexdigest()}"
            for file in sorted(index.glob(f"{name}-*"))
        ]
        for name in ("deep", "quick")
    }
    monkeypatch.setattr(offline_kit, "LOCK", tmp_path / "requirements.lock")
    offline_kit.LOCK.write_text(
        "".join(" \\\n    ".join([f"{name}==1.0", *hashes]) + "\n" for name, hashes in lock.items())
    )
    found = fetch(["deep", "quick"], "3.12", fetched)
    assert [wheel.name for wheel in found] == [
        "deep-1.0-cp312-cp312-manylinux_2_28_x86_64.whl",
        "quick-1.0-py3-none-any.whl",
    ]
    offline_kit.LOCK.write_text(f"deep==1.0 \\\n    --hash=sha256:{'0' * 64}\n")
    with pytest.raises(ValueError, match=r"^pip cannot fetch the wheels for Python 3\.12"):
        fetch(["deep"], "3.12", tmp_path / "index")
    with pytest.raises(ValueError, match=r"^quick: not in requirements\.lock"):
        fetch(["quick"], "3.12", fetched)


def test_the_list_of_a_machines_packages(tmp_path: Path) -> None:
    file = tmp_path / "have.txt"
    file.write_text("# a comment\nTorch==2.11.0+cu130\n\nscikit_learn  # any version\nrich>=13\n")
    assert read_have(file) == {
        "torch": Version("2.11.0+cu130"),
        "scikit-learn": None,
        "rich": Version("13"),
    }
    assert {"torch", "transformers", "numpy", "pandas"} <= read_have(STOCK).keys()
    assert (
        not {"hydra-core", "omegaconf", "pydantic", "rapidfuzz", "datasets", "wandb"}
        & read_have(STOCK).keys()
    )


def test_the_default_kit_carries_what_the_stock_image_has_too_old() -> None:
    """filelock 3.32.5 was read off the image; the large packages there suffice and do not
    travel."""
    have = read_have(STOCK)
    travel = {each.name for each in dependencies() if not meets(have, each)}
    assert "filelock" in travel
    assert (
        not {"torch", "transformers", "numpy", "scipy", "scikit-learn", "matplotlib", "pandas"}
        & travel
    )


@pytest.fixture(scope="module")
def kit(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A kit without weights for this very environment, which lacks nothing, in parts of one MiB."""
    folder = tmp_path_factory.mktemp("offline")
    have = folder / "have.txt"
    have.write_text(
        "".join(
            f"{each.name}=={importlib.metadata.version(each.name)}\n" for each in dependencies()
        )
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(offline_kit, "PART", 2**20)
        assert main([f"into={folder / 'kit'}", f"python={HERE}", f"have={have}", "pairs=[]"]) == 0
    return folder / "kit"


def install(kit: Path, into: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["sh", str(kit / "install.sh"), str(into)],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"PYTHON": sys.executable} | variables,
    )


def test_a_kit_comes_in_parts_and_holds_no_picture(kit: Path) -> None:
    parts = sorted(kit.glob("*.tar.gz.*"))
    assert len(parts) > 3 and all(part.stat().st_size <= 2**20 for part in parts)
    whole = b"".join(part.read_bytes() for part in parts if part.name.startswith("checkout"))
    with tarfile.open(fileobj=io.BytesIO(whole)) as archive:
        names = archive.getnames()
    assert {
        "run",
        "checkout/pyproject.toml",
        "checkout/commit.json",
        "checkout/models/shapes/tiny/config.json",
    } <= {*names}
    assert not [
        name
        for name in names
        if name.endswith((".png", ".xz", ".safetensors")) or name.startswith(".git/")
    ]
    assert "checkout/tasks/mini/rows/mini_gsm.jsonl.gz" in names


def test_an_installed_kit_runs_and_knows_its_commit(kit: Path, tmp_path: Path) -> None:
    done = install(kit, tmp_path / "machine")
    assert (done.returncode, done.stderr) == (
        0,
        "",
    ) and f"installed: {tmp_path}/machine/leeway" in done.stdout
    assert sorted(path.name for path in (tmp_path / "machine").iterdir()) == ["leeway"]
    code = "from bench.config.environment import *; print(PROJECT, checked_out()['commit'])"
    said = subprocess.run(
        [tmp_path / "machine/leeway/run", "-c", code], capture_output=True, text=True, check=True
    )
    head = subprocess.run(
        ["git", "-C", PROJECT, "rev-parse", "HEAD"], capture_output=True, text=True, check=True
    )
    assert said.stdout.split() == [f"{tmp_path}/machine/leeway/checkout", head.stdout.strip()]
    again = install(kit, tmp_path / "machine")
    assert again.returncode == 2 and "leeway: there already, left as it is" in again.stderr


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (
            lambda kit: (kit / "checkout.tar.gz.01").unlink(),
            "checkout.tar.gz.01: missing; copy it again",
        ),
        (
            lambda kit: (kit / "checkout.tar.gz.01").write_bytes(b"cut"),
            "checkout.tar.gz.01: damaged; copy it again",
        ),
        (
            lambda kit: (kit / "SHA256SUMS").unlink(),
            "SHA256SUMS: missing; copy the whole kit again",
        ),
    ],
    ids=["missing", "damaged", "no sums"],
)
def test_a_kit_that_is_not_whole_installs_nothing(
    spoil, says: str, kit: Path, tmp_path: Path
) -> None:
    shutil.copytree(kit, tmp_path / "kit")
    spoil(tmp_path / "kit")
    done = install(tmp_path / "kit", tmp_path / "machine")
    assert (
        done.returncode == 2
        and done.stderr.startswith(f"install.sh: {says}")
        and done.stderr.count("\n") == 1
    )
    assert not (tmp_path / "machine").exists()


def test_another_python_and_none_are_refused(kit: Path, tmp_path: Path) -> None:
    other = tmp_path / "python"
    other.write_text("#!/bin/sh\necho 3.9\n")
    other.chmod(0o755)
    for python, says in (
        (other, f"{other} is Python 3.9 and this kit is for {HERE}"),
        (tmp_path / "none", f"{tmp_path / 'none'}: cannot be run"),
    ):
        done = install(kit, tmp_path / "machine", PYTHON=str(python))
        assert done.returncode == 2 and done.stderr.startswith(f"install.sh: {says}")


def blocking(folder: Path) -> dict[str, str]:
    """An environment in which NOT_NEEDED cannot be imported, in processes that a process starts,
    too."""
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(
        f"import sys\nsys.modules.update(dict.fromkeys({NOT_NEEDED!r}))\n"
    )
    return os.environ | {"PYTHONPATH": f"{folder}{os.pathsep}{PROJECT}"}


@pytest.mark.slow
def test_a_measurement_imports_none_of_what_a_kit_leaves_out(tmp_path: Path) -> None:
    code = (
        "import sys, bench.commands.open_cell\nfrom bench.__main__ import main\n"
        f"assert all(sys.modules[name] is None for name in {NOT_NEEDED!r})\n"
        f"sys.exit(main(['method=mars', 'n=2', 'timed=2', 'store.dir={tmp_path / 'store'}', "
        f"'output.dir={tmp_path / 'out'}']))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        cwd=PROJECT,
        env=blocking(tmp_path / "blocked"),
    )
    assert done.returncode == 0, done.stderr
    assert "mars mini_gsm" in done.stdout
