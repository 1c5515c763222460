"""Files that a user is given: broken, nested without end, or larger than they look. Each is one line, soon."""

from __future__ import annotations

import gzip
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bench.run.console import console
from methods.engine.source import ModelError
from methods.engine.texts import check_same_vocabulary
from results.store.errors import one_line, printable
from tasks.base import TaskError
from tasks.sources import Source
from tests.helpers.summaries import written

DEEP = "[" * 100_000
STEERING = "\x1b[2J\x1b]0;owned\x07\x9b31m\u202eabc\u2066\r\x00\x7f\u2028\ud800"


def only_line(result) -> str:
    """The line of a refused command."""
    [line] = result.err.splitlines()
    assert result.status == 2 and line.startswith("error: ")
    return line


def test_a_file_that_unpacks_without_end(tmp_path: Path) -> None:
    bomb = tmp_path / "rows.jsonl.gz"
    with gzip.open(bomb, "wb") as file:
        for _ in range(96):
            file.write(bytes(1 << 20))
    with pytest.raises(TaskError, match="which no file of rows does"):
        list(Source(path=bomb).rows("rows"))
    with gzip.open(bomb, "wt") as file:
        file.writelines(json.dumps({"id": number, "question": "How many apples?"}) + "\n" for number in range(100_000))
    assert sum(1 for _ in Source(path=bomb).rows("rows")) == 100_000, "rows that repeat themselves are rows"


def gzipped(path: Path) -> None:
    with gzip.open(path, "wb") as file:
        file.write(b"question\n")
        for _ in range(96):
            file.write(b"x" * (1 << 20))


def in_one_run(path: Path) -> None:
    """One value in 80 million rows."""
    pq.write_table(pa.table({"question": pa.repeat(pa.scalar(True), 80_000_000)}), path)


def of_one_word(path: Path) -> None:
    """One word of 100,000 letters in every row."""
    words = pa.DictionaryArray.from_arrays(pa.array([0] * 2000, pa.int32()), pa.array(["x" * 100_000]))
    pq.write_table(pa.table({"question": words}), path, store_schema=False)


@pytest.mark.parametrize(("name", "make"), [("csv.gz", gzipped), ("parquet", in_one_run), ("parquet", of_one_word)])
def test_a_table_that_unpacks_without_end(tmp_path: Path, name: str, make: Callable[[Path], None]) -> None:
    bomb = tmp_path / f"rows.{name}"
    make(bomb)
    assert bomb.stat().st_size < 1 << 20
    with pytest.raises(TaskError, match="which no file of rows does"):
        list(Source(path=bomb).rows("rows"))


def test_tables_that_repeat_themselves_are_rows(tmp_path: Path) -> None:
    frame = pd.DataFrame({"id": range(50_000), "question": "How many apples?"})
    frame.to_parquet(tmp_path / "rows.parquet")
    frame.to_csv(tmp_path / "rows.csv.gz", index=False)
    for name in ("rows.parquet", "rows.csv.gz"):
        rows = list(Source(path=tmp_path / name).rows("rows"))
        assert len(rows) == 50_000 and rows[7] == {"id": 7, "question": "How many apples?"}


def test_a_table_is_packed_by_gzip_alone(tmp_path: Path) -> None:
    (tmp_path / "rows.csv.xz").write_bytes(b"x")
    with pytest.raises(TaskError, match="not a file of rows"):
        list(Source(path=tmp_path / "rows.csv.xz").rows("rows"))


class Words:
    """A tokenizer of these words, the first of them special."""

    all_special_ids = (0,)

    def __init__(self, *words: str) -> None:
        self.added_tokens_decoder: dict[int, str] = {}
        self.words = words

    def get_vocab(self) -> dict[str, int]:
        return {word: index for index, word in enumerate(self.words)}


class Model:
    def __init__(self, source: str, tokenizer) -> None:
        self.source, self.tokenizer = source, tokenizer


def test_a_draft_with_other_tokens_under_the_same_ids() -> None:
    target = Model("big", Words("<s>", "the", "cat", "sat"))
    for alike in (Words("<s>", "the", "cat", "sat"), Words("<bos>", "the", "cat", "sat"), Words("<s>", "the", "cat"),
                  None):
        check_same_vocabulary(target, Model("small", alike))
    with pytest.raises(ModelError, match="2 of 3 ids name other tokens, the first of them 1: 'cat' in place of 'the'"):
        check_same_vocabulary(target, Model("small", Words("<s>", "cat", "the", "sat")))


def test_such_a_draft_fails_its_cells_alone(command, pair_folder: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    shutil.copytree(pair_folder / "draft", other)
    tokens = json.loads((other / "tokenizer.json").read_text())
    vocabulary = tokens["model"]["vocab"]
    first, second = list(vocabulary)[10:12]
    vocabulary[first], vocabulary[second] = vocabulary[second], vocabulary[first]
    (other / "tokenizer.json").write_text(json.dumps(tokens))
    result = command(f"pair.draft={other}", "method=sps,pld", flags=["-m"])
    [line] = result.err.splitlines()
    assert result.status == 1 and "2 of" in line and "ids name other tokens" in line
    assert [written(cell) is None for cell in result.store.cells()].count(True) == 1


@pytest.mark.parametrize(("name", "text"), [
    ("failure.json", "[]"), ("failure.json", "{}"), ("failure.json", '{"reason": 3}'), ("failure.json", DEEP),
    ("environment.json", "[]"), ("environment.json", "{}"), ("cell.yaml", "- 1"), ("cell.yaml", "[" * 5000)],
    ids=lambda value: value[:16])
def test_files_of_the_store_in_another_shape(command, name: str, text: str) -> None:
    file = command("method=pld", "n=1").cell.path / name
    file.write_text(text)
    line = only_line(command("method=pld", "n=1"))
    assert line.startswith(f"error: {file} is no") and "remove it to write it again" in line
    file.unlink()
    assert command("method=pld", "n=1").status == 0
    assert name in ("failure.json", "environment.json") or file.exists(), "it is written again"


def test_nothing_printed_steers_the_terminal(command, tmp_path: Path) -> None:
    assert printable("tab\tline\nτ ≥ 1 “é” 漢") == "tab\tline\nτ ≥ 1 “é” 漢"
    assert one_line(ValueError(STEERING)) == printable(" ".join(STEERING.split())) and "\\x1b" in one_line(STEERING)
    file = tmp_path / "rows.jsonl"
    file.write_text(json.dumps({"id": STEERING[:-1], "messages": [{"role": "user", "content": "apples " * 600}]}))
    result = command("task=prompts", f"task.path={file}", "method=pld,ar", flags=["-m"])
    assert result.status == 1 and "prompts failed; first" in result.err
    assert printable(result.out) == result.out and printable(result.err) == result.err


def test_the_console_prints_brackets_and_colons_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    console().print(STEERING, "[/bold] :smile:")
    printed = capsys.readouterr().out
    assert printable(printed) == printed and "[/bold] :smile:" in printed and "\\x1b[2J" in printed


def test_a_sweep_of_millions_of_points(command) -> None:
    assert "more than 10000 points" in only_line(command("seed=range(1,100000000)", flags=["-m"]))
    assert "more than 10000 points" in only_line(command("seed=range(0,200)", "n=range(1,200)", flags=["-m"]))
