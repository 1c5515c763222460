"""Hand-written rows in the format of each benchmark's published files, so that their loading is
proven without them."""

from __future__ import annotations

import base64
import json
import pickle
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

WORD_PROBLEMS = [
    {
        "question": f"A box holds {n} pens. How many pens do 500 boxes hold?",
        "answer": f"They hold {n}*500=<<{n}*500={n * 500}>>{n * 500} pens.\n#### {n * 500:,}",
    }
    for n in (2, 3, 4, 5, 6)
]
QUESTIONS = [
    {
        "question_id": 81 + n,
        "category": category,
        "turns": [f"Name {n + 2} rivers.", "Name their countries."],
        "reference": ["The Rhine flows north.", "Germany."],
    }
    for n, category in enumerate(("writing", "math", "math", "coding", "stem"))
]
FUNCTIONS = [
    {
        "task_id": f"HumanEval/{n}",
        "entry_point": f"add_{n}",
        "prompt": f'import math\n\n\ndef add_{n}(x: int) -> int:\n    """ Add {n} to x.\n'
        f"    >>> add_{n}(1)\n    {n + 1}\n"
        '    """\n',
        "canonical_solution": f"    return x + {n}\n",
        "test": (
            f"\n\nMETADATA = {{}}\n\n\ndef check(candidate):\n    assert candidate(1) == {n + 1}\n"
        ),
    }
    for n in (1, 2, 3, 4, 5)
]
NUMPY_TEST = (
    "import numpy as np\n\ndef check(candidate):\n    for x, y in [(1, {0}.0), (0.5, {0} - "
    "0.5)]:\n        out = candidate(x)\n        assert out == y or np.allclose(out, y, "
    "rtol=1e-07, atol=1e-6)\n"
)
PROBLEMS: list[dict[str, Any]] = [
    {
        "task_id": n,
        "text": f"Write a function to multiply a number by {n}.",
        "code": f"def times(a):\r\n  return a * {n}",
        "test_setup_code": "",
        "test_list": [f"assert times(2) == {2 * n}", f"assert times(0) == {0 * n}"],
        "challenge_test_list": [],
    }
    for n in (11, 12, 13, 14, 15)
]
OPTIONS = [
    {
        "question_id": 70 + n,
        "question": f"What is {n} + 1?",
        "options": list("123456789"),
        "answer": "ABCDEFGHI"[n],
        "answer_index": n,
        "cot_content": "",
        "category": "math",
        "src": "own",
    }
    for n in range(5)
]


def _hidden(cases: list[dict[str, str]]) -> str:
    return base64.b64encode(zlib.compress(pickle.dumps(json.dumps(cases)))).decode()


def _contest(n: int) -> dict[str, Any]:
    by_call = n % 2
    form = (
        {"input": "[1, 2]\n3", "output": "6", "testtype": "functional"}
        if by_call
        else {"input": "1 2 3\n", "output": "6\n", "testtype": "stdin"}
    )
    return {
        "question_id": f"abc_{n}",
        "question_content": "Add up the numbers.",
        "public_test_cases": json.dumps([form]),
        "starter_code": "class Solution:\n    def total(self, some, more):\n        "
        if by_call
        else "",
        "private_test_cases": _hidden([form]),
        "metadata": json.dumps({"func_name": "total"} if by_call else {}),
    }


def _message(n: int) -> dict[str, Any]:
    """A message that begins a conversation, as OpenAssistant/oasst1 has it."""
    return {
        "message_id": f"m{n}",
        "parent_id": None,
        "text": f"Name {n + 2} rivers.",
        "role": "prompter",
        "lang": "en",
        "deleted": False,
        "message_tree_id": f"m{n}",
    }


ARTICLES = [
    {
        "id": f"a{n}",
        "article": f"{n} ships left the port at dawn.",
        "highlights": f"{n} ships left port.",
    }
    for n in range(2, 7)
]
COMMON_SENSE = [
    {
        "id": f"c{n}",
        "question": "Where do fish live? ",
        "question_concept": "fish",
        "answerKey": "ABCDE"[n],
        "choices": {"label": list("ABCDE"), "text": ["trees", "water", "cups", "sand", "roofs"]},
    }
    for n in range(5)
]
KNOWLEDGE = [
    {
        "question": f"What is {n} + 1?",
        "subject": "arithmetic",
        "choices": ["1", "2", "3", "4"],
        "answer": n,
    }
    for n in (0, 1, 2, 3, 0)
]
CONTESTS = [_contest(n) for n in range(5)]
ROWS: Mapping[str, list[dict[str, Any]]] = {
    **dict.fromkeys(
        (
            "gsm8k",
            "gsm8k_eagle",
            "gsm8k_mars",
            "gsm8k_mars_release",
            "gsm8k_arc",
            "gsm8k_dropmatch",
        ),
        WORD_PROBLEMS,
    ),
    **dict.fromkeys(
        ("humaneval", "humaneval_completion", "humaneval_eagle", "humaneval_arc", "humaneval_mars"),
        FUNCTIONS,
    ),
    "humaneval_plus": [
        {**row, "test": NUMPY_TEST.format(n)} for n, row in enumerate(FUNCTIONS, start=1)
    ],
    "mbpp": PROBLEMS,
    "mbpp_plus": [
        {
            "task_id": row["task_id"],
            "prompt": row["text"],
            "code": row["code"],
            "test_imports": ["import math"],
            "test_list": row["test_list"],
            "test": "import numpy as np\n" + "\n".join(row["test_list"]),
        }
        for row in PROBLEMS
    ],
    **dict.fromkeys(("mt_bench", "mt_bench_eagle", "komt_bench", "spec_bench", "eagle"), QUESTIONS),
    "alpaca": [
        {
            "dataset": "own",
            "instruction": f"Name {n} birds.",
            "output": "A crow.",
            "generator": "text",
        }
        for n in range(2, 7)
    ],
    "oasst1": [
        *map(
            _message, range(5)
        ),  # left out: an answer, a later turn, another language, a deleted one
        {**_message(5), "parent_id": "m0", "role": "assistant"},
        {**_message(6), "parent_id": "m5"},
        {**_message(7), "lang": "es"},
        {**_message(8), "deleted": True},
    ],
    "alpaca_eagle": [
        {
            "instruction": f"Name {n} birds.",
            "input": "",
            "output": "A crow.",
            "text": "Below is an …",
        }
        for n in range(2, 7)
    ],
    **dict.fromkeys(("cnn_dm", "cnn_dm_eagle"), ARTICLES),
    **dict.fromkeys(("csqa", "csqa_fsd"), COMMON_SENSE),
    **dict.fromkeys(("mmlu", "mmlu_fsd", "mmlu_dropmatch"), KNOWLEDGE),
    **dict.fromkeys(("mmlu_pro", "mmlu_pro_arc"), OPTIONS),
    "ifeval": [
        {
            "key": 1000 + n,
            "prompt": "Write one line without commas.",
            "instruction_id_list": ids,
            "kwargs": kwargs,
        }
        for n, (ids, kwargs) in enumerate(
            [
                (["punctuation:no_comma"], [{}]),
                (
                    ["punctuation:no_comma", "length_constraints:number_words"],
                    [{}, {"relation": "at least", "num_words": 3}],
                ),
                (["detectable_format:number_highlighted_sections"], [{"num_highlights": 1}]),
                (["change_case:english_lowercase"], [{}]),
                (["startend:quotation"], [{}]),
            ]
        )
    ],
    **dict.fromkeys(("livecodebench", "livecodebench_v5", "livecodebench_v6"), CONTESTS),
    "aime24": [
        {
            "ID": f"2024-I-{n}",
            "Problem": f"Find ${n}+1$.",
            "Solution": rf"$\\boxed{{{n + 1}}}$",
            "Answer": n + 1,
        }
        for n in range(1, 6)
    ],
    "gpqa_diamond": [
        {
            "Record ID": f"rec{n}",
            "Question": f"What is {n} + 1?",
            "Correct Answer": f"{n + 1}\n",
            **{f"Incorrect Answer {i}": f" {n + 1 + i}" for i in (1, 2, 3)},
            "Subdomain": "arithmetic",
        }
        for n in range(5)
    ],
}
"""Task -> five rows."""


def write_mirror(folder: Path, task: Mapping[str, Any]) -> None:
    """A mirror of the repository that a task reads, with rows of its own, in the hub's layout: the
    files that the task names, or Parquet in two parts for each split, which README.md lists for the
    subset."""
    rows = ROWS[task["name"]]
    files = task["files"]
    if files is not None:
        names = [files] if isinstance(files, str) else list(files)
        for number, name in enumerate(names):
            own = rows[number :: len(names)]
            lines = "".join(json.dumps(row) + "\n" for row in own)
            text = json.dumps(own) if name.endswith(".json") else lines
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text, encoding="utf-8")
        return
    from datasets import Dataset, disable_progress_bars

    disable_progress_bars()
    subset, split = task["subset"] or "default", task["split"]
    (folder / subset).mkdir(parents=True, exist_ok=True)
    typed = Dataset.from_list(list(rows))
    for number in range(2):
        name = f"{split}-{number:05}-of-00002.parquet"
        typed.shard(2, number, contiguous=True).to_parquet(folder / subset / name)
    listed = [{"split": split, "path": f"{subset}/{split}-*.parquet"}]
    card = json.dumps({"configs": [{"config_name": subset, "data_files": listed}]})
    (folder / "README.md").write_text(f"---\n{card}\n---\n", encoding="utf-8")


def write_rows(folder: Path, name: str, rows: Iterable[Mapping[str, Any]] | None = None) -> Path:
    """The rows (a task's own when None) as a JSONL file."""
    path = folder / f"{name}.jsonl"
    path.write_text(
        "".join(json.dumps(row) + "\n" for row in (ROWS[name] if rows is None else rows)),
        encoding="utf-8",
    )
    return path
