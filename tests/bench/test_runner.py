"""Whole commands on a small untrained pair: what is stored, what depends on what, what happens when
something fails."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from transformers import AutoTokenizer

from bench.config.cell import Cell
from bench.config.cost_file import load
from bench.config.paths import CONF, PROJECT
from bench.run import jobs as runner
from bench.run import timed as rotation
from bench.run.answer import answer, context
from bench.run.cost_clock import PricedCell
from bench.run.models import NativeMethod
from methods import registry
from methods.decode import Limits
from methods.engine.loading import load_model
from methods.method import build_method
from methods.sampling import Sampling
from results.metrics.cost import Profile
from results.store.cells import Store
from results.store.sample import timing_order
from tasks.base import Prompt
from tasks.mini import MiniTask
from tests.helpers.summaries import failed_samples, written

DECODED = (
    "output_ids",
    "texts",
    "committed",
    "accepted",
    "relaxed",
    "greedier",
    "finish",
    "score",
    "turn_tokens",
)


def decoded(store: Store, label: str) -> dict[str, list]:
    """What was decoded for each prompt by the cells of one method."""
    return {
        sample.id: [getattr(sample, key) for key in DECODED]
        for cell in store.cells()
        if f"-{label}-" in cell.key
        for sample in cell.samples()
    }


@pytest.fixture
def prompts_file(tmp_path: Path) -> Path:
    """Four prompts of one's own; `long` does not fit the model's positions."""
    file = tmp_path / "mine.jsonl"
    talk = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Who has them?"},
    ]
    rows = [
        {"id": "plain", "prompt": "Tom has 3 apples"},
        {"id": "long", "prompt": "apples " * 500},
        {"id": "talk", "messages": talk},
        {"id": "ids", "input_ids": [9, 10, 11]},
    ]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def test_a_cell_on_disk(command) -> None:
    result = command(
        "method=mars",
        "rule.theta=0.5",
        "summary=json",
        "decoding.temperature=1",
        "seed=3",
        "timed=3",
    )
    assert result.status == 0 and not result.err
    cell = result.cell
    files = {file.name for file in cell.path.iterdir()}
    assert files >= {
        "cell.yaml",
        "environment.json",
        "samples.jsonl",
        "timed.jsonl",
        "summary.json",
    }
    assert "failure.json" not in files
    assert cell.config()["rule"]["theta"] == 0.5 and cell.config()["name"] == cell.key
    samples = cell.samples()
    assert [sample.id for sample in samples] == [f"mini_gsm-test-{i:05d}" for i in range(3)]
    for sample in samples:
        assert sample.drafted == sample.pruned == 0 and sample.flags
        assert len(sample.output_ids) == 1 + sum(sample.committed) <= 12
        assert len(sample.committed) == len(sample.accepted)
    rows = cell.timed()
    assert [row.id for row in rows] == timing_order(sample.id for sample in samples)
    assert len({row.started for row in rows}) == 1
    for row, sample in zip(sorted(rows, key=lambda row: row.id), samples, strict=True):
        assert (row.own.tokens, row.own.cycles) == (len(sample.output_ids), len(sample.committed))
        assert all(run.decode_s > 0 < run.prefill_s and run.parted is None for run in row.runs)
        assert row.baseline.tokens == 1 + row.baseline.cycles and row.host and row.boot
        assert row.threads == torch.get_num_threads()
    summary = result.last_line
    assert summary == written(cell).plain
    assert (summary["n"], summary["failed"], summary["metric"]) == (3, 0, "exact_match")
    assert (summary["timed"], summary["repeatable"]) == (3, 1.0)
    assert 1 <= summary["tau"] <= 6 and summary["speedup"] > 0 and len(summary["speedup_ci95"]) == 2
    environment = cell.environment()
    assert environment["packages"]["torch"] and environment["cpu"]["threads"] >= 1
    assert environment["cpu"]["products"] in ("oneDNN", "PyTorch")
    assert environment["models"].keys() == {"target", "draft"}
    assert "rule.theta=0.5" in environment["argv"]


@pytest.mark.slow
def test_tokens_do_not_depend_on_order_batch_or_company(command, tmp_path: Path) -> None:
    settings = (
        "task=mini_chat",
        "decoding.temperature=1",
        "n=5",
        "decoding.max_new_tokens=16",
        "draft.length=3",
    )
    together = command("method=sps,mars_sampling,fsd", *settings, flags=["-m"])
    reverse = command(
        "method=fsd,mars_sampling", *settings, "batch=3", flags=["-m"], store=tmp_path / "reverse"
    )
    alone = command("method=sps", *settings, "batch=5", store=tmp_path / "alone")
    assert together.status == reverse.status == alone.status == 0
    for store, label in (
        (reverse.store, "fsd"),
        (reverse.store, "mars"),
        (alone.store, "lossless"),
    ):
        assert len(decoded(store, label)) == 5 and decoded(store, label) == decoded(
            together.store, label
        )
    assert decoded(together.store, "fsd") != decoded(together.store, "lossless")
    seeded = command("method=sps", *settings, "seed=1", store=tmp_path / "seeded")
    assert decoded(seeded.store, "lossless") != decoded(alone.store, "lossless")


def test_a_tokenizer_without_a_chat_template_is_given_one(
    command, pair_folder: Path, tmp_path: Path
) -> None:
    bare = tmp_path / "bare"
    shutil.copytree(pair_folder / "target", bare)
    for file in bare.glob("*chat_template*"):
        file.unlink()
    config = bare / "tokenizer_config.json"
    kept = {
        key: value
        for key, value in json.loads(config.read_text()).items()
        if key != "chat_template"
    }
    config.write_text(
        json.dumps(kept | {"bos_token": "<|user|>"})
    )  # any token that the vocabulary has
    given = "method=ar", "task=mini_chat", "n=1", f"pair.target={bare}"
    without = command(*given)
    [failed] = failed_samples(without.cell)
    assert without.status == 1 and "give pair.chat_template=FILE" in failed.error
    assert "results in" not in without.out, "a table of nothing"
    vicuna = PROJECT / "conf" / "chat" / "vicuna.jinja"
    result = command(*given, f"pair.chat_template={vicuna}", store=tmp_path / "with")
    assert result.status == 0
    [sample], [prompt] = result.cell.samples(), MiniTask("mini_chat").prompts(1)
    tokenizer = AutoTokenizer.from_pretrained(bare)
    first = (
        "<|user|>A chat between a curious user and an artificial intelligence assistant. The "
        "assistant gives helpful, detailed, and polite answers to the user's questions. USER: "
        + prompt.turns[0]
        + " ASSISTANT:"
    )
    second = f"{first} {sample.texts[0]}{tokenizer.eos_token}USER: {prompt.turns[1]} ASSISTANT:"
    assert sample.prompt_tokens == sum(
        len(tokenizer.encode(text, add_special_tokens=False)) for text in (first, second)
    )


def test_second_turn_hears_the_first_answer(command, pair_folder: Path) -> None:
    result = command("method=sps", "task=mini_chat", "n=2")
    tokenizer = AutoTokenizer.from_pretrained(pair_folder / "target")
    target = load_model(str(pair_folder / "target"))
    for sample, prompt in zip(result.cell.samples(), MiniTask("mini_chat").prompts(2), strict=True):
        first, second = sample.texts
        talk = [{"role": "user", "content": prompt.turns[0]}]
        tokens = len(target.encode(talk))
        talk += [
            {"role": "assistant", "content": first},
            {"role": "user", "content": prompt.turns[1]},
        ]
        assert sample.prompt_tokens == tokens + len(target.encode(talk))
        assert sample.texts == [first, second] and sum(sample.turn_tokens) == len(sample.output_ids)
        assert (
            tokenizer.decode(sample.output_ids[: sample.turn_tokens[0]], skip_special_tokens=True)
            == first
        )


def test_own_prompts_and_one_that_fails(command, prompts_file: Path) -> None:
    given = (
        "task=prompts",
        f"task.path={prompts_file}",
        "n=null",
        "method=sps",
        "batch=4",
        "timed=4",
    )
    result = command(*given)
    assert result.status == 1
    [line] = result.err.splitlines()
    assert line.startswith("failed: ") and "1 of 4 prompts failed" in line and "long" in line
    assert line.endswith("or take a model with more positions")
    samples = {sample.id: sample for sample in result.cell.samples()}
    measured = {sample.id: sample for sample in result.cell.good_samples()}
    assert set(samples) - set(measured) == {"long"}
    assert measured["ids"].prompt_tokens == 3 and measured["plain"].score is None
    summary = written(result.cell)
    assert (summary.n, summary.failed, summary.accuracy) == (3, 1, None)
    [together] = {row.batch for row in result.cell.timed()}
    assert together in measured, "the three were timed in one batch"
    cell = Cell.parsed(result.cell.config() | {"n": None, "timed": 4})
    profile = load(CONF / "cost" / "epyc_smollm2.yaml").model_dump()
    profile["target"][4] = profile["target"][1]
    profile["sampled"]["drafts"]["model"][4] = profile["sampled"]["drafts"]["model"][1]
    profile["greedy"] = None
    priced = PricedCell(cell, result.store, Profile.model_validate(profile))
    assert {row.id for row in priced.timed()} == set(measured)
    again = command(*given)
    assert (
        again.status == 1
        and {sample.id: sample for sample in again.cell.good_samples()} == measured
    )


def test_a_cell_that_cannot_run_stops_no_other(command, pair_folder: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    shutil.copytree(pair_folder / "draft", broken)
    weights = broken / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    result = command(f"pair.draft={broken}", "method=sps,pld,mars", "summary=json", flags=["-m"])
    assert result.status == 1
    lines = result.err.splitlines()
    assert len(lines) == 2 and all(
        line.startswith("failed: local-") and "broken" in line for line in lines
    )
    state = {
        cell.key.rsplit("-", 1)[0]: (written(cell) is not None, cell.failure())
        for cell in result.store.cells()
    }
    assert state["local-ar-mini_gsm"] == (True, None), "the baseline of those that can run"
    assert state["local-prompt_lookup-lossless-mini_gsm"] == (True, None)
    assert (
        not state["local-lossless-mini_gsm"][0] and "broken" in state["local-lossless-mini_gsm"][1]
    )
    tail = [json.loads(line) for line in result.out.splitlines()[-3:]]
    assert ["error" in line for line in tail] == [True, False, True]


@pytest.mark.parametrize("arm", ["", "baseline: "])
def test_a_scorer_that_raises_fails_the_prompt(
    command, monkeypatch: pytest.MonkeyPatch, arm: str
) -> None:
    """In each cell, or in the baseline alone, which is decoded first."""
    real, scored = MiniTask.score, []

    def score(self, prompt, texts):
        scored.append(prompt.id)
        if prompt.id == scored[0] and (not arm or len(scored) == 1):
            raise ZeroDivisionError("no right answer")
        return real(self, prompt, texts)

    monkeypatch.setattr(MiniTask, "score", score)
    result = command("method=sps")
    [line] = result.err.splitlines()
    assert result.status == 1
    assert (
        f"1 of 3 prompts failed; first {scored[0]}: {arm}scoring: ZeroDivisionError: no right "
        "answer" in line
    )
    assert [sample.id for sample in failed_samples(result.cell)] == ([] if arm else scored[:1])
    monkeypatch.undo()
    assert command("method=sps").status == 0, "it is tried again"


def test_a_batch_that_does_not_fit_is_halved(command, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    real = NativeMethod.generate_with_nll

    def cramped(method, requests, limits):
        sizes.append(len(requests))
        if len(requests) > 2:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return real(method, requests, limits)

    monkeypatch.setattr(NativeMethod, "generate_with_nll", cramped)
    result = command("method=ar", "n=7", "timed=0", "workers=1")
    assert result.status == 0 and len(result.cell.good_samples()) == 7
    assert sizes == [7, 4, 2, 2, 3, 2, 1]


def test_no_memory_for_one_method_fails_no_other(command, monkeypatch: pytest.MonkeyPatch) -> None:
    real = runner.answer

    def exhausted(*args, **kw):
        raise torch.OutOfMemoryError("CUDA out of memory")

    def answer(method, *args, **kw):
        broken = {"decode": exhausted} if method.method.rule.name == "mars" else {}
        return real(method, *args, **kw | broken)

    with monkeypatch.context() as patch:
        patch.setattr(runner, "answer", answer)
        result = command("method=sps,mars", flags=["-m"])
    cells = {
        cell.config()["rule"]["name"]: cell
        for cell in result.store.cells()
        if "-ar-" not in cell.key
    }
    assert cells["lossless"].failure() is None and written(cells["lossless"]).n == 3
    [line] = result.err.splitlines()
    assert (
        result.status == 1
        and line.startswith(f"failed: {cells['mars'].key}: ")
        and "CUDA out of memory" in line
    )
    assert not cells["mars"].good_samples()
    assert command("method=mars").status == 0 and written(cells["mars"]).n == 3, (
        "the same command tries again"
    )


def test_baseline_runs_once_for_a_rotation(command, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    real = rotation.answer

    def counting(method, chunk, *args, **kw):
        asked.append("ar" if method.method.model is None else f"{method.method.rule.theta}")
        return real(method, chunk, *args, **kw)

    monkeypatch.setattr(rotation, "answer", counting)
    given = ("method=mars", "rule.theta=0.5,0.7,0.9", "timed=3")
    assert command(*given, "n=7", flags=["-m"]).status == 0
    assert asked[:4] == ["ar", "0.5", "0.7", "0.9"], "one untimed warm-up each"
    assert asked[4:] == [
        "ar",
        "0.5",
        "0.7",
        "0.9",
        "0.5",
        "0.7",
        "0.9",
        "ar",
        "0.7",
        "0.9",
        "ar",
        "0.5",
    ]
    assert command(*given, "n=8", flags=["-m"]).status == 0
    assert len(asked) == 16, "one more answer, the same timed prompts: nothing is warmed up"


def test_sessions_divide_the_timed_prompts(
    command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Anew(Exception):
        """The process would have been replaced."""

    def execv(path: str, words: list[str]) -> None:
        raise Anew(*words[1:])

    monkeypatch.setattr("os.execv", execv)
    given, held = (
        ("method=mars,ar", "n=5", "timed=5", "sessions=3", "sessions_gap_s=0", "fresh=true"),
        [],
    )
    for _ in range(2):
        with pytest.raises(Anew) as replaced:
            command(*given, flags=["-m"])
        assert "sessions=3" in replaced.value.args and "fresh=true" not in replaced.value.args
        given = given[:5]  # as the next process is started
        held.append([len(cell.timed()) for cell in Store(tmp_path / "store").cells()])
    result = command(*given, flags=["-m"])
    assert result.status == 0 and held == [[2, 2], [4, 4]]
    assert all(len(cell.timed()) == 5 for cell in result.cells)
    assert command(*given, flags=["-m"]).status == 0, "a whole cell is not timed again"
    with pytest.raises(Anew) as replaced:  # what was timed before is no reason to stop
        command(*given, "++fresh=true", flags=["-m"])
    assert not any("fresh" in word for word in replaced.value.args)


def test_dear_laws_are_of_the_first_prompts_alone(command) -> None:
    """A relaxed rule on drawn candidates is integrated over them, unless it states its law."""
    given = (
        "method=sps",
        "decoding.temperature=1",
        "rule=mars_sampling,tilted",
        "n=18",
        "timed=0",
        "decoding.max_new_tokens=3",
    )
    result = command(*given, flags=["-m"])
    assert result.status == 0, result.err
    known = {
        cell.path.name.split("-")[1]: sum(one.distortion is not None for one in cell.good_samples())
        for cell in result.store.cells()
    }
    assert known == {"ar": 18, "mars": 16, "tilted": 18}


PROMPTS = [Prompt("good", (), input_ids=(9, 8, 7)), Prompt("bad", (), input_ids=(5, 6, 5, 6, 5))]


@pytest.mark.parametrize(
    ("drafter", "options", "rule"),
    [
        ("none", {}, "lossless"),
        ("prompt_lookup", {}, "mars"),
        ("model", {"branching": (2, 2)}, "lossless"),
    ],
)
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_prompt_whose_logits_become_nan(
    pair_folder: Path, drafter: str, options: dict, rule: str, temperature: float
) -> None:
    target = load_model(str(pair_folder / "target"), check=False)
    model = target.model
    model.lm_head.weight = torch.nn.Parameter(
        model.lm_head.weight.detach().clone()
    )  # no longer the embedding
    method = NativeMethod(
        build_method(
            target,
            load_model(str(pair_folder / "target"), check=False) if drafter == "model" else None,
            registry.drafter(drafter)(**options),
            registry.rule(rule)(),
            Sampling(temperature),
            2,
        )
    )

    def answered() -> list:
        found = answer(
            method,
            PROMPTS,
            Limits(12, frozenset()),
            lambda prompt, _: prompt.id,
            decode=method.generate_with_nll,
        )
        return [found[prompt.id] for prompt in PROMPTS]

    [good], [bad] = answered()
    before = context(target, PROMPTS[1], [])
    poison = next(token for token in bad.output_ids[2:] if token not in (*good.output_ids, *before))
    model.model.embed_tokens.weight.data[poison] = (
        torch.nan
    )  # as activations that overflow behind this token
    [still], broken = answered()
    assert still.output_ids == good.output_ids and still.nll == pytest.approx(good.nll)
    assert (
        "its logits are not finite within the answer" in broken.error
        and "engine.dtype=" in broken.error
    )
    assert "\n" not in broken.error
