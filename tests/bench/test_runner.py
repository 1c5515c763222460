"""Whole commands on a small untrained pair: what is stored, what depends on what, what happens when
something fails."""

from __future__ import annotations

import json
import re
import shutil
from collections import Counter
from pathlib import Path

import pytest
import torch
from transformers import AutoTokenizer

from bench.config.cell import Cell
from bench.config.cost_file import load
from bench.config.paths import CONF, PROJECT
from bench.run import timed as rotation
from bench.run.answer import answer, context
from bench.run.cost_clock import PricedCell
from bench.run.models import NativeMethod
from methods import registry
from methods.decode import Limits
from methods.engine.loading import load_model
from methods.engine.processor import KERNELS
from results.metrics.cost import Profile
from results.store.sample import Sample, timing_order
from tasks.base import Prompt
from tasks.mini import MiniTask
from tests.helpers.decoding import method_on
from tests.helpers.stores import samples_of
from tests.helpers.summaries import failed_samples, written

PASSED_BY = "without the chat template"
"""Said where texts are raw and the target has a template."""


@pytest.fixture
def prompts_file(tmp_path) -> Path:
    """Prompts of one's own; `long` does not fit the model's positions, `token` holds a control
    token."""
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
        {"id": "token", "messages": [{"role": "user", "content": "A<|end|> B"}]},
    ]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def test_a_cell_on_disk(command):
    words = "method=mars rule.theta=0.5 decoding.temperature=1 seed=3 timed=3 summary=json"
    result = command(words)
    assert not result.err
    cell, summary = result.cell, result.last_line
    files = {"cell.yaml", "environment.json", "samples.jsonl", "timed.jsonl", "summary.json"}
    assert {file.name for file in cell.path.iterdir()} & {*files, "failure.json"} == files
    assert cell.config()["rule"]["theta"] == 0.5 and cell.config()["name"] == cell.key
    samples, rows = cell.samples(), {row.id: row for row in cell.timed()}
    assert [sample.id for sample in samples] == [f"mini_gsm-test-{i:05d}" for i in range(3)]
    assert [*rows] == timing_order(sample.id for sample in samples)
    for sample in samples:
        row = rows[sample.id]
        assert sample.drafted == sample.pruned == 0 and sample.flags
        assert len(sample.output_ids) == 1 + sum(sample.committed) <= 12
        assert (row.own.tokens, row.own.cycles) == (len(sample.output_ids), len(sample.committed))
        assert all(run.decode_s > 0 < run.prefill_s and run.parted is None for run in row.runs)
        assert row.baseline.tokens == 1 + row.baseline.cycles and row.host and row.boot
        assert row.threads == torch.get_num_threads()
    assert summary == written(cell).plain and 1 <= summary["tau"] <= 6
    counts = {"n": 3, "failed": 0, "metric": "exact_match", "timed": 3, "repeatable": 1.0}
    assert counts.items() <= summary.items()
    environment = cell.environment()
    assert environment["packages"]["torch"] and environment["cpu"]["threads"] >= 1
    assert environment["cpu"]["products"] == str(KERNELS)
    assert environment["models"].keys() == {"target", "draft"}
    assert "rule.theta=0.5" in environment["argv"]


@pytest.mark.slow
def test_tokens_do_not_depend_on_order_batches_workers_or_company(command, tmp_path):
    words = "-m task=mini_chat decoding.temperature=1 n=5 draft.length=3 timed=2"

    def answers(label: str, *more: str) -> list[Sample]:
        folder = tmp_path / re.sub(r"\W+", "-", " ".join(more))
        result = command(words, *more, store=folder)
        assert all(written(cell).repeatable == 1.0 for cell in result.cells)
        by_cell = samples_of(result.store).items()
        [samples] = [samples for key, samples in by_cell if f"-{label}-" in key]
        return samples

    together = "method=sps,mars_sampling,fsd"
    fsd, mars, lossless = (answers(label, together) for label in ("fsd", "mars", "lossless"))
    assert answers("fsd", "method=fsd,mars_sampling", "batch=3") == fsd != lossless
    assert answers("mars", "method=fsd,mars_sampling", "batch=3") == mars
    assert answers("mars", "method=sps,mars_sampling", "workers=2 quality_batch=2") == mars
    assert answers("lossless", "method=sps", "batch=5") == lossless
    assert len(lossless) == 5 and answers("lossless", "method=sps", "seed=1") != lossless


def test_a_tokenizer_without_a_chat_template_is_given_one(
    command, pair_folder, prompts_file, tmp_path, caplog
):
    """A second turn hears the first answer, in the words of the template; a raw prompt passes none
    by."""
    bare = tmp_path / "bare"
    shutil.copytree(pair_folder / "target", bare)
    for file in bare.glob("*chat_template*"):
        file.unlink()
    config = bare / "tokenizer_config.json"
    settings = json.loads(config.read_text()) | {"bos_token": "<|user|>"}  # any known token
    settings.pop("chat_template", None)
    config.write_text(json.dumps(settings))
    words = f"method=ar task=mini_chat n=1 pair.target={bare}"
    without = command(words, status=1)
    [failed] = failed_samples(without.cell)
    assert "give pair.chat_template=FILE" in failed.error
    assert "results in" not in without.out, "a table of nothing"
    command(f"method=ar task=prompts task.path={prompts_file} n=1 pair.target={bare}")
    assert PASSED_BY not in caplog.text
    vicuna = PROJECT / "conf" / "chat" / "vicuna.jinja"
    result = command(words, f"pair.chat_template={vicuna}", store=tmp_path / "with")
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
    size = sample.turn_tokens[0]
    turns = sample.output_ids[:size], sample.output_ids[size:]
    assert [tokenizer.decode(ids, skip_special_tokens=True) for ids in turns] == sample.texts


def test_own_prompts_and_two_that_fail(command, prompts_file, tmp_path, caplog):
    words = f"task=prompts task.path={prompts_file} n=null method=sps batch=4 timed=4"
    result = command(words, status=1)
    assert PASSED_BY in caplog.text
    [line] = result.err.splitlines()
    assert line.startswith("failed: ") and "2 of 5 prompts failed" in line and "long" in line
    assert line.endswith("or take a model with more positions")
    measured = {sample.id: sample for sample in result.cell.good_samples()}
    failed = {sample.id: sample.error for sample in failed_samples(result.cell)}
    assert failed.keys() == {"long", "token"}
    assert "prompt token holds '<|end|>', a control token" in failed["token"]
    assert measured["ids"].prompt_tokens == 3 and measured["plain"].score is None
    summary = written(result.cell)
    assert (summary.n, summary.failed, summary.accuracy) == (3, 2, None)
    [together] = {row.batch for row in result.cell.timed()}
    assert together in measured, "the three were timed in one batch"
    cell = Cell.parsed(result.cell.config() | {"n": None, "timed": 4})
    profile = load(CONF / "cost" / "xeon_smollm2.yaml").model_dump() | {"greedy": None}
    for prices in (profile["target"], profile["sampled"]["drafts"]["model"]):
        prices[4] = prices[1]
    priced = PricedCell(cell, result.store, Profile.model_validate(profile))
    assert {row.id for row in priced.timed()} == set(measured)
    text = command(words, "task.control_tokens=text", store=tmp_path / "text", status=1).cell
    assert text.key != result.cell.key
    assert {sample.id for sample in text.good_samples()} == {*measured, "token"}


def test_a_cell_that_cannot_run_stops_no_other(command, pair_folder, tmp_path):
    broken = tmp_path / "broken"
    shutil.copytree(pair_folder / "draft", broken)
    weights = broken / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    result = command(f"-m pair.draft={broken} method=sps,pld,mars summary=json", status=1)
    lines = result.err.splitlines()
    assert [line.startswith("failed: local-") and "broken" in line for line in lines] == [True] * 2
    cells = {cell.key.rsplit("-", 1)[0]: cell for cell in result.store.cells()}
    for name in ("local-ar-mini_gsm", "local-prompt_lookup-lossless-mini_gsm"):
        assert written(cells[name]) is not None and cells[name].failure() is None
    assert written(cells["local-lossless-mini_gsm"]) is None
    assert "broken" in cells["local-lossless-mini_gsm"].failure()
    tail = [json.loads(line) for line in result.out.splitlines()[-3:]]
    assert ["error" in line for line in tail] == [True, False, True]


@pytest.mark.parametrize("arm", ["", "baseline: "])
def test_a_scorer_that_raises_fails_the_prompt(command, monkeypatch, arm):
    """In each cell, or in the baseline alone, which is decoded first."""
    real, scored = MiniTask.score, []

    def score(self, prompt, texts):
        scored.append(prompt.id)
        if prompt.id == scored[0] and (not arm or len(scored) == 1):
            raise ZeroDivisionError("no right answer")
        return real(self, prompt, texts)

    monkeypatch.setattr(MiniTask, "score", score)
    result = command("method=sps", status=1)
    [line] = result.err.splitlines()
    assert (
        f"1 of 3 prompts failed; first {scored[0]}: {arm}scoring: ZeroDivisionError: no right "
        "answer" in line
    )
    assert [sample.id for sample in failed_samples(result.cell)] == ([] if arm else scored[:1])
    monkeypatch.undo()
    command("method=sps")  # it is tried again


def test_a_batch_that_does_not_fit_is_halved_and_a_method_without_memory_fails_alone(
    command, monkeypatch
):
    sizes: list[int] = []
    real = NativeMethod.generate_with_nll

    def cramped(method, requests, limits):
        is_mars = method.method.rule.name == "mars"
        if not is_mars:
            sizes.append(len(requests))
        if is_mars or len(requests) > 2:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return real(method, requests, limits)

    with monkeypatch.context() as patch:
        patch.setattr(NativeMethod, "generate_with_nll", cramped)
        result = command("-m method=ar,mars n=7 workers=1", status=1)
    plain, mars = sorted(result.store.cells(), key=lambda cell: "-mars-" in cell.key)
    assert sizes == [7, 4, 2, 2, 3, 2, 1]
    assert plain.failure() is None and written(plain).n == 7
    [line] = result.err.splitlines()
    assert line.startswith(f"failed: {mars.key}: ")
    assert "CUDA out of memory" in line and not mars.good_samples()
    command("method=mars n=7")
    assert written(mars).n == 7, "it is tried again"


def test_baseline_runs_once_for_a_rotation(command, monkeypatch):
    asked: list[str] = []
    real = rotation.answer

    def counting(method, *args, **kw):
        asked.append("ar" if method.method.model is None else f"{method.method.rule.theta}")
        return real(method, *args, **kw)

    monkeypatch.setattr(rotation, "answer", counting)
    words = "method=mars rule.theta=0.5,0.7,0.9 timed=3"
    command("-m", words, "n=7")
    warm_up, *turns = " ".join(asked[:4]), *(" ".join(asked[at : at + 4]) for at in (4, 8, 12))
    assert warm_up == turns[0] == "ar 0.5 0.7 0.9", "one untimed warm-up each"
    assert turns[1:] == ["0.5 0.7 0.9 ar", "0.7 0.9 ar 0.5"]
    command("-m", words, "n=8")
    assert len(asked) == 16, "one more answer, the same timed prompts: nothing is warmed up"


def test_sessions_divide_the_timed_prompts(command, monkeypatch):
    class Anew(Exception):
        """The process would have been replaced."""

    def execv(path: str, argv: list[str]) -> None:
        raise Anew(*argv[1:])

    def replaced(*more: str) -> tuple[str, ...]:
        with pytest.raises(Anew) as raised:
            command("-m", words, *more)
        return raised.value.args

    monkeypatch.setattr("os.execv", execv)
    words = "method=mars,ar n=5 timed=5 sessions=3 sessions_gap_s=0"
    first = replaced("fresh=true")
    assert "sessions=3" in first and "fresh=true" not in first
    replaced()
    result = command("-m", words)
    assert all(len(cell.timed()) == 5 for cell in result.cells)
    sizes = [Counter(row.started for row in cell.timed()).values() for cell in result.cells]
    assert [list(size) for size in sizes] == [[2, 2, 1]] * 2
    command("-m", words)  # a whole cell is not timed again
    anew = replaced("++fresh=true")  # what was timed before is no reason to stop
    assert not any("fresh" in word for word in anew)


def test_dear_laws_are_of_the_first_prompts_alone(command):
    """A relaxed rule on drawn candidates is integrated over them, unless it states its law."""
    words = "method=sps decoding.temperature=1 n=18 decoding.max_new_tokens=3"
    result = command("-m", words, "rule=mars_sampling,tilted")
    counts = {
        cell.key.split("-")[1]: sum(row.distortion is not None for row in cell.good_samples())
        for cell in result.store.cells()
    }
    assert counts == {"ar": 18, "mars": 16, "tilted": 18}


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
def test_a_prompt_whose_logits_become_nan(pair_folder, drafter, options, rule, temperature):
    folder = str(pair_folder / "target")
    target = load_model(folder, check=False)
    model = target.model
    separate = model.lm_head.weight.detach().clone()  # no longer the embedding
    model.lm_head.weight = torch.nn.Parameter(separate)
    draft = load_model(folder, check=False) if drafter == "model" else None
    drafting = registry.drafter(drafter)(**options)
    method = NativeMethod(method_on(target, draft, drafting, rule, temperature, length=2))
    limits = Limits(12, frozenset())

    def answered() -> list:
        turns = answer(
            method, PROMPTS, limits, lambda prompt, _: prompt.id, decode=method.generate_with_nll
        )
        return [turns[prompt.id] for prompt in PROMPTS]

    [good], [bad] = answered()
    harmless = {*good.output_ids, *context(target, PROMPTS[1], [])}
    poison = next(token for token in bad.output_ids[2:] if token not in harmless)
    model.model.embed_tokens.weight.data[poison] = torch.nan  # activations behind it overflow
    [still], broken = answered()
    assert still.output_ids == good.output_ids and still.nll == pytest.approx(good.nll)
    assert "its logits are not finite within the answer" in broken.error
    assert "engine.dtype=" in broken.error and "\n" not in broken.error
