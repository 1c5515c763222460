"""One target on several devices, here processes on the CPU: the tokens of one process, whatever drafts; one line and a
resumable store where a process is killed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from safetensors.torch import save_file

from bench.config.compose import composer
from bench.config.paths import PROJECT, TINY
from methods.engine.cut import own_part, settings_of
from methods.engine.loading import load_model
from results.store.cells import Store
from results.store.cycles import read_cycle
from results.store.traces import TraceFolder
from tests.helpers.few_cells import few_cells, table
from tests.helpers.parallel import assert_same_tokens, samples_of, started

TWO = ("engine.parallel=tensor", "engine.devices=2")
SHORT = ("task=mini_gsm", "n=1", "decoding.max_new_tokens=12")


@pytest.fixture(scope="module")
def prompts() -> dict:
    with composer() as hydra:
        cell = hydra.point(SHORT).cell
    return {prompt.id: prompt for prompt in cell.load_task().prompts(cell.n, cell.seed)}


def assert_traced(root: Path) -> None:
    """Every method's answers are traced."""
    for cell in Store(root).cells():
        if cell.config()["drafter"]["name"] != "none":
            assert TraceFolder(cell).covered() == {sample.id for sample in cell.good_samples()}, cell.key


def finished(process) -> str:
    out, err = process.communicate()
    assert process.returncode == 0, err
    return out


@pytest.mark.slow
@pytest.mark.parametrize("sweep", [
    ("drafter=glob(*)", f"pair.hass={TINY / 'eagle'}", "timed=0"),
    ("method=sps,mars_sampling,eagle3", "decoding.temperature=1", "timed=0"),
    ("method=dropmatch,arc,autojudge", "trace=true", "timed=0"),  # rules that read the LM head or the embedding
])
def test_two_processes_decode_the_tokens_of_one(command, prompts, tmp_path: Path, sweep: tuple[str, ...]) -> None:
    given = ["-m", "pair=tiny", *SHORT, *sweep]
    two = started([*given, *TWO], tmp_path / "two")
    assert command(*given[1:], "workers=1", flags=["-m"], store=tmp_path / "one").status == 0
    finished(two)
    target = load_model(str(TINY / "target"))
    assert_same_tokens(samples_of(tmp_path / "two" / "store"), samples_of(tmp_path / "one"), target, prompts)
    if "trace=true" in sweep:
        assert_traced(tmp_path / "two" / "store")


@pytest.mark.slow
def test_a_cycle_is_recorded_as_by_one_process(tmp_path: Path) -> None:
    """`bench.cycle` watches rank 0, which sees whole distributions."""
    given, cycles = ["pair=tiny", *SHORT, "method=mars"], []
    for folder, more in ((tmp_path / "one", ()), (tmp_path / "two", TWO)):
        subprocess.run([sys.executable, "-m", "bench.cycle", *given, *more, f"output.dir={folder}"], cwd=PROJECT,
                       check=True)
        cycle = read_cycle(folder / "cycle.json")
        cycles.append((cycle, [*cycle.nodes, cycle.follow]))
    (one, nodes), (two, others) = cycles
    assert (one.number, one.before) == (two.number, two.before) and len(nodes) > 2
    assert [(node.token, node.parent, node.rank, node.clause) for node in nodes] == \
        [(node.token, node.parent, node.rank, node.clause) for node in others]
    for mine, other in zip(nodes, others, strict=True):
        assert (mine.target, mine.draft) == pytest.approx((other.target, other.draft), abs=1e-5)


@pytest.mark.slow
def test_torchrun_starts_the_processes(command, prompts, tmp_path: Path) -> None:
    given = ["pair=tiny", *SHORT, "method=sps", "timed=0"]
    two = started([*given, *TWO], tmp_path / "two", torchrun=2)
    assert command(*given, store=tmp_path / "one").status == 0
    assert finished(two).count("quality pass: ") == 1, "only rank 0 prints"
    target = load_model(str(TINY / "target"))
    assert_same_tokens(samples_of(tmp_path / "two" / "store"), samples_of(tmp_path / "one"), target, prompts)
    for cell in Store(tmp_path / "two" / "store").cells():
        assert cell.environment()["parallel"] == {"mode": "tensor", "devices": 2}


@pytest.mark.slow
def test_torchrun_measures_a_report(command, prompts, tmp_path: Path) -> None:
    """MARS Table 1 on one task and four methods, the timed pass and the rendered table included."""
    kept = {"Method": ("Autoregressive", "SpS", "EAGLE-3", "MARS, released"), "Task": ("mini_gsm",)}
    flags = few_cells(tmp_path, "mars_table1", **kept)
    given = ["report=few_cells", "pair=tiny", *SHORT[1:], "timed=1"]
    two = started([*flags, *given, *TWO], tmp_path / "two", torchrun=2)
    assert command(*given, flags=flags, store=tmp_path / "one").status == 0
    finished(two)
    target = load_model(str(TINY / "target"))
    assert_same_tokens(samples_of(tmp_path / "two" / "store"), samples_of(tmp_path / "one"), target, prompts)
    assert_traced(tmp_path / "two" / "store")
    taus = [{row["Method"]: row["value"] for row in table(folder / "out") if row["value_name"] == "tau"}
            for folder in (tmp_path / "two", tmp_path)]
    assert taus[0] == taus[1] and taus[0].keys() >= set(kept["Method"])


@pytest.mark.slow
def test_three_processes_on_nine_heads(command, prompts, tmp_path: Path) -> None:
    """The shape of SmolLM2 in small, whose 2048 tokens three do not divide, and a draft cut out of it, as SmolLM2's is;
    two processes are refused."""
    shape = json.loads((TINY / "target" / "config.json").read_text())
    shape |= {"num_attention_heads": 9, "num_key_value_heads": 3, "hidden_size": 72, "head_dim": 8,
              "intermediate_size": 192, "num_hidden_layers": 2, "initializer_range": 0.5}
    (tmp_path / "shape").mkdir()
    (tmp_path / "shape" / "config.json").write_text(json.dumps(shape))
    target = load_model(f"random:{tmp_path / 'shape'}", shape_tokenizer=TINY / "target")
    (tmp_path / "cut").mkdir()
    save_file(own_part(target, 1, 1).state_dict(), tmp_path / "cut" / "model.safetensors")
    (tmp_path / "cut" / "config.json").write_text(json.dumps(settings_of(target, 1, 1)))
    given = ["-m", "pair=local", f"pair.target={target.source}", f"pair.draft={tmp_path / 'cut'}", *SHORT,
             "method=pld,sps", "timed=0"]
    refused = command(*given[1:], *TWO, flags=["-m"])
    [line] = refused.err.splitlines()
    assert refused.status == 2 and "9 heads, 3 key-value heads" in line and "engine.devices=3" in line
    three = started([*given, "engine.parallel=tensor", "engine.devices=3"], tmp_path / "three")
    assert command(*given[1:], flags=["-m"], store=tmp_path / "one").status == 0
    finished(three)
    assert_same_tokens(samples_of(tmp_path / "three" / "store"), samples_of(tmp_path / "one"), target, prompts)


@pytest.mark.slow
@pytest.mark.parametrize("torchrun", [0, 2])
def test_a_killed_rank_ends_all_with_one_line(tmp_path: Path, torchrun: int) -> None:
    given = ["pair=tiny", "task=mini_gsm", "n=6", "method=sps", "decoding.max_new_tokens=24", "quality_batch=1",
             "timed=0", *TWO]
    victim = "sibling" if torchrun else "worker"
    process = started(given, tmp_path, torchrun=torchrun, module=("tests.helpers.dying", "1", victim))
    _, err = process.communicate()  # ends when every process that writes to it has ended
    lines = [line for line in err.splitlines() if line.startswith(("error: ", "Traceback", "rank "))]
    assert process.returncode == 1
    if not torchrun:  # which has a report of its own
        assert lines == ["error: engine.devices=2: rank 1: killed by signal 9; what is finished is stored, and the "
                         "same command resumes"], err
    before = samples_of(tmp_path / "store")
    finished(started(given, tmp_path))
    after = samples_of(tmp_path / "store")
    assert before.items() <= after.items() and len(after) == 12


@pytest.mark.parametrize(("overrides", "words"), [
    (["engine.devices=2"], ("engine.devices=2", "engine.parallel=tensor or layers")),
    (["engine.parallel=tensor"], ("engine.devices=1", "2 or more")),
    (["engine.parallel=tensor", "engine.devices=4"], ("2 key-value heads", "give engine.devices=2")),
    (["engine.parallel=pipeline"], ("engine.parallel=pipeline", "layers")),
])
def test_a_wrong_number_of_devices_is_one_line(command, overrides: list[str], words: tuple[str, ...]) -> None:
    result = command("pair=tiny", "method=pld", *overrides)
    [line] = result.err.splitlines()
    assert result.status == 2 and all(word in line for word in words), line


def test_torchrun_and_the_command_name_one_number(command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.setenv("WORLD_SIZE", "3")
    monkeypatch.setattr("bench.commands.command.ranks.dismiss_at_exit", lambda: None)
    for overrides in ([], TWO):
        result = command("pair=tiny", "method=pld", *overrides)
        [line] = result.err.splitlines()
        assert result.status == 2 and "torchrun has started 3 processes" in line


@pytest.mark.slow
def test_layers_on_two_devices_decode_the_tokens_of_one(command, tmp_path: Path) -> None:
    given = ["pair=tiny", *SHORT, "method=sps,eagle3,early_exit", "timed=1"]
    for store, spread in (("one", ()), ("two", ("engine.parallel=layers", "engine.devices=2"))):
        result = command(*given, *spread, "workers=1", flags=["-m"], store=tmp_path / store)
        assert result.status == 0, result.err
    one, two = (samples_of(tmp_path / store) for store in ("one", "two"))
    assert one.keys() == two.keys() and all(one[key].output_ids == two[key].output_ids for key in one)


def test_a_result_does_not_depend_on_the_number_of_devices() -> None:
    with composer() as hydra:
        one, *others = (hydra.point(["pair=tiny", *more]).cell for more in (
            [], TWO, ["engine.parallel=layers", "engine.devices=2"]))
    assert {other.name for other in others} == {one.name}
    assert one.rotation_key not in {other.rotation_key for other in others}, "but its times do"
