"""Results of EleutherAI's lm-evaluation-harness with their samples.

    results_<date>.json          {"results": {task: {"alias": task, "exact_match,none": 0.75, …}}, "configs": …, …}
    samples_<task>_<date>.jsonl  {"doc_id": 0, "doc": {…}, "resps": [["…"]], "filtered_resps": ["…"], "filter": "none",
                                  "metrics": ["exact_match"], "exact_match": 1.0, …}

Source: lm-eval 0.4.13, lm_eval/loggers/evaluation_tracker.py (save_results_aggregated, save_results_samples) and
lm_eval/evaluator.py (the example of `log_samples`). `leeway-lm-eval --log_samples --output_path DIR` writes these files
by lm-eval's own code; this file writes them for the cells of a store."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from pydantic import NonNegativeInt

from results.exchange.base import Converter, Exchanged, ExchangeError, Read, Source, Written
from results.exchange.lines import LINE_BYTES, Fields, json_lines, parsed, write_objects
from results.exchange.plausible import MOST
from results.store.files import replace_text
from results.store.json_text import from_json, json_text
from results.store.reasons import one_line

NO_FILTER = "none"


class Line(Fields):
    """A line of a samples file; each name in `metrics` is another field: a number, or the parts of an aggregate."""

    doc_id: NonNegativeInt
    resps: list[Any]
    filtered_resps: list[Any]
    filter: str = NO_FILTER
    metrics: list[str]


class LMEval(Converter):
    about = "lm-eval results JSON with samples (JSONL)"
    divides = False  # each filter scores the same answers

    def read(self, file: Path) -> Iterator[Read]:
        """The samples of a samples file, or of all samples files beside a results file."""
        files = samples_beside(file) if file.suffix == ".json" else [file]
        for samples in files:
            task = _task(samples)
            seen: set[tuple[str, int]] = set()
            for place, data in json_lines(samples):
                try:
                    line = parsed(Line, data)
                    scores = {name: _score(name, data) for name in line.metrics if not isinstance(data.get(name), list)}
                except ValueError as error:
                    raise ExchangeError(f"{place}: {one_line(error)}") from error
                if (line.filter, line.doc_id) in seen:
                    raise ExchangeError(f"{place}: repeats doc_id {line.doc_id} under filter {line.filter}: remove one")
                seen.add((line.filter, line.doc_id))
                yield Exchanged(id=str(line.doc_id), category=f"{task}, {line.filter}", texts=_texts(line.resps),
                                scores=scores, extra=data)

    def write(self, sources: Iterable[Source], folder: Path) -> Iterator[Written]:
        """A folder per cell, as lm-eval writes one per model; for a cell imported from lm-eval only samples files."""
        for source in sources:
            if source.format == "lm_eval":
                yield from _as_imported(source, folder / source.name)
                continue
            scored = Scored(source)
            task, date = _plain(source.task), str(source.about.get("since") or "")[:19].replace(":", "-") or "undated"
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
            yield {"doc_id": self._number, "doc": doc, "resps": [[text]],
                   "filtered_resps": [text if answer.answer is None else answer.answer], "filter": NO_FILTER,
                   "metrics": list(answer.scores), "doc_hash": _hash(json.dumps(doc, indent=2, ensure_ascii=False)),
                   **answer.scores}
            self._number += 1

    def results(self) -> dict[str, Any]:
        """The results file: means, and their standard errors as lm-eval computes them, sd ÷ √n."""
        task, about = self._source.task, self._source.about
        scores: dict[str, Any] = {"alias": task}
        for name, values in self._values.items():
            error = stdev(values) / math.sqrt(len(values)) if len(values) > 1 else "N/A"
            scores |= {f"{name},{NO_FILTER}": mean(values), f"{name}_stderr,{NO_FILTER}": error}
        decoding = about.get("decoding") or {}
        return {
            "results": {task: scores}, "group_subtasks": {task: []},
            "configs": {task: {"task": task, "output_type": "generate_until", "generation_kwargs": decoding}},
            "n-samples": {task: {"original": self._number, "effective": self._number}},
            "config": {"model": "leeway", "model_args": about, "random_seed": about.get("seed")},
            "git_hash": about.get("commit"), "model_source": "leeway", "model_name": self._source.name,
            "model_name_sanitized": self._source.name}


def samples_beside(results: Path) -> list[Path]:
    """The samples files of a results file: those with its date. Raises ExchangeError where there is none."""
    try:
        if results.stat().st_size > LINE_BYTES:
            raise ExchangeError(f"{results}: larger than {LINE_BYTES >> 20} MiB; no results file is")
        data = from_json(results.read_bytes(), unique=True)
    except ValueError as error:
        raise error if isinstance(error, ExchangeError) else ExchangeError(
            f"{results}: is not JSON ({one_line(error)})") from error
    except OSError as error:
        raise ExchangeError(f"{results}: cannot be read: {error.strerror or error}") from error
    if not isinstance(data, dict) or not isinstance(data.get("results"), dict):
        raise ExchangeError(f"{results}: results: is missing; give a results file of lm-eval, or a samples file")
    date = results.stem.rpartition("_")[2]
    files = sorted(results.parent.glob(f"samples_*_{date}.jsonl"))
    if not files:
        raise ExchangeError(f"{results}: no samples_*_{date}.jsonl beside it: run lm-eval with --log_samples")
    return files


def _as_imported(source: Source, folder: Path) -> Iterator[Written]:
    """The samples as they were read, one file per task."""
    tasks = dict.fromkeys((answer.category or "").rpartition(",")[0] for answer in source.answers())
    for task in tasks:
        lines = (answer.extra for answer in source.answers() if (answer.category or "").rpartition(",")[0] == task)
        yield write_objects(folder / f"samples_{_plain(task)}_imported.jsonl", lines)


def _task(samples: Path) -> str:
    """The task that a samples file names: between the first and the last underscore."""
    name = samples.name
    named = name.startswith("samples_") and name.count("_") > 1
    return name[name.find("_") + 1:name.rfind("_")] if named else samples.stem


def _score(name: str, data: dict[str, Any]) -> float:
    value = data.get(name)
    if isinstance(value, bool | int | float) and -MOST <= value <= MOST:
        return float(value)
    raise ValueError(f"{name}: is listed in metrics and must be a number, not {str(value)[:20]}")


def _texts(resps: list[Any]) -> list[str] | None:
    """The generated text; None for log-likelihoods."""
    while isinstance(resps, list) and len(resps) == 1:
        resps = resps[0]
    return [resps] if isinstance(resps, str) else None


def _plain(name: str) -> str:
    return re.sub(r"\W", "_", name)


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
