"""What a hub checkpoint would bring to this machine: asked, not fetched."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatch
from functools import cache
from threading import Event, Thread
from time import monotonic
from urllib.parse import urlsplit
from urllib.request import getproxies

from methods.engine.source import Source

WEIGHTS = (("model*.safetensors",), ("pytorch_model*.bin",), ("medusa_lm_head.pt",))
"""The first kind of which a repository has any is what is loaded."""
BESIDE = ("*.json", "*.jinja", "*.model", "merges.txt", "vocab.txt")
TIMEOUT = 5.0
PROBE = 1.5
"""Seconds that the hub has to accept a connection, names resolved."""


@dataclass(frozen=True, slots=True)
class File:
    """`size` in bytes, None where the hub does not say; `cached`: it is here already."""

    name: str
    size: int | None
    cached: bool


@dataclass(frozen=True, slots=True)
class Listing:
    """The files of a repository that a run loads, or in `problem` why they are not known."""

    source: str
    files: tuple[File, ...] = ()
    problem: str = ""

    @property
    def missing(self) -> list[File]:
        return [file for file in self.files if not file.cached]

    @property
    def size(self) -> int:
        """Bytes to download; files of unknown size count nothing."""
        return sum(file.size or 0 for file in self.missing)

    def __str__(self) -> str:
        if self.problem:
            return f"size unknown: {self.problem}"
        if not self.missing:
            return "all here"
        unknown = sum(file.size is None for file in self.missing)
        here = len(self.files) - len(self.missing)
        return (f"{len(self.missing)} files, {size(self.size)}" + (f" and {unknown} of unknown size" if unknown else "")
                + (f" ({here} here)" if here else ""))


@cache
def ask_hub() -> Callable[[], bool]:
    """Begin to ask, once, whether something answers where the hub is; a library that asks by itself waits much longer.
    Returns a function that waits for the answer, until PROBE seconds after the question."""
    from huggingface_hub import constants

    if constants.HF_HUB_OFFLINE:
        return lambda: False
    address = urlsplit(constants.ENDPOINT)
    answered, asked = Event(), monotonic()

    def knock() -> None:
        port = address.port or (443 if address.scheme == "https" else 80)
        with suppress(OSError), socket.create_connection((address.hostname or "", port), timeout=PROBE):
            answered.set()

    if any(getproxies().get(scheme) for scheme in (address.scheme, "all")):
        return lambda: True  # the proxy decides
    Thread(target=knock, daemon=True).start()  # resolving a name knows no timeout
    return lambda: answered.wait(max(0.0, asked + PROBE - monotonic()))


def reachable() -> bool:
    """Whether the hub answers."""
    return ask_hub()()


@cache
def listing(source: str, revision: str | None = None) -> Listing:
    """Ask the hub for the files of a repository; a hub that cannot be reached or refuses is a Listing too."""
    if Source.of(source).is_package:
        return Listing(source, problem="pip fetches it on first use")
    if not reachable():
        return Listing(source, problem="hub not reachable")
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import (
        DryRunError,
        HfHubHTTPError,
        HFValidationError,
        RevisionNotFoundError,
    )

    try:
        files = snapshot_download(source, revision=revision, dry_run=True, etag_timeout=TIMEOUT)
    except RevisionNotFoundError:
        return Listing(source, problem=f"no revision {revision} on the hub")
    except HFValidationError:
        return Listing(source, problem="not a name on the hub")
    except DryRunError as error:
        refused = isinstance(error.__cause__, HfHubHTTPError)
        return Listing(source, problem="the hub refuses it: wrong name, or a gated or private model without a token"
                       if refused else "hub not reachable")
    except OSError:  # a proxy, a torn connection
        return Listing(source, problem="hub not reachable")
    return Listing(source, chosen(File(file.filename, file.file_size, file.is_cached) for file in files))


def chosen(files: Iterable[File]) -> tuple[File, ...]:
    """Of a repository's files those that loading it takes: one kind of weights, and what stands beside them."""
    top = [file for file in files if "/" not in file.name]
    kinds = ([file for file in top if any(fnmatch(file.name, pattern) for pattern in kind)] for kind in WEIGHTS)
    weights = next((kind for kind in kinds if kind), [])
    other = {f"{form}.index.json" for form in ("safetensors", "bin") if weights and not weights[0].name.endswith(form)}
    beside = [file for file in top if any(fnmatch(file.name, pattern) for pattern in BESIDE)
              and not any(file.name.endswith(index) for index in other)]
    return (*weights, *beside)


def size(number: int) -> str:
    """1234567 -> `1.2 MB`, decimal."""
    power = next((power for power in range(5) if number < 1000 ** (power + 1)), 4)
    return f"{number / 1000**power:.{min(power, 1)}f} {('B', 'kB', 'MB', 'GB', 'TB')[power]}"
