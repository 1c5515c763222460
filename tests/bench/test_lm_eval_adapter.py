"""lm-eval through the decode loop gives what lm-eval's own Hugging Face model gives, sample by
sample."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bench.config.paths import TINY
from tasks.mini import MiniTask
from tests.helpers.tables import rows

PROMPTS = 6


@pytest.fixture(scope="module")
def task(tmp_path_factory) -> dict[str, Any]:
    """An lm-eval task of the embedded pair's own word problems, with two stop strings."""
    path = tmp_path_factory.mktemp("rows") / "rows.jsonl"
    rows = [
        {"question": prompt.turns[0], "answer": prompt.reference["answer"]}
        for prompt in MiniTask("mini_gsm").prompts(PROMPTS)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return {
        "task": "own",
        "dataset_path": "json",
        "dataset_kwargs": {"data_files": {"test": str(path)}},
        "test_split": "test",
        "doc_to_text": "{{question}}",
        "doc_to_target": "{{answer}}",
        "output_type": "generate_until",
        "num_fewshot": 0,
        "generation_kwargs": {
            "until": ["Question:", "\n\n"],
            "do_sample": False,
            "max_gen_toks": 40,
        },
        "metric_list": [{"metric": "exact_match", "aggregation": "mean", "higher_is_better": True}],
    }


def run(model, task: dict[str, Any], chat: bool = True) -> dict[str, Any]:
    import lm_eval

    return lm_eval.simple_evaluate(
        model=model,
        tasks=[dict(task)],
        log_samples=True,
        bootstrap_iters=0,
        apply_chat_template=chat,
    )


def leeway(**overrides):
    from bench.lm_eval_adapter import LeewayLM

    return LeewayLM(**overrides)


@pytest.fixture
def small(pair) -> dict[str, str]:
    """Options that choose the small untrained pair."""
    return dict(line.split("=", 1) for line in pair)


def answers(model, *asked: tuple[str, int], **kwargs) -> list[str]:
    """What it answers to contexts, each with its limit of tokens."""
    from lm_eval.api.instance import Instance

    instances = [
        Instance("generate_until", {}, (context, {"max_gen_toks": limit, **kwargs}), number)
        for number, (context, limit) in enumerate(asked)
    ]
    return model.generate_until(instances, disable_tqdm=True)


@pytest.mark.slow
def test_scores_and_texts_equal_those_of_lm_evals_own_model(task):
    from lm_eval.models.huggingface import HFLM

    theirs_model = HFLM(
        pretrained=str(TINY / "target"), device="cpu", dtype="float32", batch_size=1
    )
    theirs = run(theirs_model, task)
    tiny = {"pair": "tiny", "method": "ar"}
    plain = leeway(**tiny)
    for name, ours in {
        "ar": plain,
        "sps, in a batch": leeway(**tiny | {"method": "sps"}, batch_size=4),
    }.items():
        results = run(ours, task)
        assert [s["resps"] for s in results["samples"]["own"]] == [
            s["resps"] for s in theirs["samples"]["own"]
        ], name
        assert results["results"]["own"] == theirs["results"]["own"]
    assert any(s["resps"][0][0] for s in theirs["samples"]["own"])
    choice = {
        **{key: task[key] for key in task if key != "generation_kwargs"},
        "task": "choice",
        "output_type": "multiple_choice",
        "doc_to_choice": ["12", "15", " 7", "a lot"],
        "doc_to_target": "0",
        "metric_list": [{"metric": "acc", "aggregation": "mean", "higher_is_better": True}],
    }
    ours, theirs = run(plain, choice), run(theirs_model, choice)
    for own, other in zip(ours["samples"]["choice"], theirs["samples"]["choice"], strict=True):
        for (a, greedy_a), (b, greedy_b) in zip(
            own["filtered_resps"], other["filtered_resps"], strict=True
        ):
            assert float(a) == pytest.approx(float(b), abs=1e-3) and greedy_a == greedy_b


DECIDED = rows("""
task | mini_gsm | task=mini_gsm: lm-eval decides this
decoding.temperature | 1 | decoding.temperature=1: lm-eval decides this
batch_size | auto | batch_size=auto: must be a number
rule.thetta | 1 | rule.thetta: unknown key
""")


@pytest.mark.parametrize(("key", "value", "error"), DECIDED)
def test_what_lm_eval_decides_is_refused(small, key, value, error):
    with pytest.raises(ValueError, match=error):
        leeway(**small, **{key: value})


def test_stop_strings_and_repeats(small):
    model = leeway(**small, method="mars")
    asked = ("Tom has", 24), ("Tom has", 24), ("Two pens", 24)
    greedy = answers(model, *asked, do_sample=False)
    assert greedy[0] == greedy[1]
    stop = greedy[0][3:5]
    stopped = answers(model, *asked, do_sample=False, until=[stop])
    assert stopped[0] == greedy[0][: greedy[0].find(stop)]
    sampled, again = (answers(model, *asked, do_sample=True, temperature=1.0) for _ in range(2))
    assert sampled[0] != sampled[1] and sampled == again


def test_special_stop_strings_and_marks_of_a_reasoning_are_passed_on(small):
    model = leeway(**small, method="ar", think_end_token="</think>")
    special = model.tokenizer.all_special_tokens[0]
    _, limits = model._wanted({"until": [special, "", "\n"], "max_gen_toks": 8})
    assert {special, "\n"} <= set(limits.stop) and "" not in limits.stop
    assert limits.think_end == ("</think>",)


def test_a_long_prompt_is_cut_to_what_its_answer_leaves(small, caplog):
    """512 positions: as lm-eval's own model, the last 512 - max_gen_toks tokens are kept, and that
    is said."""
    model, context = leeway(**small, method="ar"), "Tom has two pens. " * 40
    for length in (512, 640):
        said = rf"^max_gen_toks={length}: leaves no room for a prompt in .* 512 pos"
        with pytest.raises(ValueError, match=said):
            answers(model, (context, 20), (context, length))
    assert not caplog.records, "nothing is decoded before all are checked"
    assert answers(model, (context, 480)) == answers(model, ("Sue has no pen. " + context, 480)), (
        "what comes before the last 32 is not read"
    )
    size = len(model.tok_encode(context))
    said = f"a prompt of {size} tokens is truncated to its last 32: max_gen_toks=480"
    assert said in caplog.records[0].getMessage()
