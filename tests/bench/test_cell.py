"""The name of a cell is a function of what decides its result, and of nothing else; what is
recorded beside it."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tarfile
from collections.abc import Mapping
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
from methods.engine.source import ModelError
from tasks.base import TaskError
from tests.helpers.old_archives import renamed
from tests.helpers.tables import rows


@pytest.fixture
def cell_of(hydra, pair_folder):
    pair = f"pair=local pair.target={pair_folder / 'target'} pair.draft={pair_folder / 'draft'}"
    common = f"{pair} method=mars n=3"
    return lambda *lines: hydra.point(" ".join([common, *lines]).split()).cell


@pytest.mark.parametrize(
    ("words", "name"),
    [
        ("", "local-mars-mini_gsm"),
        ("method=pld", "local-prompt_lookup-lossless-mini_gsm"),
        ("method=ar", "local-ar-mini_gsm"),
    ],
)
def test_name_is_readable_and_repeats(cell_of, words, name):
    readable, digest = cell_of(words).name.rsplit("-", 1)
    assert readable == name and len(digest) == 10 and cell_of(words).name.endswith(digest)


IGNORED = [
    "store.dir=elsewhere",
    "output.dir=elsewhere",
    "summary=json",
    "tracker=wandb",
    "dry_run=true",
    "method=mars",
    "engine.device=cpu",
    "rule.theta=0.90",
    "n=4",
    "n=null",
    "engine.threads=1",
    "engine.decoder=lean",
    "engine.graphs=auto",
]
COUNTED = [
    "rule.theta=0.91",
    "rule.variant=sampling",
    "rule=lossless",
    "drafter.sample=false",
    "draft.length=6",
    "method=ar",
    "seed=1",
    "repeat=1",
    "batch=2",
    "task=mini_chat",
    "decoding.temperature=1",
    "decoding.top_p=0.9",
    "decoding.min_p=0.1",
    "decoding.top_k=5",
    "decoding.max_new_tokens=9",
    "engine.dtype=bfloat16",
    "engine.decoder=transformers",
]


def test_the_name_depends_on_what_decides_tokens_alone(cell_of):
    names = {override: cell_of(override).name for override in (*IGNORED, *COUNTED)}
    assert {override for override, name in names.items() if name == cell_of().name} == {*IGNORED}


def test_limit_counts_wherever_it_is_set(cell_of):
    plain = cell_of()
    limit = plain.decoding.max_new_tokens
    assert limit == plain.task.options.max_new_tokens
    assert cell_of(f"decoding.max_new_tokens={limit}").name == plain.name
    of_decoding, of_task = (
        cell_of(f"{section}.max_new_tokens=9").name for section in ("decoding", "task")
    )
    assert of_decoding == of_task != plain.name


@pytest.mark.parametrize(
    "words",
    ["method=ar draft.length=9", "drafter=none rule=greedy", "method=ar pair.draft=null"],
)
def test_nothing_is_drafted_so_neither_length_nor_rule_matter(cell_of, words):
    assert cell_of(words).name == cell_of("method=ar").name


def test_one_rotation_shares_all_but_the_method(cell_of):
    def keys(*overrides: str) -> set[str]:
        return {cell_of(override).group_key for override in overrides}

    shared = "method=ar", "method=pld", "draft.length=9", "rule.theta=0.5", "n=4", "timed=0"
    assert keys(*shared) == keys("")
    assert not keys("") & keys("seed=1", "task=mini_chat", "batch=2")
    assert cell_of("n=4 timed=0").name == cell_of().name, "numbers of prompts extend a cell"


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


ARCHIVES = sorted((PROJECT / "results" / "measured").glob("*/store*.tar.xz"))


@pytest.fixture(scope="module")
def committed() -> dict[str, dict[str, Any]]:
    """Name -> settings of every committed cell."""
    settings = {}
    for archive in ARCHIVES:
        with tarfile.open(archive) as file:
            for member in file:
                if member.name.endswith("/cell.yaml"):
                    config = yaml.load(file.extractfile(member), yaml.CSafeLoader)
                    settings[Path(member.name).parent.name] = renamed(config)
    return settings


def names(config: Mapping[str, Any]) -> set[str]:
    """The names that a cell with these settings can have on models with the recorded fingerprints.
    Empty where that cannot be told here: a file is missing, the identity, the task or vLLM had
    another version."""
    if config.get("identity") != 3 or "fingerprints" not in config:
        return set()
    try:
        cell = Cell.parsed({**config, "n": None, "timed": 0})
        if cell.engine.name != "native" or config.get("task_contents") != cell.task_contents():
            return set()
        roles = [role for role in cell.roles if role in cell.pair.causal_roles]
        decoders = [
            dict(zip(some, chosen, strict=True))
            for some in (roles, roles[:1])  # none of a draft cut out
            for chosen in product(("lean", "transformers"), repeat=len(some))
        ]
        identities = [cell.identity(config["fingerprints"], chosen) for chosen in decoders]
        return {cell.named(identity) for identity in identities}
    except (ConfigError, ModelError, TaskError):
        return set()


def test_committed_cells_are_found_again_whatever_option_was_added(committed):
    assert len(committed) == 963
    assert [key for key, config in committed.items() if key not in names(config)] == []


@pytest.mark.parametrize(
    ("section", "option", "default", "other"),
    [
        ("decoding", "min_p", 0.0, 0.1),
        ("decoding", "repetition_penalty", 1.0, 1.05),
        ("drafter", "stop_below", 0.0, 0.5),
    ],
)
def test_an_added_option_counts_where_it_is_set(committed, section, option, default, other):
    key, config = next(
        (key, config)
        for key, config in committed.items()
        if "-mars-" in key and config["drafter"]["name"] == "model" and names(config)
    )

    def named(value: Any) -> set[str]:
        return names({**config, section: {**config[section], option: value}})

    assert key in named(default) and named(other) and key not in named(other)


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


@pytest.mark.parametrize(
    ("program", "module"), [("bench/__main__.py", "bench"), ("bench/merge.py", "bench.merge")]
)
def test_the_record_of_an_environment_holds_nothing_private(program, module, monkeypatch):
    monkeypatch.setenv("HOME_ADDRESS", "private")
    monkeypatch.setenv("XDG_CACHE_HOME", "/home/ada/cache")
    monkeypatch.setenv("HF_HOME", "/home/ada/cache/huggingface")
    words = f"store.dir={PROJECT}/outputs/store pair.target=/home/ada/cache/leeway/x data=/data"
    argv = [str(PROJECT / program), *words.split()]
    record = environment(argv, "cpu", {}, {"target": "abc"}, {"target": "one.gguf"})
    assert record["accelerator"] is None
    assert record["models"] == {"target": "abc"} and record["dequantised"] == {"target": "one.gguf"}
    assert record["code"].startswith("sha256:")
    assert record["code"] == environment([], "cpu", {}, {}, {})["code"]
    kept = "store.dir=outputs/store pair.target=~/.cache/leeway/x data=/data"
    assert record["argv"] == ["python", "-m", module, *kept.split()]
    assert record["variables"]["HF_HOME"] == "~/.cache/huggingface"
    assert not any(word in json.dumps(record) for word in (str(PROJECT), "/home/ada", "private"))
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


def test_a_penalty_is_refused_before_anything_runs(cell_of, penalised):
    with pytest.raises(ConfigError) as error:
        cell_of(f"method=ar pair.target={penalised}")
    assert str(error.value) == (
        f"{penalised}: its generation_config.json asks for repetition_penalty=1.5, which is "
        "not applied; decoding.repetition_penalty=1.5 applies it, and "
        "pair.ignore_generation_config=true decodes without"
    )


def test_what_is_applied_is_not_refused(cell_of, penalised):
    asked = cell_of(f"method=sps pair.target={penalised} decoding.repetition_penalty=1.5")
    assert asked.decoding.sampling.penalises and asked.baseline().decoding.sampling.penalises
    with pytest.raises(ConfigError, match=r"asks for repetition_penalty=1\.5"):
        cell_of(f"method=sps pair.target={penalised} decoding.repetition_penalty=1.1")


def test_it_can_be_ignored_and_changes_no_name(cell_of, penalised):
    ignoring = cell_of(f"method=ar pair.target={penalised} pair.ignore_generation_config=true")
    assert ignoring.record()["pair"]["ignore_generation_config"] is True
    plain = cell_of("method=ar")
    assert plain.name == cell_of("method=ar pair.ignore_generation_config=true").name
    assert "ignore_generation_config" not in plain.record()["pair"]
    assert load_language_model(ignoring.pair, ignoring.engine, "target").vocab_size


def test_the_day_of_a_task_names_the_cell_where_it_is_given(cell_of):
    plain, dated = cell_of(), cell_of("task.date=2025-01-02")
    assert plain.name != dated.name and "date" not in plain.record()["task"]
    assert dated.record()["task"]["date"] == "2025-01-02"
    assert str(dated.load_task().prompts(1)[0].date) == "2025-01-02"
    with pytest.raises(ConfigError, match=r"task\.date"):
        cell_of("task.date=tomorrow")
