"""n=auto: the number of prompts follows from the samples, and from nothing else."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from results.metrics.looks import level, widened


@pytest.fixture
def forty(tmp_path: Path) -> list[str]:
    """A task of forty prompts, so that there are looks at 32 and at all of them."""
    file = tmp_path / "forty.jsonl"
    file.write_text("".join(json.dumps({"id": f"p{i:02}", "prompt": f"Count to {i}."}) + "\n" for i in range(40)))
    return ["task=prompts", f"task.path={file}", "decoding.max_new_tokens=6", "decoding.temperature=1", "timed=2"]


def last_line(result) -> dict:
    """The summary, without the digest of the samples file, which may hold more prompts, and without what comes from the
    profile, which the latest timed pass writes."""
    profiled = ("samples", "phases", "efficiency", "ideal", "roofline", "_share", "cycle_ms", "forward_ms", "head_ms")
    return {name: value for name, value in result.last_line.items() if not any(part in name for part in profiled)}


@pytest.mark.slow
def test_prompts_are_added_until_the_interval_is_narrow(command, forty, tmp_path: Path) -> None:
    wide = command("method=sps", *forty, "n=auto", "half_width.tau=0.9", "summary=json")
    assert wide.status == 0 and len(wide.cell.samples()) == 32
    shown, stored = last_line(wide), wide.cell.summary()
    assert shown["n"] == stored.n == 32 and shown["timed"] == 2
    answered = sorted(wide.cell.good_samples(), key=lambda sample: sample.id)
    assert tuple(shown["tau_ci95"]) == widened(answered, False, level(40))["tau"][1]
    assert shown["tau_ci95"][0] < stored.tau_ci95[0], "widened for two looks; the store has the interval of 32 prompts"
    narrow = command("method=sps", *forty, "n=auto", "half_width.tau=0.001")
    assert narrow.status == 0 and narrow.cell.key == wide.cell.key and len(narrow.cell.samples()) == 40
    again = command("method=sps", *forty, "n=auto", "half_width.tau=0.9", "summary=json")
    assert last_line(again) == shown, "as if no further prompt had ever been decoded"
    other = command("method=sps", *forty, "n=auto", "half_width.tau=0.9", "workers=2", "quality_batch=5",
                    store=tmp_path / "other")
    assert len(other.cell.samples()) == 32
    tokens, others = ({one.id: one.output_ids for one in result.cell.good_samples()} for result in (again, other))
    assert others == {prompt: ids for prompt, ids in tokens.items() if prompt in others}


@pytest.mark.parametrize(("given", "said"), [
    (("n=auto",), "half_width.tau=0.02"),
    (("n=8", "half_width.tau=0.02"), "n=auto"),
    (("n=auto", "half_width.tau=0"), "half_width.tau"),
    (("n=auto", "half_width.nll=0.1"), "half_width.nll"),
    (("n=many",), "n="),
])
def test_wrong_widths_are_refused(command, given, said: str) -> None:
    result = command("method=sps", "task=mini_gsm", *given)
    assert result.status == 2 and said in result.err and len(result.err.splitlines()) == 1
