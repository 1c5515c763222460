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
from safetensors.torch import load_file, save_file

from bench.config.paths import PROJECT

TABLE = PROJECT / "tests" / "bench" / "refusals.txt"
COMMON = ("n=1", "decoding.max_new_tokens=4", "engine.threads=1")
MODULES = ("bench.", "models.train")
TINY = PROJECT / "models" / "tiny"
NAMED = re.compile(r"%(\w[\w.]*)%")
"""A file in the words of a command."""
DEEP = "[" * 100_000 + "]" * 100_000
WEIGHTS = "model.safetensors"

TEXTS: Mapping[str, str | bytes] = {
    "file": "a file\n",
    "fine.jsonl": '{"id": "a", "prompt": "x"}\n',
    "empty.jsonl": "",
    "key_twice.jsonl": '{"id": "a", "id": "z", "prompt": "x"}\n',
    "role_twice.jsonl": '{"id": "a", "messages": [{"role": "user", "role": "system", "content": "x"}]}\n',
    "longer.csv": "id,prompt\na,b\nc,d,e\n",
    "header_twice.csv": "id,prompt,prompt\na,b,c\n",
    "noid.jsonl": '{"prompt": "x"}\n',
    "twice.jsonl": '{"id": "a", "prompt": "x"}\n{"id": "a", "prompt": "y"}\n',
    "both.jsonl": '{"id": "a", "prompt": "x", "input_ids": [1]}\n',
    "number.jsonl": "3\n",
    "list.jsonl": "[1]\n",
    "torn.jsonl": '{"id": "a", "prompt": "x"}\n{"id": "b", "pro',
    "deep.jsonl": '{"id": "a", "prompt": ' + DEEP + "}\n",
    "latin.jsonl": '{"id": "a", "prompt": "grün"}\n'.encode("latin-1"),
    "binary.jsonl": bytes(range(256)) * 20,
    "escape.jsonl": '{"id": "a\\u001b[2J", "prompt": 3}\n',
    "surrogate.jsonl": '{"id": "a", "prompt": "\\ud800"}\n',
    "float_ids.jsonl": '{"id": "a", "input_ids": [1.5]}\n',
    "unknown_ids.jsonl": '{"id": "a", "input_ids": [999999]}\n',
    "huge_ids.jsonl": '{"id": "a", "input_ids": [99999999999999999999999]}\n',
    "role.jsonl": '{"id": "a", "messages": [{"role": "wizard", "content": "x"}]}\n',
    "content.jsonl": '{"id": "a", "messages": [{"role": "user", "content": {"x": 1}}]}\n',
    "long.jsonl": json.dumps({"id": "a", "prompt": "word " * 5000}) + "\n",
    "rows.jsonl": '{"question": "one?", "answer": "1"}\n{"question": "two?", "answer": "2"}\n',
    "ids.jsonl": '{"question_id": 1, "turns": ["one?"]}\n{"question_id": 1, "turns": ["two?"]}\n',
    "turns.jsonl": '{"question_id": 1, "turns": "one?"}\n',
    "rows.json": '{"a": 1',
    "rows.csv": b'"a,b\n\xff\xfe"1,2,3\n4\n',
    "rows.parquet": b"PAR1" + bytes(100) + b"PAR1",
    "rows.jsonl.gz": b"\x1f\x8b\x08\x00garbage",
    "rows.txt": "no rows\n",
    "broken.jinja": "{% for message in messages %}{{ message",
    "raises.jinja": "{{ raise_exception('never') }}",
    "tree_broken.yaml": "paths: [0\n",
    "tree_object.yaml": "paths: !!python/object/apply:os.system ['touch %marker%']\n",
    "tree_orphan.yaml": "source: x\npaths: |\n  0\n  0.0.0\n",
    "tree_empty.yaml": "source: x\npaths: ''\n",
    "tree_deep.yaml": "source: x\npaths: |\n" + "".join("  " + ".".join("0" * n) + "\n" for n in range(1, 40)),
    "brace.json": "{",
    "deep.json": DEEP,
    "arc_other.json": json.dumps(json.loads((TINY / "arc.json").read_text()) | {"fingerprint": "000000000000"}),
    "arc_short.json": '{"target": "x", "fingerprint": "x", "inv_std": [1.0], "buckets": []}',
    "judge_other.json": (TINY / "autojudge.json").read_text().replace('"fingerprint": "', '"fingerprint": "0'),
    "groups.json": '{"groups": [[1, "two"]]}',
    "groups_unknown.json": '{"groups": [[1, 999999]]}',
    "garbage.gguf": b"GGUF" + bytes(8),
    "huge.gguf": b"GGUF" + (3).to_bytes(4, "little") + b"\xff" * 16,
    "text.gguf": "no weights",
}  # fmt: skip


def _config(**changes: Any) -> Callable[[Path], None]:
    """A copy of the embedded target whose config.json has other values; None removes a key."""

    def make(folder: Path) -> None:
        shutil.copytree(TINY / "target", folder)
        given = json.loads((folder / "config.json").read_text()) | changes
        _write(
            folder / "config.json",
            json.dumps({key: value for key, value in given.items() if value is not None}),
        )

    return make


def _with(name: str, content: str | bytes | None, of: str = "target") -> Callable[[Path], None]:
    """A copy of a model of the embedded pair in which one file holds `content`, or is missing."""

    def make(folder: Path) -> None:
        shutil.copytree(TINY / of, folder)
        (folder / name).unlink(missing_ok=True)
        if content is not None:
            _write(folder / name, content)

    return make


def _tensors(
    change: Callable[[dict[str, torch.Tensor]], object], of: str = "target"
) -> Callable[[Path], None]:
    """A copy of a model of the embedded pair with other weights."""

    def make(folder: Path) -> None:
        shutil.copytree(TINY / of, folder)
        weights = load_file(folder / WEIGHTS)
        change(weights)
        (folder / WEIGHTS).unlink()
        save_file(weights, folder / WEIGHTS, {"format": "pt"})

    return make


def _pipe(file: Path) -> None:
    """Nobody writes into it, so a reader would wait without end."""
    os.mkfifo(file)


def _other_words(folder: Path) -> None:
    """A draft whose vocabulary has the target's size and other entries."""
    shutil.copytree(TINY / "draft", folder)
    tokenizer = json.loads((TINY / "draft" / "tokenizer.json").read_text())
    words = sorted(tokenizer["model"]["vocab"], key=tokenizer["model"]["vocab"].__getitem__)
    tokenizer["model"]["vocab"] = {
        word: len(words) - 1 - number for number, word in enumerate(words)
    }
    _write(folder / "tokenizer.json", json.dumps(tokenizer))


def _yaml(text: str, group: str = "method", name: str = "own") -> Callable[[Path], None]:
    """A folder for --config-dir with one YAML."""

    def make(folder: Path) -> None:
        (folder / group).mkdir(parents=True)
        _write(folder / group / f"{name}.yaml", text)

    return make


MAKERS: Mapping[str, Callable[[Path], Any]] = {
    "folder": Path.mkdir,
    "fifo.jsonl": os.mkfifo,
    "loop": lambda path: path.symlink_to(path.name),
    "dangling": lambda path: path.symlink_to("nowhere-at-all"),
    "pipe.jsonl": _pipe,
    "config_layers": _config(num_hidden_layers=10**9),
    "config_brace": _with("config.json", "{"),
    "config_list": _with("config.json", "[]"),
    "config_deep": _with("config.json", DEEP),
    "config_missing": _with("config.json", None),
    "config_words": _config(vocab_size="many"),
    "config_kind": _config(model_type="none_such", architectures=["NoneSuch"]),
    "config_more": _config(num_hidden_layers=10),
    "config_zero": _config(num_hidden_layers=0),
    "config_vocabulary": _config(vocab_size=4096),
    "config_few": _config(vocab_size=7),
    "config_remote": _config(model_type="own", auto_map={"AutoConfig": "own.Own", "AutoModelForCausalLM": "own.Own"}),
    "weights_missing": _with(WEIGHTS, None),
    "weights_garbage": _with(WEIGHTS, bytes(range(256)) * 100),
    "weights_torn": _with(WEIGHTS, (TINY / "target" / WEIGHTS).read_bytes()[:100_000]),
    "weights_pickle": lambda folder: (_with(WEIGHTS, None)(folder),
                                      _write(folder / "pytorch_model.bin", b"\x80\x02cos\nsystem\n(S'true'\ntR.")),
    "weights_nan": _tensors(lambda weights: weights["model.norm.weight"].fill_(float("nan"))),
    "weights_less": _tensors(lambda weights: weights.pop("model.layers.3.mlp.up_proj.weight")),
    "weights_more": _tensors(lambda weights: weights.update({"model.layers.9.own": torch.zeros(3)})),
    "tokenizer_missing": _with("tokenizer.json", None),
    "tokenizer_brace": _with("tokenizer.json", "{"),
    "tokenizer_config_list": _with("tokenizer_config.json", "[]"),
    "generation_brace": _with("generation_config.json", "{"),
    "template_broken": _with("chat_template.jinja", "{% for message in messages %}{{ message"),
    "template_endless": _with("chat_template.jinja", "{% for i in range(10**12) %}x{% endfor %}"),
    "draft_other_words": _other_words,
    "head_brace": _with("config.json", "{", "eagle3"),
    "head_weights": _with(WEIGHTS, None, "eagle3"),
    "head_garbage": _with(WEIGHTS, bytes(1000), "eagle3"),
    "head_map": _tensors(lambda weights: weights["d2t"].fill_(99_999), "eagle3"),
    "medusa_list": _with("config.json", "[]", "medusa"),
    "yaml_broken": _yaml("defaults: [\n  x: {"),
    "yaml_object": _yaml("a: !!python/object/apply:os.system ['touch %marker%']\n"),
    "yaml_list": _yaml("- 1\n- 2\n"),
    "yaml_default": _yaml("defaults:\n  - none_such\n"),
    "yaml_loop": _yaml("defaults:\n  - own\n"),
    "yaml_key": _yaml("# @package _global_\nrule:\n  thetta: 1\n"),
    "yaml_bomb": _yaml("a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
        f"{new}: &{new} [{','.join([f'*{old}'] * 9)}]\n" for old, new in zip("abcdefgh", "bcdefghi", strict=True))),
    "yaml_task": _yaml("defaults:\n  - dataset\n  - _self_\nname: own\nprompt: '{{ 1/0 }}'\npath: 7\n", "task"),
    "yaml_report": _yaml("name: own\nrows: 3\n", "report"),
}  # fmt: skip


class Files:
    """Name -> path of what is made under `root` when it is first asked for; `marker` appears if a
    YAML runs code."""

    def __init__(self, root: Path) -> None:
        self.root, self.marker = root, root / "marker"
        self.root.mkdir(parents=True, exist_ok=True)

    def __getitem__(self, name: str) -> Path:
        path = self.root / name
        if not os.path.lexists(path):
            if name in TEXTS:
                _write(path, TEXTS[name])
            else:
                MAKERS[name](path)
            for text in [path] if path.is_file() else path.rglob("*.yaml"):
                if text.suffix == ".yaml" and b"%marker%" in (content := text.read_bytes()):
                    text.write_bytes(content.replace(b"%marker%", os.fsencode(self.marker)))
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


def _write(path: Path, content: str | bytes) -> None:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
