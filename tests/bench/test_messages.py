"""A wrong command is answered by one line and exit status 2, before anything is written."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from bench.config.paths import PROJECT

WRONG = [
    ("rule=mars rule.theta=high", "rule.theta=high", "number"),
    ("rule=mars rule.thetta=0.9", "rule.thetta", "did you mean rule.theta?"),
    ("rule=mars +rule.thetta=0.9", "rule.thetta", "did you mean rule.theta?"),
    ("rule=random rule.rate=1.5", "rule.rate=1.5", "≤ 1"),
    ("rule=fsd rule.threshold=-1", "rule.threshold=-1", "≥ 0"),
    ("rule=fsd rule.divergence=euclid", "rule.divergence=euclid", "js_released"),
    ("rule=marz", "rule=marz", "rule=mars"),
    ("method=none_such", "method=none_such", "method=sps"),
    ("task=mini_gms", "task=mini_gms", "did you mean task=mini_gsm"),
    ("tracker=tensorboard", "tracker=tensorboard", "tracker=wandb"),
    ("n=0", "n=0", "≥ 1"),
    ("n=many", "n=many", "integer"),
    ("batch=0", "batch=0", "≥ 1"),
    ("seed=-1", "seed=-1", "≥ 0"),
    ("draft.length=0", "draft.length=0", "≥ 1"),
    ("method=sps draft.length=1000000", "draft.length=1000000", "≤ 1024"),
    ("method=eagle3 drafter.depth=100000", "drafter.depth=100000", "≤ 1023"),
    ("method=lookahead drafter.window=1000000", "drafter.window=1000000", "≤ 1024"),
    ("engine.threads=1000000000", "engine.threads=1000000000", "≤ 1024"),
    ("engine.device=cpu engine.graphs=on", "no CUDA graphs on engine.device=cpu", "take engine.graphs=auto"),
    ("method=mars rule.theta=1.01", "rule.theta=1.01", "must be ≤ 1, because logit_ratio"),
    ("method=mars rule.indicator=prob_ratio rule.theta=2", "rule.theta=2", "must be ≤ 1, because prob_ratio"),
    (f"pair.name={'a' * 300}", "pair.name", "at most 64"),
    ("task=gsm8k task.scorer.name=exact", "task.scorer.name=exact", "'lm_eval'"),
    ("task=dataset task.prompt=a task.scorer.name=lm_eval", "task.scorer.rules", "give task.scorer.rules=VALUE"),
    ("task=gsm8k task.scorer.rulez=a", "rulez: unknown", "takes rules, filter, filters"),
    ("report=mars_fig4 report.figure.xx=1", "report.figure.xx", "unknown key"),
    ("task=gsm8k task.where=1/0", "1/0", "division by zero"),
    ("task=gsm8k task.prompt='{{question'", "an example: template '{{question'", "unexpected end"),
    ("decoding.temperature=-1", "decoding.temperature=-1", "≥ 0"),
    ("decoding.temperature=inf", "decoding.temperature=inf", "finite"),
    ("decoding.temperature=1e-40", "decoding.temperature=1e-40", "float32"),
    ("decoding.top_p=nan", "decoding.top_p=nan", "finite"),
    ("decoding.top_k=true", "decoding.top_k", "must be a number, not true or false"),
    ("n=true", "n", "must be a number"),
    ("seed=false", "seed", "must be a number"),
    ("draft.length=true", "draft.length", "must be a number"),
    ("rule=mars rule.theta=nan", "rule.theta=nan", "finite"),
    ("rule=mars rule.theta=true", "rule.theta", "must be a number"),
    ("rule=fsd rule.threshold=inf", "rule.threshold=inf", "finite"),
    ("rule=either rule.first.heads=true", "rule.first.heads", "must be a number"),
    ("rule=either rule.second.threshold=nan", "threshold", "finite"),
    ("method=pld drafter.max_ngram=true", "drafter.max_ngram", "must be a number"),
    ("task.max_new_tokens=true", "task.max_new_tokens", "must be a number"),
    ("judge.retries=true", "judge.retries", "must be a number"),
    ("report=mars_fig5 report.figure.views=[{x:ratio,mark:nan}]", "report.figure", "finite"),
    ("report=mars_fig5 report.figure.views=[{x:ratio,mark:true}]", "report.figure", "must be a number"),
    ("decoding.top_p=0", "decoding.top_p=0", "> 0"),
    ("decoding.temprature=1", "decoding.temprature", "did you mean decoding.temperature?"),
    ("drafter.max_ngram=3", "drafter.max_ngram", "drafter.sample"),
    ("engine.dtype=float8", "engine.dtype=float8", "bfloat16"),
    ("engine.device=tpu", "engine.device=tpu", "cuda"),
    ("summary=xml", "summary=xml", "json"),
    ("temperature=1", "temperature", "allowed: batch"),
    ("+temperature=1", "temperature", "allowed: batch"),
    ("hydra.nonsense=1", "hydra.nonsense", ""),
    ("seed", "seed", "KEY=VALUE"),
    ("--sweep", "--sweep", "--help"),
    ("method=sps method=mars", "method", "once"),
    ("hydra/launcher=none_such", "hydra/launcher=none_such", "hydra/launcher=basic"),
    ("n=[1", "n=[1", "KEY=VALUE"),
    ("rule=mars rule.theta=0.8,0.9", "rule.theta=0.8,0.9", "-m"),
    ("replay=[]", "replay", "replay=auto"),
    ("replay=often", "replay", "auto"),
    ("replay=auto n=2", "no traces", "trace=true"),
    ("rule=greedy decoding.temperature=1", "greedy", "temperature"),
    ("drafter=prompt_lookup rule=fsd", "drafter=prompt_lookup", "distribution"),
    ("drafter=none rule=mars", "drafter=none", "rule=mars"),
    ("pair.target=models/nowhere", "pair.target=models/nowhere", "no such folder"),
    ("pair.draft=null", "pair.draft", "pair.draft="),
    ("pair=local", "pair.target", "pair.target="),
    ("task=prompts", "task.path", "task.path="),
    ("task=prompts task.path=nowhere.jsonl", "nowhere.jsonl", "no such file"),
    ("+sweep=mars_thetta", "sweep=mars_thetta", "sweep=mars_theta"),
    ("report=mars_table9", "report=mars_table9", "report=mars_table1"),
]


@pytest.mark.parametrize(("overrides", "key", "hint"), WRONG, ids=[line for line, _, _ in WRONG])
def test_wrong_command(command, tmp_path: Path, overrides: str, key: str, hint: str) -> None:
    result = command(*overrides.split())
    assert result.status == 2
    [line] = result.err.splitlines()
    assert line.startswith("error: ") and key in line and hint in line
    assert len(line) < 900  # all choices of the longest group, rules, fit
    assert not list(tmp_path.iterdir()), "nothing may be written"


def test_one_wrong_point_stops_a_multirun(command, tmp_path: Path) -> None:
    result = command("method=random", "rule.rate=0.5,1.5", flags=["-m"])
    assert result.status == 2 and "rule.rate=1.5" in result.err and len(result.err.splitlines()) == 1
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["samples.jsonl", "cell.yaml", "environment.json"])
@pytest.mark.parametrize("flags", [[], ["-m"]])
def test_a_file_in_the_store_that_cannot_be_read(command, flags: list[str], name: str) -> None:
    given = "method=ar,pld" if flags else "method=pld", "n=1"
    file = command(*given, flags=flags).cells[0].path / name
    file.write_text('{"n": 1,\n')
    result = command(*given, flags=flags)
    [line] = result.err.splitlines()
    assert result.status == 2 and line.startswith(f"error: {file}") and " is no" in line
    assert ("remove the line" if name == "samples.jsonl" else "remove it") in line


@pytest.mark.parametrize(("sweep", "hint"), [("n=interval(1,3)", "KEY=a,b,c"), ("task=interval(1,3)", "KEY=a,b,c"),
                                             ("task=glob(mini_z*)", "is empty"), ("n=range(3,1)", "is empty")])
def test_a_sweep_without_a_list_of_values(command, tmp_path: Path, sweep: str, hint: str) -> None:
    result = command(sweep, flags=["-m"])
    [line] = result.err.splitlines()
    assert result.status == 2 and line.startswith(f"error: {sweep}: ") and hint in line
    assert not list(tmp_path.iterdir())


def test_a_glob_names_every_choice_of_its_form(command) -> None:
    result = command("task=glob(mini_c*)", "dry_run=true", flags=["-m"])
    assert result.status == 0 and all(f"task=mini_{name}" in result.out for name in ("chat", "choice", "code"))


def test_bad_line_in_a_prompt_file(command, tmp_path: Path) -> None:
    file = tmp_path / "mine.jsonl"
    file.write_text('{"id": "a", "prompt": "fine"}\n{"id": "b"}\n')
    result = command("task=prompts", f"task.path={file}")
    assert result.status == 2 and "line 2" in result.err and len(result.err.splitlines()) == 1


def test_vocabulary_mismatch(command, pair_folder: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    for file in (pair_folder / "draft").iterdir():
        (other / file.name).write_bytes(file.read_bytes())
    config = json.loads((other / "config.json").read_text())
    (other / "config.json").write_text(json.dumps(config | {"vocab_size": 7}))
    result = command(f"pair.draft={other}", "method=sps")
    assert result.status == 2 and "7 entries" in result.err and len(result.err.splitlines()) == 1
    assert command(f"pair.draft={other}", "method=pld", "dry_run=true").status == 0, "prompt lookup runs no draft model"


def test_an_exit_behind_the_last_layer(command) -> None:
    """The pair's target has two layers; that is known when it is loaded, before anything is decoded."""
    result = command("method=early_exit", "drafter.exit_layer=2")
    [line] = [line for line in result.err.splitlines() if "exit_layer" in line]
    assert result.status == 1 and "has 2 layers" in line and "give 1 to 1" in line
    assert not result.cell.samples()
    shown = command("method=early_exit", "drafter.exit_layer=2", "dry_run=true")
    assert "has 2 layers" in shown.out + shown.err


def test_help_needs_nothing(command) -> None:
    result = command(flags=["--help"])
    assert result.status == 0 and not result.err
    for word in ("pair.target=", "draft.length", "rule.theta", "summary=", "+sweep=", "report=", "mars_released"):
        assert word in result.out
    for option in ("decoding.top_p=1.0", "engine.device=auto", "judge.retries=3", "draft.length=5", "pair.nodes=60"):
        assert option in result.out, "keys and defaults are those of conf/"


def test_dry_run_shows_and_does_not_run(command, tmp_path: Path) -> None:
    result = command("method=mars", "rule.theta=0.85", "dry_run=true")
    assert result.status == 0 and "theta: 0.85" in result.out and "max_new_tokens: 12" in result.out
    assert not list(tmp_path.iterdir())
    several = command("method=sps,pld", "dry_run=true", flags=["-m"])
    assert several.status == 0 and "method=sps" in several.out and "method=pld" in several.out
    assert not list(tmp_path.iterdir())


def test_a_warning_that_many_cells_give_is_shown_once() -> None:
    code = ("import logging; from results.store.reasons import log_to_stderr; log_to_stderr(); "
            "[logging.getLogger('methods').warning('tau = %s', x) for x in (2, 2, 3)]")
    done = subprocess.run([sys.executable, "-c", code], cwd=PROJECT, capture_output=True, text=True, check=True)
    assert done.stderr.splitlines() == ["WARNING: tau = 2", "WARNING: tau = 3"]
