"""What a rehearsal has of the hub's forms, each with a fault that it finds."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from bench.config.cell import Cell
from bench.config.compose import composer
from bench.config.errors import ConfigError
from bench.config.paths import CONF
from bench.reports.plan import plan_of
from bench.reports.run import load_report
from bench.run.judging import JudgeError, ask
from bench.run.models import ModelPool
from methods.decode import Limits, Request
from methods.engine import texts
from methods.engine.loading import load_model
from methods.engine.source import ModelError
from tasks.base import TaskError
from tests.helpers.parallel import samples_of, torchrun
from tests.helpers.rehearsal.models import SHARDS, VOCAB, checkpoint, of_model
from tests.helpers.rehearsal.rows import write_rows
from tests.helpers.rehearsal.stand_ins import Rehearsal, stand_ins
from tests.helpers.rehearsal.whole import rehearsed, run_step

LIMITS = Limits(4, frozenset())
REQUESTS = [Request([5, 6, 7], "a"), Request([8, 9], "b")]
HUB_NAMES = {"target": "Qwen/Qwen2.5-32B-Instruct", "draft": "Qwen/Qwen2.5-7B-Instruct"}
WITH_A_HEAD = ["pair=llama33_70b", "method=eagle3", "task=mini_gsm", "engine.device=cpu"]
MIRRORED = (
    "alpaca",
    "alpaca_eagle",
    "cnn_dm_eagle",
    "komt_bench",
    "livecodebench_v5",
    "mbpp",
    "mmlu_fsd",
    "mmlu_pro_arc",
    "oasst1",
    "spec_bench",
)
"""Tasks of the papers whose rows are not shipped."""


@pytest.fixture(scope="module")
def hydra(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rehearsal]:
    with stand_ins(tmp_path_factory.mktemp("rehearsal")) as composer:
        yield composer


@pytest.mark.parametrize("name", ["Qwen/Qwen3-32B", "lmsys/vicuna-13b-v1.3"])
def test_weights_in_several_files_and_one_that_is_missing(name: str, tmp_path: Path) -> None:
    folder = checkpoint(tmp_path, name)
    files = sorted(folder.glob("*-of-*"))
    [index] = folder.glob("*.index.json")
    assert len(files) == SHARDS and {file.name for file in files} == {
        *json.loads(index.read_text())["weight_map"].values()
    }
    template = CONF / "chat" / "vicuna.jinja" if "vicuna" in name else None
    load_model(str(folder), chat_template=template)
    files[1].unlink()
    with pytest.raises((ModelError, OSError), match=files[1].name):
        load_model(str(folder), chat_template=template)


def test_an_index_that_names_a_tensor_of_no_file(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path, "Qwen/Qwen3-32B")
    [first, *_] = sorted(folder.glob("*-of-*"))
    tensors = load_file(first)
    tensors.pop(next(name for name in tensors if name.endswith("weight")))
    save_file(tensors, first, {"format": "pt"})
    with pytest.raises((ModelError, OSError, ValueError)):
        load_model(str(folder))


def test_vocabularies_that_are_padded_otherwise(
    hydra: Rehearsal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The target has more rows than the draft model, and both more than their tokenizer."""
    words = "pair=qwen25_7b_32b method=fsd task=gsm8k n=2 engine.device=cpu"
    cell = hydra.point(words.split()).cell
    rows = {role: VOCAB + of_model(HUB_NAMES[role])[1] for role in ("target", "draft")}
    assert rows["target"] > rows["draft"] > VOCAB
    loaded = ModelPool().load(cell)
    assert loaded.target.vocab_size == rows["draft"]
    assert all(len(answer.output_ids) == 4 for answer in loaded.generate(REQUESTS, LIMITS))
    monkeypatch.setattr("bench.run.models.shared_rows", lambda *_: None)
    with pytest.raises(ModelError, match="share one vocabulary"):
        ModelPool().load(cell).generate(REQUESTS, LIMITS)


@pytest.mark.parametrize("task", MIRRORED)
def test_rows_are_read_as_those_of_the_hub(hydra: Rehearsal, task: str, tmp_path: Path) -> None:
    """Through `datasets`, from a mirror in the repository's layout; without the file or the subset
    that the task names there is one line."""
    words = [f"task={task}", "pair=tiny", "task.ids=null", "engine.device=cpu"]
    composed = hydra.point(words)
    options = composed.config["task"]
    assert options["path"] is None and Path(options["hub"]).is_dir()
    given = write_rows(tmp_path, task)
    by_path = hydra.point([*words, f"task.path={given}"]).cell.load_task()
    prompts = composed.cell.load_task().prompts(2, 0)
    assert len(prompts) == 2 and prompts == by_path.prompts(2, 0)
    key, wrong = ("files", "none.json") if options["files"] is not None else ("subset", "none")
    options[key] = wrong
    with pytest.raises(TaskError, match="cannot be loaded from the hub"):
        Cell.parsed(composed.config).load_task().prompts(2, 0)


def test_a_template_that_asks_for_today(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The prompt has the same day on every day; where nothing fixes it, it has today's."""
    model = load_model(str(checkpoint(tmp_path, "meta-llama/Llama-3.2-1B-Instruct")))

    def prompt() -> str:
        ids = model.encode([{"role": "user", "content": "Hi"}])
        return model.tokenizer.decode(ids)

    assert "Today Date: 26 Jul 2024" in prompt()
    monkeypatch.setattr(texts, "fixed_date", lambda *_: {})
    assert "26 Jul 2024" not in prompt()


@pytest.mark.parametrize("family", ["llama3", "qwen25", "qwen3"])
def test_templates_know_tools_and_earlier_thoughts(family: str, tmp_path: Path) -> None:
    names = {
        "llama3": "meta-llama/Llama-3.1-8B-Instruct",
        "qwen25": HUB_NAMES["draft"],
        "qwen3": "Qwen/Qwen3-8B",
    }
    model = load_model(
        str(checkpoint(tmp_path, names[family])), thinking=False if family == "qwen3" else None
    )
    turns = [
        {"role": "user", "content": " One? "},
        {"role": "assistant", "content": "<think>\nhidden\n</think>\n\nYes."},
        {"role": "user", "content": "Two?"},
    ]
    text = model.tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True)
    assert ("hidden" in text) == (family != "qwen3") and "Yes." in text and "Two?" in text
    assert (" One? " in text) == (family != "llama3"), "Llama trims"
    tool = {"type": "function", "function": {"name": "add", "parameters": {}}}
    with_tools = model.tokenizer.apply_chat_template(turns, tools=[tool], tokenize=False)
    assert with_tools != text


def test_a_head_that_is_narrower_than_its_target(tmp_path: Path, hydra: Rehearsal) -> None:
    """EAGLE-3 of 70B: own size, own embedding. Without its embedding it is refused."""
    cell = hydra.point(WITH_A_HEAD).cell
    loaded = ModelPool().load(cell)
    module = loaded.method.model.model
    assert module.embed_tokens.weight.shape == (VOCAB, 24) and module.fc.weight.shape == (
        24,
        3 * 32,
    )
    assert all(len(answer.output_ids) == 4 for answer in loaded.generate(REQUESTS, LIMITS))
    folder = checkpoint(tmp_path, "yuhuili/EAGLE3-LLaMA3.3-Instruct-70B")
    weights = torch.load(folder / "pytorch_model.bin")
    del weights["embed_tokens.weight"]
    torch.save(weights, folder / "pytorch_model.bin")
    with pytest.raises(ModelError, match="embed"):
        ModelPool().load(hydra.point([*WITH_A_HEAD, f"pair.eagle3={folder}"]).cell)


def test_sixteen_bits_and_a_head_that_was_left_in_thirty_two(hydra: Rehearsal) -> None:
    cell = hydra.point(WITH_A_HEAD).cell
    assert cell.engine.dtype == "bfloat16"
    loaded = ModelPool().load(cell)
    loaded.method.model.model.float()
    with pytest.raises(RuntimeError, match=r"dtype|type"):
        loaded.generate(REQUESTS, LIMITS)


@pytest.mark.slow
def test_memory_that_no_smaller_batch_frees(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A report's first batch of two raises, and its halves answer; where they raise too, the
    rehearsal fails and says why."""
    words = ["scale=paper", f"store.dir={tmp_path / 'store'}"]
    with stand_ins(tmp_path / "stand_ins") as hydra:
        outcome = rehearsed("mars_fig5", hydra, [*words, f"output.dir={tmp_path / 'fits'}"])
        assert not outcome.missing, outcome.line("mars_fig5")

        def full(*_: object) -> None:
            raise torch.OutOfMemoryError("CUDA out of memory")

        monkeypatch.setattr("bench.run.models.generate_traced", full)
        again = [*words, f"output.dir={tmp_path / 'full'}", "seed=1"]
        outcome = rehearsed("mars_fig5", hydra, again)
    assert outcome.missing and "out of memory" in outcome.line("mars_fig5")


def test_a_judge_that_has_limits(tmp_path: Path) -> None:
    """Its first two requests are refused; without further attempts that is an error."""
    with stand_ins(tmp_path) as hydra:
        judge = hydra.point(["pair=tiny", "engine.device=cpu"]).settings.judge
        once = judge.model_copy(update={"retries": 0})
        with pytest.raises(JudgeError, match="HTTP 503"):
            ask(once, once.asked([("user", "Grade this.")]))
        assert ask(judge, judge.asked([("user", "Grade this.")])) == "Rating: [[5]]"
        assert ask(once, once.asked([("user", "compare two answers")])) == "m"


@pytest.mark.slow
def test_a_target_of_the_hub_on_two_devices(tmp_path: Path) -> None:
    """By torchrun, on gloo; three devices do not divide its heads."""
    source, draft = (
        checkpoint(tmp_path, f"meta-llama/Llama-3.1-{size}-Instruct") for size in ("70B", "8B")
    )
    words = [
        *("pair=local", f"pair.target={source}", f"pair.draft={draft}", "method=sps", "task=gsm8k"),
        *("n=1", "timed=0", "decoding.max_new_tokens=4", "engine.dtype=bfloat16"),
        *("engine.device=cpu", "engine.parallel=tensor"),
    ]
    process = torchrun([*words, "engine.devices=2"], tmp_path / "two", processes=2)
    out, err = process.communicate()
    assert process.returncode == 0, out + err
    cells = samples_of(tmp_path / "two" / "store")
    assert len(cells) == 2 and all(len(sample.output_ids) <= 4 for sample in cells.values())
    with composer() as hydra, pytest.raises(ConfigError, match="cannot be divided evenly among 3"):
        hydra.point([*words, "engine.devices=3", "dry_run=true"]).cell.check()


@pytest.mark.rehearsal
def test_labels_that_are_mined(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """AutoJudge's classifier from the answers of its pair. Where all labels are alike, there is
    none."""
    with stand_ins(tmp_path / "stand_ins") as hydra:
        words = ["scale=paper", f"output.dir={tmp_path / 'out'}"]
        plan = plan_of(load_report("dropmatch_fig6", hydra), hydra, words)
        [step] = {step.file: step for step in plan.steps.values()}.values()
        step.file.parent.mkdir(parents=True)
        reduced = hydra.reduced_step(step, words).argv
        run_step(*reduced[:1], reduced[1:])
        [(tokens, important)] = re.findall(
            r"(\d+) tokens, (\d+) important", capsys.readouterr().out
        )
        assert 0 < int(important) < int(tokens) and step.file.is_file()
        step.file.unlink()
        import_module(f"{reduced[0]}.__main__").main([*reduced[1:], f"work={tmp_path / 'again'}"])
        assert not step.file.exists()
