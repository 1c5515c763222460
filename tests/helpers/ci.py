"""Pytest plugin for continuous integration: a time budget for long tests, and failure on an unexpected skip.

`--budget SECONDS` orders tests by marker and starts none once the time is over; those left out are listed. With CI=true
in the environment, a skip whose reason is not in EXPECTED_SKIPS fails the session.
"""

from __future__ import annotations

import os
import re
import time

import pytest

# Reasons that depend on the machine, not on the project.
EXPECTED_SKIPS = re.compile("|".join((
    "no reference data at ", "no numbers recorded for ", "bubblewrap does not work here: ",
    "this kernel has no Landlock", "the sandbox is made of Linux system calls", "no GPU", "no LaTeX", "no scheduler",
    "no network", "no browser", "no \\.venv-vllm",
    "no file system can be mounted here")))
OUT_OF_TIME = "did not fit in the budget"
ORDER = ("attack", "cluster", "latex", "slow")
DEADLINE = pytest.StashKey[float]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--budget", type=float, metavar="SECONDS", help="start no test after so many seconds")


def pytest_configure(config: pytest.Config) -> None:
    """Set the deadline: workers of pytest-xdist share that of the process that started them."""
    budget = config.getoption("budget")
    if budget is not None:
        own = getattr(config, "workerinput", {})
        config.stash[DEADLINE] = own.get("deadline", time.time() + budget)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node) -> None:
    if DEADLINE in node.config.stash:
        node.workerinput["deadline"] = node.config.stash[DEADLINE]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """A fixed order under a budget: by marker, then as collected."""
    if DEADLINE in config.stash:
        items.sort(key=lambda item: min((ORDER.index(mark.name) for mark in item.iter_markers() if mark.name in ORDER),
                                        default=len(ORDER)))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    if time.time() > item.config.stash.get(DEADLINE, float("inf")):
        pytest.skip(OUT_OF_TIME)


def _skips(config: pytest.Config) -> list[tuple[str, str]]:
    """(test, reason) of each skip; only the process that reports knows them."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    reports = reporter.stats.get("skipped", []) if reporter else []
    return [(report.nodeid, report.longrepr[2].removeprefix("Skipped: ")) for report in reports
            if isinstance(report.longrepr, tuple)]


def _unexpected(config: pytest.Config) -> list[tuple[str, str]]:
    if os.environ.get("CI") != "true":
        return []
    return [(test, reason) for test, reason in _skips(config)
            if reason != OUT_OF_TIME and not EXPECTED_SKIPS.match(reason)]


def pytest_sessionfinish(session: pytest.Session) -> None:
    """An unexpected skip is a failure; no test at all under a budget is none."""
    if session.exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED and DEADLINE in session.config.stash:
        session.exitstatus = pytest.ExitCode.OK
    if session.exitstatus == pytest.ExitCode.OK and _unexpected(session.config):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    left_out = [test for test, reason in _skips(config) if reason == OUT_OF_TIME]
    for title, lines in ((f"{len(left_out)} tests {OUT_OF_TIME} of {config.getoption('budget')} s", left_out),
                         ("unexpected skips", [f"{test}: {reason}" for test, reason in _unexpected(config)])):
        if lines:
            terminalreporter.section(title)
            terminalreporter.write("\n".join([*lines, ""]))
