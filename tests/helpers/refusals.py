"""Wrong commands, the files that they name, and what each is answered.

A row of tests/bench/refusals.txt is the words after `python -m bench` and what its one line on the
error stream must contain. Words that begin with another module's name run that module. %name%
stands for a file, made here when it is first named: a broken model, head, prompt or configuration.
The words of COMMON are added where a row does not give their keys."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import yaml
from safetensors.torch import load_file, save_file

from bench.config.paths import PROJECT

TABLE = PROJECT / "tests" / "bench" / "refusals.txt"
TOLD = yaml.safe_load(TABLE.with_suffix(".yaml").read_text(encoding="utf-8"))
"""What some files hold."""
COMMON = ("n=1", "decoding.max_new_tokens=4", "engine.threads=1")
MODULES = ("bench.", "models.train")
TINY = PROJECT / "models" / "tiny"
NAMED = re.compile(r"%(\w[\w.]*)%")
"""A file in the words of a command."""
DEEP = "[" * 100_000 + "]" * 100_000
WEIGHTS = "model.safetensors"
FLOOR = """
from pydantic import Field

from methods.rules.base import Decision, Rule, Verification
from methods.rules.lossless import lossless_test


class Floor(Rule):
    floor: float = Field(0.3, ge=0, le=1)

    def decide(self, v: Verification) -> Decision:
        return Decision(v.p_token > self.floor, lossless_test(v))
"""
"""A rule outside of the checkout."""

TEXTS: Mapping[str, str | bytes] = {
    **TOLD["texts"],
    "deep.jsonl": '{"id": "a", "prompt": ' + DEEP + "}\n",
    "latin.jsonl": '{"id": "a", "prompt": "grün"}\n'.encode("latin-1"),
    "binary.jsonl": bytes(range(256)) * 20,
    "long.jsonl": json.dumps({"id": "a", "prompt": "word " * 5000}) + "\n",
    "rows.csv": b'"a,b\n\xff\xfe"1,2,3\n4\n',
    "rows.parquet": b"PAR1" + bytes(100) + b"PAR1",
    "rows.jsonl.gz": b"\x1f\x8b\x08\x00garbage",
    "tree_deep.yaml": "source: x\npaths: |\n" + "".join("  " + ".".join("0" * n) + "\n" for n in range(1, 40)),
    "deep.json": DEEP,
    "arc_other.json": json.dumps(json.loads((TINY / "arc.json").read_text()) | {"fingerprint": "000000000000"}),
    "judge_other.json": (TINY / "autojudge.json").read_text().replace('"fingerprint": "', '"fingerprint": "0'),
    "garbage.gguf": b"GGUF" + bytes(8),
    "huge.gguf": b"GGUF" + (3).to_bytes(4, "little") + b"\xff" * 16,
    **dict.fromkeys(("floor.py", "other.py"), FLOOR),
    "clash.py": FLOOR.replace("Floor", "Mars"),
}  # fmt: skip


def _config(changes):
    """A copy of the embedded target whose config.json has other values."""
    config = json.loads((TINY / "target" / "config.json").read_text())
    return _with({"config.json": json.dumps({**config, **changes})})


def _with(files, of="target"):
    """A copy of a model of the embedded pair in which files hold this, or (None) are missing."""

    def make(folder):
        shutil.copytree(TINY / of, folder)
        for name, content in files.items():
            (folder / name).unlink(missing_ok=True)
            if content is not None:
                _write(folder / name, content)

    return make


def _tensors(change, of="target"):
    """A copy of a model of the embedded pair with other weights."""

    def make(folder):
        shutil.copytree(TINY / of, folder)
        weights = load_file(folder / WEIGHTS)
        change(weights)
        (folder / WEIGHTS).unlink()
        save_file(weights, folder / WEIGHTS, {"format": "pt"})

    return make


def _other_words(folder):
    """A draft whose vocabulary has the target's size and other entries."""
    tokenizer = json.loads((TINY / "draft" / "tokenizer.json").read_text())
    vocabulary = tokenizer["model"]["vocab"]
    last = max(vocabulary.values())
    tokenizer["model"]["vocab"] = {word: last - number for word, number in vocabulary.items()}
    _with({"tokenizer.json": json.dumps(tokenizer)}, "draft")(folder)


def _yaml(group, text):
    """A folder for --config-dir with one YAML."""

    def make(folder):
        (folder / group).mkdir(parents=True)
        _write(folder / group / "own.yaml", text)

    return make


MAKERS: Mapping[str, Callable[[Path], Any]] = {
    **{name: _config(changes) for name, changes in TOLD["configs"].items()},
    **{
        name: _with(
            {file: given[file] for file in given if file != "of"}, given.get("of", "target")
        )
        for name, given in TOLD["models"].items()
    },
    **{
        name: _yaml(group, text)
        for group, texts in TOLD["yamls"].items()
        for name, text in texts.items()
    },
    "folder": Path.mkdir,
    "loop": lambda path: path.symlink_to(path.name),
    "dangling": lambda path: path.symlink_to("nowhere-at-all"),
    "pipe.jsonl": os.mkfifo,  # nobody writes into it, so a reader would wait without end
    "config_deep": _with({"config.json": DEEP}),
    "weights_garbage": _with({WEIGHTS: bytes(range(256)) * 100}),
    "weights_torn": _with({WEIGHTS: (TINY / "target" / WEIGHTS).read_bytes()[:100_000]}),
    "weights_pickle": _with(
        {WEIGHTS: None, "pytorch_model.bin": b"\x80\x02cos\nsystem\n(S'true'\ntR."}
    ),
    "weights_nan": _tensors(lambda weights: weights["model.norm.weight"].fill_(float("nan"))),
    "weights_less": _tensors(lambda weights: weights.pop("model.layers.3.mlp.up_proj.weight")),
    "weights_more": _tensors(
        lambda weights: weights.update({"model.layers.9.own": torch.zeros(3)})
    ),
    "draft_other_words": _other_words,
    "head_garbage": _with({WEIGHTS: bytes(1000)}, "eagle3"),
    "head_map": _tensors(lambda weights: weights["d2t"].fill_(99_999), "eagle3"),
    "yaml_bomb": _yaml(
        "method",
        "a: &a [x,x,x,x,x,x,x,x,x]\n"
        + "".join(
            f"{new}: &{new} [{','.join([f'*{old}'] * 9)}]\n"
            for old, new in zip("abcdefgh", "bcdefghi", strict=True)
        ),
    ),
}


class Files:
    """Name -> path of what is made under `root` when it is first asked for; `marker` appears if a
    YAML runs code."""

    def __init__(self, root):
        self.root, self.marker = root, root / "marker"
        self.root.mkdir(parents=True, exist_ok=True)

    def __getitem__(self, name):
        path = self.root / name
        if os.path.lexists(path):
            return path
        if name in TEXTS:
            _write(path, TEXTS[name])
        else:
            MAKERS[name](path)
        for file in [path] if path.is_file() else path.rglob("*.yaml"):
            if file.suffix == ".yaml":
                file.write_text(file.read_text().replace("%marker%", str(self.marker)))
        return path

    def filled(self, words: str) -> str:
        """The words of a command with the path in place of each %name%."""
        return NAMED.sub(lambda match: str(self[match[1]]), words)


@dataclass(frozen=True, slots=True)
class Wrong:
    """A wrong command.

    words   after `python -m bench`, or after `python -m` where they name another module.
    says    what its line must contain.
    status  its exit status.
    known   when it can be known to be wrong: composed (nothing is written) or loaded (nothing is
            decoded).
    """

    words: str
    says: tuple[str, ...]
    status: int
    known: str

    def given(self, files: Files, output: Path) -> list[str]:
        """The module and its words, with the common ones that the row does not give itself."""
        words = shlex.split(files.filled(self.words))
        if words and words[0].startswith(MODULES):
            return words
        keys = {word.partition("=")[0].lstrip("+~") for word in words}
        common = [
            word for word in (*COMMON, f"output.dir={output}") if word.partition("=")[0] not in keys
        ]
        return ["bench", *common, *words]


def rows() -> Iterator[Wrong]:
    """Every wrong command of the table."""
    known, status = "", 0
    for line in TABLE.read_text(encoding="utf-8").splitlines():
        if heading := re.fullmatch(r"\[(\w+) (\d)\] .+", line):
            known, status = heading[1], int(heading[2])
        elif line:
            words, *says = line.split(" | ")
            yield Wrong(words, tuple(says), status, known)


def _write(path, content):
    path.write_bytes(content.encode() if isinstance(content, str) else content)
