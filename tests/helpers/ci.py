"""Pytest plugin: at the end of a session the features that this machine could not test are listed.
With CI=true in the environment a skip for another reason than those of MISSING fails the session."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable
from importlib.util import find_spec

import pytest

from tasks.sandbox import run as sandbox

MISSING = {
    "no reference data ": "what needs the folder of reference data (LEEWAY_SHARED)",
    "no numbers recorded for ": "equality with numbers recorded on another kind of machine",
    "bubblewrap does not work here: ": "the sandbox of code that a model wrote: apt install bubblewrap",
    "the sandbox is made of Linux system calls": "the sandbox, which needs Linux",
    "no GPU": "what needs a GPU",
    "no LaTeX": "the tables' LaTeX: apt install texlive-latex-recommended",
    "no scheduler": "launch=slurm",
    "no weights of ": "a real model: any command with pair=smollm2 fetches it",
    "no git": "the changes that the guides make: apt install git",
    "no browser": "the page in a browser: apt install chromium",
    "no .venv-vllm": "engine=vllm: make vllm",
    "no packages of [similarity]": "models of meaning: pip install -e .[similarity]",
    "no file system can be mounted here": "full disks, which need root",
    "a PyTorch without oneDNN": "products by oneDNN",
    "this PyTorch lacks oneDNN": "packed weights",
}
"""How the reasons begin that depend on the machine, not on the project -> what is not tested."""


needs_bubblewrap = pytest.mark.skipif(
    sandbox.bubblewrap_fault() is not None,
    reason=f"bubblewrap does not work here: {sandbox.bubblewrap_fault()}",
)
needs_similarity = pytest.mark.skipif(
    not (find_spec("sentence_transformers") and find_spec("bert_score")),
    reason="no packages of [similarity]",
)


def _skips(config):
    """Test and reason of each skip; only the process that reports knows them."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    return [
        (report.nodeid, report.longrepr[2].removeprefix("Skipped: "))
        for report in (reporter.stats.get("skipped", []) if reporter is not None else [])
        if isinstance(report.longrepr, tuple)
    ]


def _unexpected(config):
    """`test: reason` of each skip that fails continuous integration."""
    return [
        f"{test}: {reason}"
        for test, reason in _skips(config)
        if os.environ.get("CI") == "true" and not reason.startswith(tuple(MISSING))
    ]


def untested(reasons: Iterable[str]) -> list[str]:
    """A line for each feature that so many tests were skipped for."""
    found = Counter(
        next((said for start, said in MISSING.items() if reason.startswith(start)), reason)
        for reason in reasons
    )
    return [f"{said} ({count} test{'s' * (count > 1)})" for said, count in found.most_common()]


def pytest_sessionfinish(session: pytest.Session):
    if session.exitstatus == pytest.ExitCode.OK and _unexpected(session.config):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config):
    parts = {
        "not tested on this machine": untested(reason for _, reason in _skips(config)),
        "unexpected skips": _unexpected(config),
    }
    for title, lines in parts.items():
        if lines:
            terminalreporter.section(title)
            terminalreporter.write("\n".join([*lines, ""]))
