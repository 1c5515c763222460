"""The name of a cell is a function of what decides its result, and of nothing else; what is
recorded beside it."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tarfile
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import yaml

from bench import merge
from bench.config.cell import Cell
from bench.config.environment import environment
from bench.config.errors import ConfigError
from bench.config.paths import PROJECT, command_line, portable
from bench.run.models import load_language_model
from methods.engine import user_cache
from methods.engine.fingerprints import fingerprint, unhashed
from tests.helpers.tables import rows


@pytest.fixture
def cell_of(hydra, pair_folder):
    pair = f"pair=local pair.target={pair_folder / 'target'} pair.draft={pair_folder / 'draft'}"
    common = f"{pair} method=mars n=3"
    return lambda *lines: hydra.point(" ".join([common, *lines]).split()).cell


OVERRIDES = rows("""
store.dir=elsewhere | nothing
output.dir=elsewhere | nothing
summary=json | nothing
tracker=wandb | nothing
dry_run=true | nothing
method=mars | nothing
engine.device=cpu | nothing
rule.theta=0.90 | nothing
n=4 | nothing
n=null | nothing
engine.threads=1 | clock
engine.decoder=lean | clock
engine.graphs=auto | nothing
timed=0 | nothing
rule.theta=0.91 | method
rule.variant=sampling | method
rule=lossless | method
drafter.sample=false | method
draft.length=6 | method
method=ar | method
drafter.stop_below=0.5 | method
method=pld | method
seed=1 | group
repeat=1 | group
batch=2 | group
task=mini_chat | group
decoding.temperature=1 | group
decoding.top_p=0.9 | group
decoding.min_p=0.1 | group
decoding.repetition_penalty=1.05 | group
decoding.top_k=5 | group
decoding.max_new_tokens=9 | group
engine.dtype=bfloat16 | group
engine.decoder=transformers | group
engine.parallel=layers engine.devices=2 | clock
engine.parallel=tensor engine.devices=2 launch=slurm | group
task.date=2025-01-02 | group
""")
"""What differs: nothing, the clock, the method within a rotation, or all of it."""


def test_the_name_depends_on_what_decides_tokens_alone(cell_of):
    plain, differs = cell_of(), {}
    for words, _ in OVERRIDES:
        cell = cell_of(words)
        same = cell.name == plain.name, cell.group_key == plain.group_key
        differs[words] = ("group", "method", "clock", "nothing")[2 * same[0] + same[1]]
    assert differs == dict(OVERRIDES)
    modules, tensor = (
        cell_of(f"engine.{how}")
        for how in ("decoder=transformers", "parallel=tensor engine.devices=2 launch=slurm")
    )
    assert modules.name == tensor.name and modules.group_key != tensor.group_key


@pytest.mark.parametrize(
    "words",
    ["draft.length=9", "rule=greedy", "pair.draft=null", "pair.ignore_generation_config=true"],
)
def test_where_nothing_is_drafted_neither_length_nor_rule_matter(cell_of, words):
    assert cell_of("method=ar", words).name == cell_of("method=ar").name


def test_limit_counts_wherever_it_is_set(cell_of):
    plain = cell_of()
    limit = plain.decoding.max_new_tokens
    assert limit == plain.task.options.max_new_tokens
    assert cell_of(f"decoding.max_new_tokens={limit}").name == plain.name
    of_decoding, of_task = (
        cell_of(f"{section}.max_new_tokens=9").name for section in ("decoding", "task")
    )
    assert of_decoding == of_task != plain.name


CHECKPOINT = (
    "model.safetensors tokenizer.json chat_template.jinja generation_config.json config.json"
)


@pytest.mark.parametrize("changed", CHECKPOINT.split())
def test_any_byte_of_a_checkpoint_counts(cell_of, pair_folder, tmp_path, monkeypatch, changed):
    monkeypatch.setenv("LEEWAY_CACHE", str(tmp_path / "cache"))
    target = tmp_path / "target"
    shutil.copytree(pair_folder / "target", target)
    name, words = cell_of("method=ar").name, f"method=ar pair.target={target}"
    assert cell_of(words).name == name, "its place does not count"
    file = target / changed
    content, status = bytearray(file.read_bytes()), file.stat()
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    # as a copy that preserves times leaves it
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert cell_of(words).name != name


def test_of_a_hub_snapshot_the_names_of_the_blobs_count(tmp_path, pair_folder, monkeypatch):
    monkeypatch.setenv("LEEWAY_CACHE", str(tmp_path / "cache"))
    blobs, snapshot = tmp_path / "blobs", tmp_path / "snapshots" / "c0ffee"
    snapshot.mkdir(parents=True)
    blobs.mkdir()
    for file in (pair_folder / "target").iterdir():
        blob = blobs / hashlib.sha256(file.read_bytes()).hexdigest()
        shutil.copy(file, blob)
        (snapshot / file.name).symlink_to(blob)
    monkeypatch.setattr(user_cache, "sha256", pytest.fail)
    local = fingerprint(str(snapshot))
    assert not unhashed(snapshot)
    other = blobs / ("0" * 64)
    shutil.copy(pair_folder / "draft" / "model.safetensors", other)
    (snapshot / "model.safetensors").unlink()
    (snapshot / "model.safetensors").symlink_to(other)
    assert fingerprint(str(snapshot)) != local


FILES = rows("""
task=prompts | task.path={}.jsonl
method=ar | pair.chat_template={}.jinja
task=mt_bench | task.references={}.jsonl
task=gsm8k | task.shots.source={}.jsonl
method=eagle drafter.tree=eagle_25 | drafter.tree={}.yaml
method=medusa | drafter.tree={}.yaml
rule=arc | rule.constants={}.json
rule=autojudge | rule.classifier={}.json
rule=either rule.second.name=autojudge | +rule.second.classifier={}.json
""")


@pytest.mark.parametrize(("words", "option"), FILES)
def test_every_file_counts_by_its_content(cell_of, pair_folder, tmp_path, words, option):
    row = '{{"id": "{}", "prompt": "Hello", "question": "q", "answer": "1 #### 2"}}\n'
    lines = "".join(map(row.format, range(4)))
    text = "source: mine\npaths: |\n  0 1\n" if option.endswith("yaml") else lines
    other = text.replace("1\n", "1 2\n").replace("Hello", "Bye")
    suffix = option.rpartition("}")[2]
    for name, content in (("a", text), ("b", text), ("c", other)):
        (tmp_path / f"{name}{suffix}").write_text(content)
    heads = " ".join(f"pair.{head}=random:{pair_folder / head}" for head in ("eagle", "medusa"))
    same, moved, changed = (
        cell_of(heads, words, option.format(tmp_path / name)).name for name in "abc"
    )
    assert same == moved != changed


def committed() -> Iterator[tuple[str, dict[str, Any]]]:
    """Name and settings of every committed cell."""
    for archive in (PROJECT / "results" / "measured").glob("*/store*.tar.xz"):
        with tarfile.open(archive) as file:
            for member in file:
                if member.name.endswith("/cell.yaml"):
                    config = yaml.load(file.extractfile(member), yaml.CSafeLoader)
                    yield Path(member.name).parent.name, config


def names(config: dict[str, Any]) -> set[str]:
    """The names that a cell with these settings can have on models with the recorded
    fingerprints."""
    cell = Cell.parsed({**config, "n": None, "timed": 0})
    roles = [role for role in cell.roles if role in cell.pair.causal_roles]
    decoders = [
        dict(zip(some, chosen, strict=True))
        for some in (roles, roles[:1])  # none of a draft cut out
        for chosen in product(("lean", "transformers"), repeat=len(some))
    ]
    identities = [cell.identity(config["fingerprints"], chosen) for chosen in decoders]
    return {cell.named(identity) for identity in identities}


def test_committed_cells_are_found_again_whatever_option_was_added():
    settings = dict(committed())
    assert len(settings) == 1035
    assert [key for key, config in settings.items() if key not in names(config)] == []


def test_changed_settings_are_refused_in_one_line(command, capsys):
    words = "method=mars decoding.temperature=1"
    cell = command(words).cell
    file, samples = cell.path / "cell.yaml", (cell.path / "samples.jsonl").read_bytes()
    text = file.read_text()
    assert "temperature: 1.0" in text
    file.write_text(text.replace("temperature: 1.0", "temperature: 2.0"))
    resumed = command(words, "n=4", status=2)
    into = cell.path.parents[1] / "into"
    assert merge.main([f"store.dir={into}", f"from={resumed.store.root}"]) == 1
    for said in (resumed.err, capsys.readouterr().err):
        assert sum(str(file) in line for line in said.splitlines()) == 1 and "Traceback" not in said
    assert (cell.path / "samples.jsonl").read_bytes() == samples, "nothing was added to it"
    assert not (into / cell.key).exists()


def test_the_record_of_an_environment_holds_nothing_private(monkeypatch):
    monkeypatch.setenv("HOME_ADDRESS", "private")
    monkeypatch.setenv("XDG_CACHE_HOME", "/home/ada/cache")
    monkeypatch.setenv("HF_HOME", "/home/ada/cache/huggingface")
    words = f"store.dir={PROJECT}/outputs/store pair.target=/home/ada/cache/leeway/x data=/data"
    argv = [str(PROJECT / "bench/__main__.py"), *words.split()]
    record = environment(argv, "cpu", {}, {"target": "abc"}, {"target": "one.gguf"})
    assert record["accelerator"] is None
    assert record["models"] == {"target": "abc"} and record["dequantised"] == {"target": "one.gguf"}
    assert record["code"].startswith("sha256:")
    assert record["code"] == environment([], "cpu", {}, {}, {})["code"]
    kept = "store.dir=outputs/store pair.target=~/.cache/leeway/x data=/data"
    assert record["argv"] == ["python", "-m", "bench", *kept.split()]
    assert record["variables"]["HF_HOME"] == "~/.cache/huggingface"
    assert not any(word in json.dumps(record) for word in (str(PROJECT), "/home/ada", "private"))
    assert command_line([str(PROJECT / "bench/merge.py")]) == ["python", "-m", "bench.merge"]
    assert command_line(["/usr/bin/leeway", "n=3"]) == ["/usr/bin/leeway", "n=3"]


def test_a_recorded_cell_holds_paths_of_the_checkout(hydra):
    cell = hydra.point(["pair=tiny", "method=mars"]).cell
    record = cell.record()
    assert record["pair"]["target"] == "models/tiny/target"
    assert str(PROJECT) not in json.dumps(record)
    again = Cell.parsed({**record, "n": None, "timed": 0})
    assert again.name == cell.name, "it is read back as the same cell"
    assert portable({"a": [1, f"{PROJECT}/x"]}) == {"a": [1, "x"]}


@pytest.fixture
def penalised(pair_folder, tmp_path) -> Path:
    """A target that asks for a penalty, beside what is applied or changes nothing."""
    folder = tmp_path / "target"
    shutil.copytree(pair_folder / "target", folder)
    file = folder / "generation_config.json"
    neutral = {"no_repeat_ngram_size": 0, "min_new_tokens": None, "bad_words_ids": []}
    applied = {"temperature": 0.6, "top_k": 9}
    penalty = {"repetition_penalty": 1.5}
    file.write_text(json.dumps(json.loads(file.read_text()) | neutral | applied | penalty))
    return folder


def test_a_penalty_is_refused_before_anything_runs_unless_it_is_applied(cell_of, penalised):
    words = f"method=sps pair.target={penalised} decoding.repetition_penalty="
    with pytest.raises(ConfigError) as error:
        cell_of(f"{words}1.1")
    assert str(error.value) == (
        f"{penalised}: its generation_config.json asks for repetition_penalty=1.5, which is "
        "not applied; decoding.repetition_penalty=1.5 applies it, and "
        "pair.ignore_generation_config=true decodes without"
    )
    asked = cell_of(f"{words}1.5")
    assert asked.decoding.sampling.penalises and asked.baseline().decoding.sampling.penalises


def test_it_can_be_ignored(cell_of, penalised):
    ignoring = cell_of(f"method=ar pair.target={penalised} pair.ignore_generation_config=true")
    assert ignoring.record()["pair"]["ignore_generation_config"] is True
    assert "ignore_generation_config" not in cell_of("method=ar").record()["pair"]
    assert load_language_model(ignoring.pair, ignoring.engine, "target").vocab_size


def test_the_day_of_a_task_is_recorded_where_it_is_given(cell_of):
    dated = cell_of("task.date=2025-01-02")
    assert "date" not in cell_of().record()["task"]
    assert dated.record()["task"]["date"] == "2025-01-02"
    assert str(dated.load_task().prompts(1)[0].date) == "2025-01-02"
