"""The cells of a store as results of EleutherAI's lm-evaluation-harness, with their samples.

    results_<date>.json          {"results": {task: {"alias": task, "exact_match,none": 0.75, …}}, "configs": …, …}
    samples_<task>_<date>.jsonl  {"doc_id": 0, "doc": {…}, "resps": [["…"]], "filtered_resps": ["…"], "filter": "none",
                                  "metrics": ["exact_match"], "exact_match": 1.0, …}

Source: lm-eval 0.4.13, lm_eval/loggers/evaluation_tracker.py (save_results_aggregated, save_results_samples) and
lm_eval/evaluator.py (the example of `log_samples`). `leeway-lm-eval --log_samples --output_path DIR` writes these files
by lm-eval's own code."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from results.exchange.base import Source, Written, write_objects
from results.store.files import replace_text
from results.store.records import json_text


def write(sources: Iterable[Source], folder: Path) -> Iterator[Written]:
    """Write a folder per cell into `folder`, as lm-eval writes one per model. Raises StoreError."""
    for source in sources:
        scored = Scored(source)
        task, date = re.sub(r"\W", "_", source.task), str(source.about.get("since") or "")[:19].replace(":", "-")
        date = date or "undated"
        yield write_objects(folder / source.name / f"samples_{task}_{date}.jsonl", scored.lines())
        results = folder / source.name / f"results_{date}.json"
        replace_text(results, json_text(scored.results(), indent=2) + "\n")
        yield Written(results, 1)


class Scored:
    """The lines of a cell, and the results computed from the lines written."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._values: dict[str, list[float]] = {}
        self._number = 0

    def lines(self) -> Iterator[dict[str, Any] | None]:
        """The samples. The store holds neither the prompt nor the reference: `doc` is the prompt's id, and `target`,
        `arguments`, `prompt_hash` and `target_hash` are left out."""
        for answer in self._source.answers():
            if not answer.scores or answer.texts is None:
                yield None
                continue
            doc = {"id": answer.id}
            text = "\n\n".join(answer.texts)
            for name, value in answer.scores.items():
                self._values.setdefault(name, []).append(value)
            digest = hashlib.sha256(json.dumps(doc, indent=2, ensure_ascii=False).encode()).hexdigest()
            yield {"doc_id": self._number, "doc": doc, "resps": [[text]],
                   "filtered_resps": [text if answer.answer is None else answer.answer], "filter": "none",
                   "metrics": list(answer.scores), "doc_hash": digest, **answer.scores}
            self._number += 1

    def results(self) -> dict[str, Any]:
        """The results file: means, and their standard errors as lm-eval computes them, sd ÷ √n."""
        task, about = self._source.task, self._source.about
        scores: dict[str, Any] = {"alias": task}
        for name, values in self._values.items():
            error = stdev(values) / math.sqrt(len(values)) if len(values) > 1 else "N/A"
            scores |= {f"{name},none": mean(values), f"{name}_stderr,none": error}
        decoding = about.get("decoding") or {}
        return {
            "results": {task: scores}, "group_subtasks": {task: []},
            "configs": {task: {"task": task, "output_type": "generate_until", "generation_kwargs": decoding}},
            "n-samples": {task: {"original": self._number, "effective": self._number}},
            "config": {"model": "leeway", "model_args": about, "random_seed": about.get("seed")},
            "git_hash": about.get("commit"), "model_source": "leeway", "model_name": self._source.name,
            "model_name_sanitized": self._source.name}
