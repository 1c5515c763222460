"""`python -m bench.audit`: texts on file, of servers, of transformers and of Leeway."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from bench.audit import main
from bench.run.auditing.server import Reply
from tests.helpers.completions import CompletionServer, Manners

N = 12


@pytest.fixture(scope="module")
def started(pair_folder) -> Iterator[CompletionServer]:
    server = CompletionServer(str(pair_folder / "target"))
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture
def server(started) -> CompletionServer:
    started.manners = Manners()
    return started


@pytest.fixture
def audit(pair, tmp_path, capsys) -> Callable[..., dict[str, Any]]:
    """Run the command on the small pair; its audit.json with what was printed. Any number of tokens
    suffices, unless said otherwise."""

    def run(*words: str, status: int = 0, folder: Path = tmp_path / "out") -> dict[str, Any]:
        common = [*pair, f"n={N}", "decoding.max_new_tokens=8", "detect=99", f"output.dir={folder}"]
        keys = {word.partition("=")[0] for word in words}
        common = [word for word in common if word.partition("=")[0] not in keys]
        ended = main([*common, "wait_s=0", "retries=1", *words])
        printed = capsys.readouterr()
        assert ended == status, printed.err + printed.out
        file = folder / "audit.json"
        report = json.loads(file.read_text()) if file.exists() else {}
        return {**report, "out": printed.out, "err": printed.err}

    return run


def asking(server: CompletionServer) -> list[str]:
    return [f"url={server.url}", "model=own"]


def test_a_server_that_is_right(audit, server, tmp_path):
    report = audit(*asking(server))
    assert report["verdict"] == "consistent" and "lossless" not in report["out"]
    assert report["prompts"] == N == report["answers"] and report["notes"] == []
    assert abs(report["z"]) < 3 and report["low"] < report["bound"] < report["high"]
    low, high = report["temperature_interval"]
    assert low < report["temperature"] < high and low < 1.1 and high > 0.9
    assert len(server.manners.asked) == N + 1, "the first is asked twice, to see if it heeds seeds"
    body = server.manners.asked[0]
    assert body["top_p"] == 1 and body["top_k"] == 0 and body["temperature"] == 1
    again = audit(*asking(server))
    assert len(server.manners.asked) == N + 1, "all answers are on file"
    assert again["z"] == report["z"]
    texts = audit(f"texts={tmp_path / 'out' / 'answers.jsonl'}", folder=tmp_path / "again")
    for name in ("z", "bound"):  # the file has the order in which answers came
        assert texts[name] == pytest.approx(report[name])
    other = audit(*asking(server), "seed=1", status=2)
    assert "holds answers of another seed: give another output.dir" in other["err"]


def test_a_temperature_and_a_seed_that_are_ignored(audit, server):
    server.manners = Manners(temperature=0.4, seed=False)
    report = audit(*asking(server), "concurrency=1", status=1)  # the order decides what it draws
    assert report["verdict"] == "not lossless" and report["z"] < -3
    assert report["temperature_interval"][1] < 0.7
    assert report["notes"] == ["it ignores the seed: its answers cannot be asked for again"]
    assert len(report["worst"]) == 10 and "furthest from the target" in report["out"]


@pytest.mark.parametrize("manners", [{"ids": "token_id:"}, {"ids": "content"}, {"stream": True}])
def test_token_ids_in_each_form(audit, server, tmp_path, manners):
    plain = audit(*asking(server))
    server.manners = Manners(**manners)
    assert audit(*asking(server), folder=tmp_path / "other")["z"] == plain["z"]


def test_token_ids_by_the_texts_of_tokens():
    choice = {"text": "one two", "logprobs": {"tokens": ["one", " two"]}}
    reply = Reply.of({"choices": [choice]})
    assert reply.ids({"one": 4, " two": 9}) == [4, 9]
    assert reply.ids({"one": 4}) is None, "two tokens have the text of the other"
    choice["logprobs"] = {"tokens": ["one", "bytes:\\xe2"]}
    assert Reply.of({"choices": [choice]}).ids({"one": 4}) is None
    for plain in ({}, {"choices": []}, {"choices": [{"text": None}]}):
        with pytest.raises((LookupError, TypeError)):
            Reply.of(plain)


@pytest.mark.parametrize(
    ("manners", "words", "complaint"),
    [
        (
            {"ids": "", "takes_ids": False, "takes_more": False},
            "",
            "answers are text whose tokens are not known",
        ),
        ({"template": (5, 6)}, "", "puts a template or tokens of its own around prompts"),
        ({"cut_prompt": 4}, "", "it cut the prompt to 4 of"),
        ({"hangs": True}, "timeout_s=0.2 retries=0", "no reply from own (timed out"),
        ({}, "n=4", "4 prompts have answers; give at least 10"),
    ],
)
def test_what_cannot_be_judged(audit, server, manners, words, complaint):
    server.manners = Manners(**manners)
    [line] = audit(*asking(server), *words.split(), status=2)["err"].splitlines()
    assert complaint in line


def test_a_server_that_dies_is_asked_for_the_rest(audit, server, tmp_path):
    server.manners.dies_after = 7
    report = audit(*asking(server), "concurrency=1", status=2)
    [line] = report["err"].splitlines()
    assert "6 answers are kept, and the same command asks for the others" in line
    assert not (tmp_path / "out" / "audit.json").exists()
    server.manners.dies_after = float("inf")
    assert audit(*asking(server))["answers"] == N
    assert len(server.manners.asked) == N + 2  # the first of the second run is asked twice, too


def test_a_control_takes_out_what_both_share(audit, server):
    server.manners.temperature = 0.6
    words = [*asking(server), f"control_url={server.url}", "samples=3"]
    report = audit(*words)
    assert report["verdict"] == "consistent" and report["control"].startswith("url=")
    assert report["bound"] == pytest.approx(0, abs=1e-9), "the same seeds: the same answers"


@pytest.mark.parametrize("way", ["assisted", "prompt_lookup"])
def test_transformers(audit, way):
    """`plain`: as all that are made below."""
    report = audit(f"transformers={way}")
    assert report["verdict"] == "consistent" and report["answers"] == N


def test_transformers_that_are_lossy(audit):
    words = "transformers=assisted +arguments.assistant_ensemble_weight=0.3 samples=2"
    assert audit(*words.split(), status=1)["verdict"] == "not lossless"


def test_a_rule_of_leeway_has_its_exact_distortion_beside_the_bound(audit):
    assert audit("n=20")["exact"] == pytest.approx(0, abs=1e-6)
    report = audit("n=40", "rule=random", "rule.rate=0.5", status=1)
    assert report["exact"] > report["low"] and report["verdict"] == "not lossless"


def test_greedy_decoding(audit, tmp_path):
    report = audit("decoding.temperature=0")
    assert report["z"] is None and report["lost"] == 0
    assert "consistent with greedy decoding" in report["out"]
    audit("transformers=plain", folder=tmp_path / "texts")
    texts = f"texts={tmp_path / 'texts' / 'answers.jsonl'}"
    wrong = audit(texts, "decoding.temperature=0", folder=tmp_path / "wrong", status=1)
    assert wrong["outside"] > 0 and wrong["p"] == 0 and wrong["lost"] > 0


def test_too_few_tokens_to_see_what_is_asked_for(audit):
    report = audit("transformers=plain", "detect=0.05", status=2)
    assert report["verdict"] == "too few tokens" and "give more prompts" in report["out"]


def test_lines_of_a_file(audit, tmp_path):
    """Prompts of the task by their ids, a text as a prompt, and a torn last line."""
    made = audit("transformers=plain", folder=tmp_path / "made")
    assert made["verdict"] == "consistent" and made["answers"] == N
    made = [json.loads(line) for line in (tmp_path / "made/answers.jsonl").open()]
    file = tmp_path / "texts.jsonl"
    bare = [{name: row[name] for name in ("id", "output_ids", "finish")} for row in made]
    file.write_text("".join(json.dumps(row) + "\n" for row in bare) + '{"id": "torn')
    whole = audit(f"texts={tmp_path / 'made/answers.jsonl'}")
    assert audit(f"texts={file}")["z"] == whole["z"]
    rows = [{"id": str(number), "prompt": "One two", "text": "three"} for number in range(N)]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    report = audit(f"texts={file}", status=1)
    assert "no answer holds an end token" in report["out"]
