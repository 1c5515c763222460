"""Determinism: the tokens, text and score of a prompt do not depend on how the run is cut up."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from bench.config.compose import composer
from bench.config.identity import digest
from bench.config.paths import CONF
from bench.config.settings import Settings
from results.store.cells import Store
from tests.attack import warm
from tests.attack.part import Field, Trial

N, LIMIT = 3, 1800.0
TEMPERATURES = (0, 1)
CHANGES = {"batch": f"batch={N}", "threads": "engine.threads=2", "workers": "workers=2",
           "quality batch": "quality_batch=2"}
"""Ways of running that one setting chooses, and that setting."""
VARIANTS = ("order", "restarts", "processes", *(name for name, change in CHANGES.items() if change.partition("=")[0]
                                                in {"batch", "engine.threads", *Settings.model_fields}))
"""In the reverse order; prompt by prompt in separate runs; a process for each method, several at once on one store."""


def methods(temperature: float) -> list[str]:
    """The methods that the embedded pair can run at this temperature."""
    with composer() as hydra:
        names = sorted(path.stem for path in (CONF / "method").glob("*.yaml"))
        return [name for name in names
                if hydra.candidate([f"method={name}", f"decoding.temperature={temperature}"]).cell is not None]


def trials(field: Field) -> Iterator[Trial]:
    """Every method at every temperature, each way of running it compared with one run of all methods."""
    for temperature in TEMPERATURES:
        names = methods(temperature)
        plain = field.folder / f"{temperature}" / "plain"
        _run([_words(names, temperature, plain)], field.folder)
        expected = _decoded(plain)
        for variant in field.draw.sample(VARIANTS, len(VARIANTS)):
            output = plain.parent / variant
            fault = ""
            try:
                for words in _commands(variant, names, temperature, output):
                    _run(words, field.folder)
            except RuntimeError as error:
                fault = str(error)
            got = {} if fault else _decoded(output)
            for method, samples in expected.items():
                other = fault or ("" if got.get(method) == samples else "other tokens, text or score")
                yield Trial(f"{method}, temperature {temperature}: {variant}", other)


def _commands(variant: str, names: list[str], temperature: float, output: Path) -> Iterator[list[list[str]]]:
    """What is started at once, step after step."""
    if variant == "restarts":
        for n in range(1, N + 1):
            yield [_words(names, temperature, output, f"n={n}")]
    elif variant == "processes":
        for some in (names[::3], names[1::3], names[2::3]):
            yield [_words([name], temperature, output) for name in some]
    else:
        changes = [CHANGES[variant]] if variant in CHANGES else []
        yield [_words(names[::-1] if variant == "order" else names, temperature, output, *changes)]


def _words(names: Sequence[str], temperature: float, output: Path, *changes: str) -> list[str]:
    changed = {change.partition("=")[0] for change in changes}
    plain = [word for word in (f"n={N}", "engine.threads=1") if word.partition("=")[0] not in changed]
    return ["bench", "-m", f"method={','.join(names)}", f"decoding.temperature={temperature}", *plain, *changes,
            "decoding.max_new_tokens=12", f"output.dir={output}"]


def _run(commands: list[list[str]], folder: Path) -> None:
    """Run commands at once. Raises RuntimeError where one fails."""
    running = [warm.start(words, folder / "log", cpu=LIMIT) for words in commands]
    for process, ended in [(process, process.ended(LIMIT)) for process in running]:
        if ended.status != 0:
            raise RuntimeError(f"status {ended.status} of process {process.pid}: {' / '.join(ended.errors)[-300:]}")


def _decoded(output: Path) -> dict[str, Any]:
    """Method -> prompt -> (tokens, text, score). A method is named by its drafter, its rule, and a digest of their
    settings: batch and threads are left out."""
    found = {}
    for cell in Store(output / "store").cells():
        config = cell.config() or {}
        method = {name: config[name] for name in ("drafter", "rule", "pruning", "draft")}
        name = f"{config['drafter']['name']}-{config['rule']['name']}-{digest(method)}"
        found[name] = {
            sample.id: (sample.output_ids, sample.texts, sample.score) for sample in cell.good_samples()}
    return found
