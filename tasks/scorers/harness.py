"""Exact match as in lm-eval, computed with the filters and the metric, or the function, of one of
its tasks.

`rules` is a task file of lm-eval (below lm_eval/tasks): `filter_list` extracts the answer,
`metric_list` compares it. `filters` adds filters in the same notation. The scores of all filters
are recorded; `filter` selects the main one. A task whose `process_results` compares has no filters:
`filter` is then left out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from runpy import run_path
from typing import Any, ClassVar, Literal

from pydantic import Field

from tasks.base import Reference, Score, TaskError
from tasks.scorers.base import Scorer

INVALID = "[invalid]"  # result of lm-eval's filters without a match
LABEL = re.compile(r"(\*\*|__)([Aa]nswer)\s*(?::\s*\1|\1\s*:)\s*")
"""A label in bold; the filters of a task's YAML know it plain."""
Steps = tuple[dict[str, Any], ...]


class Harness(Scorer):
    metric: ClassVar[str] = "exact_match"

    name: Literal["lm_eval"]
    rules: str
    filter: str | None = None
    filters: dict[str, Steps] = Field(default_factory=dict)

    def check_options(self) -> None:
        if self.filter is None:
            own_comparison(self.rules)
        else:
            self._filters()

    def _score(self, reference: Reference, texts: Sequence[str]) -> Score:
        """1 if the answer extracted by `filter` equals the target; the details hold the score of
        each filter. Without `filter` the score that the task's own function gives."""
        if self.filter is None:
            return Score(
                float(
                    own_comparison(self.rules)({"answer": reference["target"]}, [texts[0]])[
                        "exact_match"
                    ]
                )
            )
        plain = LABEL.sub(r"\2: ", texts[0])
        extracted = {
            name: extract(steps, plain if name in self.filters else texts[0], reference)
            for name, steps in self._filters().items()
        }
        options = rules(self.rules)["metric"]
        right = {
            name: exact_match(answer, reference["target"], options)
            for name, answer in extracted.items()
        }
        answer = extracted[self.filter]
        return Score(right[self.filter], None if answer == INVALID else answer, right)

    def _filters(self) -> dict[str, Steps]:
        """Name -> filter, those of lm-eval and of `filters`. Raises TaskError if `filter` is not
        among them."""
        filters = {**rules(self.rules)["filters"], **self.filters}
        if self.filter not in filters:
            raise TaskError(
                f"task.scorer.filter={self.filter}: unknown; there are {', '.join(filters)}"
            )
        return filters


def extract(steps: Sequence[Mapping[str, Any]], text: str, doc: Mapping[str, Any]) -> str:
    """Apply lm-eval's filters to one text."""
    import lm_eval.filters  # noqa: F401  registers them
    from lm_eval.api.registry import get_filter

    texts: Any = [[text]]
    for step in steps:
        options = {key: value for key, value in step.items() if key != "function"}
        texts = list(get_filter(step["function"])(**options).apply(texts, [doc]))
    return texts[0] if isinstance(texts[0], str) else texts[0][0]


def exact_match(answer: str, target: str, options: Mapping[str, Any]) -> float:
    from lm_eval.api.metrics import exact_match_hf_evaluate

    return float(exact_match_hf_evaluate([answer], [target], **options)["exact_match"])


@cache
def own_comparison(name: str) -> Callable[[dict[str, Any], list[str]], Mapping[str, float]]:
    """`process_results` of one of lm-eval's tasks. Raises TaskError where it has none."""
    named = task_file(name, "task.scorer.rules=").get("process_results")
    if named is None:
        raise TaskError(
            f"task.scorer.rules={name}: its task compares by filters; give task.scorer.filter=, "
            f"one of {', '.join(rules(name)['filters'])}"
        )
    file, _, function = str(named).rpartition(".")
    compare: Callable[[dict[str, Any], list[str]], Mapping[str, float]] = run_path(f"{file}.py")[
        function
    ]
    return compare


@cache
def rules(name: str) -> dict[str, Any]:
    """`filters` (name -> steps) and the options of `exact_match` of one of lm-eval's tasks. Raises
    TaskError."""
    plain = task_file(name, "task.scorer.rules=")
    wanted = ("regexes_to_ignore", "ignore_case", "ignore_punctuation", "ignore_numbers")
    for metric in plain.get("metric_list", []):
        if metric["metric"] == "exact_match":
            filters = {
                entry["name"]: tuple(entry["filter"]) for entry in plain.get("filter_list", [])
            }
            return {
                "filters": filters,
                "metric": {key: metric[key] for key in wanted if key in metric},
            }
    raise TaskError(
        f"task.scorer.rules={name}: lm-eval's task has no exact_match; give one that generates "
        "answers"
    )


@cache
def task_file(name: str, key: str = "task.shots.source=lm_eval:") -> dict[str, Any]:
    """A task file of the installed lm-eval, its Python functions left as names. `key` precedes its
    name in messages. Raises TaskError."""
    import lm_eval
    import yaml

    tasks = Path(lm_eval.__file__).parent / "tasks"
    # to import lm_eval.tasks takes a second
    load_yaml = run_path(str(tasks / "_yaml_loader.py"))["load_yaml"]
    path = tasks / name
    if not path.is_file():
        raise TaskError(
            f"{key}{name}: lm-eval has no such task file; give one such as gsm8k/gsm8k.yaml"
        )
    try:
        task: dict[str, Any] = load_yaml(path, resolve_func=False)
    except (yaml.YAMLError, ValueError) as error:
        raise TaskError(f"{key}{name}: no task file; give one such as gsm8k/gsm8k.yaml") from error
    return task
