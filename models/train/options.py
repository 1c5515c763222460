"""What the training commands' options share: a pair, a task, an engine, and where results and work
go."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from rich.console import Console
from rich.progress import track

from bench.config.engine import EngineOptions
from bench.config.identity import are_own, digest
from bench.config.paths import PROJECT
from bench.config.schema import Pair
from bench.config.section import Named, Section, parse
from bench.run.models import load_language_model, use_threads
from methods.engine.fingerprints import fingerprint
from results.store.errors import redacted_plain
from tasks import registry
from tasks.base import Prompt, Task, TaskOptions

if TYPE_CHECKING:
    from methods.engine.language_model import LanguageModel


class PairOptions(Section):
    """Options of a command that runs a pair's models on a task.

    pair    where the models are.
    task    where the prompts come from.
    engine  device, dtype and threads.
    out     the file to write.
    work    folder of intermediate results, for resuming.
    """

    pair: Pair
    task: Named[TaskOptions]
    engine: EngineOptions
    out: Path
    work: Path

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Self:
        """The typed options of a composed configuration. Raises ValueError, one line."""
        sections = {
            "pair": parse(Pair, config, "pair"),
            "engine": parse(EngineOptions, config, "engine"),
            "task": parse(registry.options, config, "task", registry.names(config.get("task"))),
        }
        options = parse(cls, {**config, **sections}, "")
        options.engine.check_device()
        return options

    def load_task(self) -> Task:
        """Raises TaskError."""
        task = registry.build(self.task.name, self.task.options)
        if task.runs_programs:
            checkpoints = [self.pair.checkpoint(role) for role in ("target", "draft")]
            task.own_models = are_own(
                fingerprint(each.source, each.revision) for each in checkpoints
            )
        return task

    def map_prompts(
        self,
        identity: dict[str, Any],
        prompts: Sequence[Prompt],
        function: Callable[[Prompt], list[Any]],
        title: str,
    ) -> list[tuple[str, list[Any]]]:
        """(prompt id, result of `function`) in order, as `map_batches`."""
        return map_batches(self.work, identity, prompts, lambda batch: [function(batch[0])], title)

    @staticmethod
    def provenance_name(model: LanguageModel) -> str:
        """A model's source as written into a file that travels: a folder of the checkout is named
        relative to it."""
        source = Path(model.source)
        if source.is_absolute() and source.is_relative_to(PROJECT):
            return str(source.relative_to(PROJECT))
        return model.source

    def load_model(self, role: str) -> LanguageModel:
        """The pair's model in a role, target or draft. Raises ValueError, ModelError."""
        use_threads(self.engine)
        return load_language_model(self.pair, self.engine, role)


def map_batches(
    work: Path,
    identity: dict[str, Any],
    prompts: Sequence[Prompt],
    function: Callable[[Sequence[Prompt]], list[Any]],
    title: str,
    size: int = 1,
) -> list[tuple[str, Any]]:
    """(prompt id, result) in order; `function` gives the results of at most `size` prompts. Results
    of earlier runs are reused.

    They are kept in `work`/<digest of identity>.jsonl: `identity`, without secrets, on the first
    line, then one result (plain JSON data) a line."""
    file = work / f"{digest(identity)}.jsonl"
    results = _read(file)
    work.mkdir(parents=True, exist_ok=True)
    with file.open("a", encoding="utf-8") as out:
        if out.tell() == 0:
            out.write(json.dumps(redacted_plain(identity)) + "\n")
        missing = [prompt for prompt in prompts if prompt.id not in results]
        batches = [missing[start : start + size] for start in range(0, len(missing), size)]
        for batch in track(
            batches, title, console=Console(stderr=True), disable=not sys.stderr.isatty()
        ):
            for prompt, result in zip(batch, function(batch), strict=True):
                results[prompt.id] = result
                out.write(json.dumps({"id": prompt.id, "found": result}) + "\n")
            out.flush()
    return [(prompt.id, results[prompt.id]) for prompt in prompts]


def _read(file: Path) -> dict[str, list[Any]]:
    """Prompt id -> result of what `file` holds; the torn last line of a killed process is cut
    off."""
    if not file.exists():
        return {}
    lines = file.read_bytes().splitlines(keepends=True)
    whole = [line for line in lines if line.endswith(b"\n")]
    if len(whole) < len(lines):
        file.write_bytes(b"".join(whole))
    rows = [json.loads(line) for line in whole[1:]]
    return {row["id"]: row["found"] for row in rows}
