"""Pytest plugin: with CI=true in the environment a skip whose reason is not in EXPECTED_SKIPS fails
the session."""

from __future__ import annotations

import os
import re
from importlib.util import find_spec

import pytest

# Reasons that depend on the machine, not on the project.
EXPECTED_SKIPS = re.compile(
    "|".join(
        (
            "no reference data at ",
            "no numbers recorded for ",
            "bubblewrap does not work here: ",
            "the sandbox is made of Linux system calls",
            "no GPU",
            "no LaTeX",
            "no scheduler",
            "no weights of ",
            "no browser",
            "no \\.venv-vllm",
            "no file system can be mounted here",
            r"no packages of \[similarity\]",
        )
    )
)


needs_similarity = pytest.mark.skipif(
    not (find_spec("sentence_transformers") and find_spec("bert_score")),
    reason="no packages of [similarity]",
)


def _unexpected(config: pytest.Config) -> list[str]:
    """`test: reason` of each such skip; only the process that reports knows them."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if reporter is None or os.environ.get("CI") != "true":
        return []
    skips = [
        (report.nodeid, report.longrepr[2].removeprefix("Skipped: "))
        for report in reporter.stats.get("skipped", [])
        if isinstance(report.longrepr, tuple)
    ]
    return [f"{test}: {reason}" for test, reason in skips if not EXPECTED_SKIPS.match(reason)]


def pytest_sessionfinish(session: pytest.Session) -> None:
    if session.exitstatus == pytest.ExitCode.OK and _unexpected(session.config):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    if lines := _unexpected(config):
        terminalreporter.section("unexpected skips")
        terminalreporter.write("\n".join([*lines, ""]))
