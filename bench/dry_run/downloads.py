"""How many bytes a model of the hub would download; of its files only config.json is
fetched."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatch
from functools import cache
from pathlib import Path

from methods.engine.source import ModelSource
from results.store.errors import one_line

WEIGHTS = (("model*.safetensors",), ("pytorch_model*.bin",), ("medusa_lm_head.pt",))
"""Kinds of weight files; the first kind that a repository has is the one that is loaded."""
BESIDE = ("*.json", "*.jinja", "*.model", "merges.txt", "vocab.txt")
TIMEOUT = 5.0
UNREACHED: list[str] = []
"""Holds the hub's address once it did not answer, so that it is not asked again."""


@dataclass(frozen=True, slots=True)
class Listing:
    """Bytes that a run would fetch of a repository, or in `problem` why they are not known."""

    missing: int = 0
    problem: str = ""


@cache
def listing(source: str, revision: str | None = None) -> Listing:
    """Ask the hub for the files of a repository; a hub that cannot be reached or refuses is a
    Listing too."""
    if ModelSource.of(source).is_package:
        return Listing(problem="pip fetches it on first use")
    from huggingface_hub import constants, snapshot_download
    from huggingface_hub.errors import (
        DryRunError,
        HfHubHTTPError,
        HFValidationError,
        RevisionNotFoundError,
    )

    if constants.HF_HUB_OFFLINE or UNREACHED:
        return Listing(problem="hub not reachable")
    try:
        files = snapshot_download(source, revision=revision, dry_run=True, etag_timeout=TIMEOUT)
    except RevisionNotFoundError:
        return Listing(problem=f"no revision {revision} on the hub")
    except HFValidationError:
        return Listing(problem="not a name on the hub")
    except (DryRunError, OSError) as error:  # OSError: a proxy, a torn connection
        if isinstance(error.__cause__, HfHubHTTPError):
            return Listing(
                problem="the hub refuses it: wrong name, or a gated or private model without a "
                "token"
            )
        UNREACHED.append(constants.ENDPOINT)
        return Listing(problem="hub not reachable")
    sizes = {file.filename: 0 if file.is_cached else file.file_size or 0 for file in files}
    return Listing(sum(sizes[name] for name in chosen(sizes)))


def chosen(names: Iterable[str]) -> list[str]:
    """Of a repository's files those that loading it takes: one kind of weights, and what stands
    beside them."""
    top = [name for name in names if "/" not in name]
    kinds = (
        [name for name in top if any(fnmatch(name, pattern) for pattern in kind)]
        for kind in WEIGHTS
    )
    return [
        *next((kind for kind in kinds if kind), []),
        *(name for name in top if any(fnmatch(name, pattern) for pattern in BESIDE)),
    ]


@cache
def config_folder(source: str, revision: str | None) -> Path | str:
    """The folder where a source's config.json lies, fetched from the hub if it has to be; or why
    there is none."""
    from huggingface_hub import hf_hub_download, try_to_load_from_cache

    parsed = ModelSource.of(source)
    if parsed.folder.is_dir():
        return parsed.folder
    if parsed.is_gguf:
        return (
            f"{'not converted' if parsed.is_here else 'not fetched'} yet; the command itself "
            "does it"
        )
    here = try_to_load_from_cache(source, "config.json", revision=revision)
    if isinstance(here, str):
        return Path(here).parent
    if problem := listing(source, revision).problem:
        return problem
    try:
        return Path(hf_hub_download(source, "config.json", revision=revision)).parent
    except (OSError, ValueError) as error:
        return one_line(error)
