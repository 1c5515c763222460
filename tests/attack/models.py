"""GGUF files: headers that announce more than there is, and damaged ones."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

from tests.attack import warm
from tests.attack.foreign import BYTES, LIMIT, answered
from tests.attack.part import Field, Trial


def trials(field: Field) -> Iterator[Trial]:
    """GGUF files: headers that announce more than there is, and damaged copies of a real one."""
    real = _small_gguf(field.folder)
    heads = {"an array of 2^40": _header(_text("a") + struct.pack("<IIQ", 9, 6, 1 << 40)),
             "2^62 keys": _header(b"", keys=1 << 62), "2^62 tensors": _header(b"", tensors=1 << 62, keys=0),
             "a text of 2^60 bytes": _header(struct.pack("<Q", 1 << 60)),
             "arrays in arrays": _header(_text("a") + struct.pack("<I", 9) + struct.pack("<IQ", 9, 1) * 40),
             "an array of 2^40 texts": _header(_text("a") + struct.pack("<IIQ", 9, 8, 1 << 40)),
             "an unknown type": _header(_text("a") + struct.pack("<I", 99))}
    for number in range(10_000):
        file = field.folder / "model.gguf"
        if number < len(heads):
            name, content = list(heads.items())[number]
        else:
            kind = field.draw.choice(list(BYTES))
            begin = field.draw.randrange(200, 4000)  # in the header, not in the weights
            name, content = f"{kind}, header", BYTES[kind](real[:begin], field.draw) + real[begin:]
        file.write_bytes(content)
        ended = warm.start(["bench", "method=pld", "task=mini_chat", "n=1", "timed=0", "decoding.max_new_tokens=2",
                            f"pair.target={file}", "engine.threads=1", f"output.dir={field.folder / 'out'}"],
                           field.folder / "log", {"LEEWAY_CACHE": str(field.folder / "gguf")}).ended(LIMIT)
        fault = answered(ended) if ended.status != 1 or ended.traceback else ""
        yield Trial(name, fault or (f"{ended.seconds:.0f} s" if ended.seconds > 30 else ""))
        for made in ("out", "gguf"):
            warm.remove(field.folder / made)


def _text(text: str) -> bytes:
    return struct.pack("<Q", len(text)) + text.encode()


def _header(rest: bytes, tensors: int = 0, keys: int = 1) -> bytes:
    return b"GGUF" + struct.pack("<IQQ", 3, tensors, keys) + rest + bytes(60)


def _small_gguf(folder: Path) -> bytes:
    from tests.helpers.tiny_gguf import write_gguf

    file = folder / "real.gguf"
    process = warm.FORK.Process(target=write_gguf, args=(file, warm.PROJECT / "models" / "tiny" / "target"))
    process.start()  # a thread of torch would not survive the forks that follow
    process.join()
    return file.read_bytes()
