"""The cells of a store as results of EleutherAI's lm-evaluation-harness, with their samples.

    results_<date>.json          {"results": {task: {"alias": task, "exact_match,none": 0.75, …}}, "configs": …, …}
    samples_<task>_<date>.jsonl  {"doc_id": 0, "doc": {…}, "resps": [["…"]], "filtered_resps": ["…"], "filter": "none",
                                  "metrics": ["exact_match"], "exact_match": 1.0, …}

Source: lm-eval 0.4.13, lm_eval/loggers/evaluation_tracker.py (save_results_aggregated, save_results_samples) and
lm_eval/evaluator.py (the example of `log_samples`). The store holds neither the prompt nor the reference: `doc` is the
prompt's id, and `target`, `arguments`, `prompt_hash` and `target_hash` are left out. `leeway-lm-eval --log_samples
--output_path DIR` writes these files by lm-eval's own code."""

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
from results.store.sample import Sample


def write(sources: Iterable[Source], folder: Path) -> Iterator[Written]:
    """Write a folder per cell into `folder`, as lm-eval writes one per model. Raises StoreError."""
    for source in sources:
        environment = source.folder.environment() or {}
        date = str(environment.get("since") or "")[:19].replace(":", "-") or "undated"
        rows = [_row(number, sample, source.metric) for number, (sample, _) in enumerate(source.answers())]
        path = folder / source.name / f"samples_{re.sub(r'[^0-9A-Za-z_]', '_', source.part('task'))}_{date}.jsonl"
        yield write_objects(path, rows)
        results = folder / source.name / f"results_{date}.json"
        replace_text(results, json_text(_results(source, rows, environment), indent=2) + "\n")
        yield Written(results, 1)


def _row(number: int, sample: Sample, metric: str) -> dict[str, Any]:
    text, doc = "\n\n".join(sample.texts), {"id": sample.id}
    scores = sample.details if sample.score is None else {metric: sample.score, **sample.details}
    digest = hashlib.sha256(json.dumps(doc, indent=2, ensure_ascii=False).encode()).hexdigest()
    return {"doc_id": number, "doc": doc, "resps": [[text]],
            "filtered_resps": [text if sample.answer is None else sample.answer], "filter": "none",
            "metrics": list(scores), "doc_hash": digest, **scores}


def _results(source: Source, rows: list[dict[str, Any]], environment: dict[str, Any]) -> dict[str, Any]:
    """The results file: means, and their standard errors as lm-eval computes them, sd ÷ √n."""
    task, config = source.part("task"), source.config
    scores: dict[str, Any] = {"alias": task}
    for name in dict.fromkeys(name for row in rows for name in row["metrics"]):
        values = [row[name] for row in rows if name in row]
        scores[f"{name},none"] = mean(values)
        scores[f"{name}_stderr,none"] = stdev(values) / math.sqrt(len(values)) if len(values) > 1 else "N/A"
    about = {"pair": source.part("pair"), **{name: config.get(name) for name in (
        "drafter", "rule", "draft", "decoding", "seed", "fingerprints")}, "packages": environment.get("packages")}
    return {
        "results": {task: scores}, "group_subtasks": {task: []},
        "configs": {task: {"task": task, "output_type": "generate_until",
                           "generation_kwargs": config.get("decoding") or {}}},
        "n-samples": {task: {"original": len(rows), "effective": len(rows)}},
        "config": {"model": "leeway", "model_args": about, "random_seed": config.get("seed")},
        "git_hash": (environment.get("git") or {}).get("commit"), "model_source": "leeway",
        "model_name": source.name, "model_name_sanitized": source.name}
