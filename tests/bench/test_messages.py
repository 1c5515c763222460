"""A wrong command or file is one line, before anything is written; so is an interrupt."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path

import pytest
from huggingface_hub import constants

from bench.__main__ import main
from bench.cli import command
from bench.config.compose import composer
from bench.config.errors import LISTED, nearest, unknown_key
from bench.config.paths import PROJECT
from bench.run.console import console
from results.store.errors import one_line, printable
from tests.helpers.commands import run
from tests.helpers.refusals import Files, rows
from tests.helpers.summaries import written

PREFIX = {1: "failed: ", 2: "error: "}


@pytest.fixture(scope="session")
def files(tmp_path_factory) -> Files:
    return Files(tmp_path_factory.mktemp("named"))


@pytest.mark.parametrize("wrong", rows(), ids=lambda wrong: wrong.words[:80])
def test_a_wrong_command(wrong, files, tmp_path, monkeypatch, vllm):
    monkeypatch.setattr(sys, "argv", ["bench"])
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    output = tmp_path / "output"
    ended = run(*wrong.given(files, output))
    [line] = ended.err.splitlines()
    assert ended.status == wrong.status and line.startswith(PREFIX[wrong.status])
    assert line.isprintable() and len(line) <= 1500
    assert wrong.says and all(files.filled(text) in line for text in wrong.says), line
    assert not files.marker.exists(), "a file of the user ran code"
    samples = [
        path for path in output.glob("store/*/samples.jsonl") if b"output_ids" in path.read_bytes()
    ]
    assert not samples and not (wrong.known == "composed" and output.exists()), (
        "it is known before anything is written"
    )


def test_names_that_are_proposed():
    """Those that begin with the word come first, and in their order; nothing is like zzz."""
    reports = [f"fsd_{kind}{number}" for kind in ("fig", "table") for number in range(1, 9)]
    near = nearest("fsd_t", reports)
    assert near[:5] == [f"fsd_table{number}" for number in range(1, 6)] and len(near) == LISTED
    assert nearest("zzz", reports) == nearest("", reports) == []
    assert "Near" not in unknown_key("report=zzz", reports, what="unknown")


def test_help_and_version_need_nothing(command, capsys):
    assert main([]) == 0 and capsys.readouterr().out.startswith("python -m bench KEY=VALUE")
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith(f"leeway {version('leeway')}\n")
    result = command("--help")
    assert not result.err
    for word in ("pair.target=", "rule.theta", "timed=12", "+sweep=", "report=", "mars_released"):
        assert word in result.out
    assert sum(line.startswith("  ") and "=" in line[:40] for line in result.out.splitlines()) < 35
    every = command("--help-all").out
    for option in ("decoding.top_p=1.0", "engine.device=auto", "judge.retries=3", "pair.nodes=60"):
        assert option in every, "keys and defaults are those of conf/"


def test_dry_run_shows_and_does_not_run(command, tmp_path):
    result = command("method=mars rule.theta=0.85 dry_run=true")
    assert "1 point, 0 complete; 3 prompts" in result.out and "mars mini_gsm" in result.out
    several = command("-m method=sps,pld dry_run=true")
    assert "method=sps" in several.out and "method=pld" in several.out
    assert not list(tmp_path.iterdir())


def test_a_warning_that_many_cells_give_is_shown_once():
    code = (
        "import logging; from results.store.errors import log_to_stderr; log_to_stderr(); "
        "[logging.getLogger('methods').warning('tau = %s', x) for x in (2, 2, 3)]"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=PROJECT, capture_output=True, text=True, check=True
    )
    assert done.stderr.splitlines() == ["WARNING: tau = 2", "WARNING: tau = 3"]


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        (["--rule.theta=0.9", "method=mars"], ["rule.theta=0.9", "method=mars"]),
        (["seed=3", "--config-dir=FOLDER", "n=2"], ["seed=3", "n=2"]),
        (["-m", "n=2"], ["n=2"]),
    ],
)
def test_flags_and_overrides_come_in_any_order(argv, expected, tmp_path):
    """An agent of W&B's sweeps gives each override as a flag."""
    words = [word.replace("FOLDER", str(tmp_path)) for word in argv]
    with composer(words) as made:
        assert made.command(words).overrides == expected


@pytest.fixture
def interrupts():
    """Python's own answer to Ctrl-C, which a background job lacks."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interrupts")
def test_an_error_that_follows_an_interrupt_is_an_interrupt(capsys):
    """A library may catch KeyboardInterrupt and raise an error of its own."""

    def swallows() -> None:
        try:
            signal.raise_signal(signal.SIGINT)
        except KeyboardInterrupt:
            raise ValueError("str") from None

    assert command.run_command(swallows) == 130
    assert capsys.readouterr().err.startswith("interrupted: ")


INTERRUPTED = """
import runpy, signal, sys

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it

class Pressing:
    def find_spec(self, name, path=None, target=None):
        if name == pressed:
            sys.meta_path.remove(self)
            signal.raise_signal(signal.SIGINT)

pressed = sys.argv.pop(1)
sys.argv[0] = "-m"  # as Python sets it while it looks for the module
sys.meta_path.insert(0, Pressing())
runpy.run_module("bench", run_name="__main__", alter_sys=True)
"""
"""`python -m bench` in which Ctrl-C is pressed when a module is imported."""


@pytest.mark.parametrize("module", ["bench.cli.command", "torch"])
def test_an_early_interrupt_says_a_line_or_nothing(tmp_path, module):
    words = [sys.executable, "-c", INTERRUPTED, module, "n=1", f"store.dir={tmp_path}"]
    done = subprocess.run(words, cwd=PROJECT, capture_output=True, text=True)
    assert done.returncode in (130, -signal.SIGINT), done.stderr
    assert done.stderr in ("", "interrupted: the same command resumes where this one stopped\n")


def test_the_status_of_a_command_is_that_of_the_process():
    done = subprocess.run([sys.executable, "-m", "bench", "n=some"], cwd=PROJECT, check=False)
    assert done.returncode == 2


STEERING = "\x1b[2J\x1b]0;owned\x07\x9b31m\u202eabc\u2066\r\x00\x7f\u2028\ud800"


def test_nothing_printed_steers_the_terminal(command, tmp_path, capsys, caplog):
    assert printable("tab\tline\nτ ≥ 1 “é” 漢") == "tab\tline\nτ ≥ 1 “é” 漢"
    assert one_line(ValueError(STEERING)) == printable(" ".join(STEERING.split()))
    assert "\\x1b" in one_line(STEERING)
    console().print(STEERING, "[/bold] :smile:")  # brackets and colons stay as they are
    printed = capsys.readouterr().out
    assert printable(printed) == printed and "[/bold] :smile:" in printed and "\\x1b[2J" in printed
    file = tmp_path / "rows.jsonl"
    message = {"role": "user", "content": "apples " * 600}
    file.write_text(json.dumps({"id": STEERING[:-1], "messages": [message]}))
    result = command(f"-m task=prompts task.path={file} method=pld,ar", status=1)
    assert "prompts failed; first" in result.err
    assert "without the chat template" not in caplog.text, "messages go through it"
    assert printable(result.out) == result.out and printable(result.err) == result.err


HEAVY = [
    "torch",
    "transformers",
    "datasets",
    "pandas",
    "scipy",
    "statsmodels",
    "matplotlib",
    "wandb",
]
REFUSED = (
    "rule.tehta=0.9",
    "rule=mrs",
    "nn=3",
    "task=no_such_task",
    "decoding.temperature=-1",
    "pair=local",
    "trace=sometimes",
    "report=no_such_report",
    "report=mars_table1 report.no_such_key=1",
)
CODE = """
import contextlib, io, json, sys
from bench.__main__ import main
commands, heavy = json.load(sys.stdin)
for command in commands:
    with contextlib.redirect_stdout(io.StringIO()):
        status = main(command.split())
    print(json.dumps([status, [name for name in heavy if name in sys.modules]]))
"""


def test_what_is_refused_or_listed_loads_nothing_and_a_dry_run_torch_alone(tmp_path):
    """A rule's options are typed by its class, which needs torch and nothing more."""
    refused = [f"dry_run=true {words}" for words in REFUSED]
    dry_run = f"report=[mars_fig4,controls] dry_run=true output.dir={tmp_path}"
    commands = [*refused, "report=list", "rule.q_mode=foo", dry_run]
    program, words = [sys.executable, "-c", CODE], json.dumps([commands, HEAVY])
    done = subprocess.run(program, input=words, capture_output=True, text=True, check=True)
    ended = [json.loads(line) for line in done.stdout.splitlines()]
    assert ended == [[2, []]] * len(REFUSED) + [[0, []], [2, ["torch"]], [0, ["torch"]]]
    assert len(done.stderr.splitlines()) == len(REFUSED) + 1, "one line each"


@pytest.fixture
def mount(tmp_path) -> Iterator[Callable[[str], Path]]:
    """Mounts a file system in memory, with these options."""
    folder = tmp_path / "disk"

    def made(options: str) -> Path:
        folder.mkdir()
        done = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            pytest.skip(f"no file system can be mounted here: {done.stderr.strip()}")
        return folder

    yield made
    if folder.is_mount():
        subprocess.run(["umount", str(folder)], check=True)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ("ro", "Read-only file system"),
        ("size=4k,nr_inodes=100", "No space left on device"),
    ],
)
def test_a_disk_without_room(command, mount, options, reason, no_models):
    disk = mount(options)
    if "size" in options:
        (disk / "full").write_bytes(bytes(4096))
    no_models()
    [line] = command(store=disk / "store", status=2).err.splitlines()
    assert line.startswith(f"error: {disk}/store: cannot be written: {reason}")


@pytest.mark.slow
def test_a_disk_that_fills_up_while_measuring(command, mount):
    disk = mount("size=32k,nr_inodes=100")
    words = "method=sps n=30 quality_batch=4"
    result = command(words, store=disk / "store", status=2)
    assert "No space left on device" in result.err.splitlines()[-1]
    assert "Traceback" not in result.err
    cells = result.store.cells()
    hidden = {path.name for cell in cells for path in cell.path.glob(".*")}
    assert hidden <= {".lock"}, "nothing half written is left"
    kept = {cell.key: [sample.id for sample in cell.samples()] for cell in cells}
    assert 0 < sum(map(len, kept.values())) < 60
    subprocess.run(["mount", "-o", "remount,size=10m", str(disk)], check=True)
    again = command(words, store=disk / "store")
    for cell in again.store.cells():
        ids, before = [sample.id for sample in cell.samples()], kept.get(cell.key, [])
        assert ids[: len(before)] == before and len(ids) == 30
    assert written(again.cell).n == 30


def test_a_complete_store_that_can_only_be_read_is_printed(command, mount, tmp_path):
    first = command("method=sps n=1", store=tmp_path / "store")
    disk = mount("size=10m")
    shutil.copytree(first.store.root, disk / "store")
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
    again = command("method=sps n=1 summary=json", store=disk / "store")
    assert not again.err and again.last_line == written(first.cell).plain
    line = command("method=sps n=2", store=disk / "store", status=2).err
    assert line.startswith(f"error: {disk}/store") and "Read-only file system" in line
