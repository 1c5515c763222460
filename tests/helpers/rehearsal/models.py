"""Checkpoints as the hub has them, tiny and with random weights: hub.yaml says what stands behind
each name."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from hashlib import sha256
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
import yaml
from safetensors.torch import save_file
from tokenizers import (
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)
from torch import Tensor, nn
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    BertConfig,
    BertForSequenceClassification,
    BertModel,
    PreTrainedTokenizerFast,
)

from methods.heads.eagle import Eagle3Head, EagleHead, HeadModule, head_config
from methods.heads.eagle3_config import form_of
from methods.heads.medusa import MedusaHeads
from tasks.sources import DATA, RowSource

HERE = Path(__file__).parent
HUB: dict[str, dict[str, Any]] = yaml.safe_load((HERE / "hub.yaml").read_text(encoding="utf-8"))
VOCAB = 2048
SIZES: dict[str, Any] = {
    "vocab_size": VOCAB,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 16384,
    "rms_norm_eps": 1e-5,
    "hidden_act": "silu",
    "torch_dtype": "bfloat16",
}
"""Of every model and head. Prompts are long, so that attention and their number of tokens decide
what a rehearsal costs. EAGLE-3 reads the states behind layers 2, 2 and 1 of four."""
SHARDS = 3
"""Files of weights of a large model."""
SPREAD, NOISE = 0.35, 0.02
"""Of the weights of a family, and of what a model adds to them: a draft model agrees with its
target now and then."""
WORDS = r"'s|'t|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s+(?!\S)|\s+"
"""How Llama 3 and Qwen cut a text before they join bytes."""


def checkpoint(root: Path, name: str) -> Path:
    """The folder of a hub name below `root`, made where it is not there yet. Raises ValueError for
    an unknown name."""
    folder = root / name
    if (folder / "done").exists():
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    seed = int(sha256(name.encode()).hexdigest()[:8], 16)
    if name in HUB["models"]:
        family, padded = of_model(name)
        _save_model(folder, family, padded, SHARDS if name not in HUB["single"] else 1, seed)
    elif (head := HUB["heads"].get(name)) is not None:
        _save_head(folder, head, seed)
    else:
        raise ValueError(
            f"{name}: a rehearsal does not know it; describe it in tests/helpers/rehearsal/hub.yaml"
        )
    (folder / "done").touch()
    return folder


def of_model(name: str) -> tuple[str, int]:
    """The family of a model of hub.yaml, and its rows of padding."""
    entry = HUB["models"][name]
    if isinstance(entry, str):
        return entry, 0
    return entry["family"], entry["padded"]


def _save_model(folder: Path, family: str, padded: int, shards: int, seed: int) -> None:
    form = HUB["families"][family]
    tokenizer = _tokenizer(family)
    special = {
        kind: tokenizer.convert_tokens_to_ids(text) for kind, text in form["special"].items()
    }
    ids = {f"{kind}_token_id": number for kind, number in special.items() if kind != "unk"}
    sizes = SIZES | {"vocab_size": VOCAB + padded}
    raw = sizes | {"tie_word_embeddings": False} | form["config"] | ids
    _write(folder / "config.json", raw)
    _write(
        folder / "generation_config.json",
        {
            "do_sample": True,
            "temperature": 0.6,
            **form.get("generation", {}),
            "eos_token_id": tokenizer.convert_tokens_to_ids(form["ends"]),
        },
    )
    model = _random(
        AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(folder), dtype=torch.float32),
        seed=list(HUB["families"]).index(family),
    )
    _random(model, seed, NOISE)
    tied = {"lm_head.weight"} if raw["tie_word_embeddings"] else set()
    _save(
        folder / form.get("weights", "model.safetensors"),
        {name: tensor for name, tensor in model.state_dict().items() if name not in tied},
        shards,
    )
    if form.get("proto"):
        _save_proto(folder, form)
    else:
        tokenizer.save_pretrained(folder)


def _save_head(folder: Path, head: dict[str, Any], seed: int) -> None:
    raw = {
        "architectures": ["LlamaForCausalLM"],
        **SIZES,
        "draft_vocab_size": VOCAB * 2 // 3,
        **head.get("config", {}),
    }
    if head["kind"] == "medusa":  # the published config.json says two heads, the file has five
        _write(folder / "config.json", {"medusa_num_heads": 2, "medusa_num_layers": 1})
        module: nn.Module = _random(MedusaHeads(5, SIZES["hidden_size"], VOCAB), seed)
    else:
        if head["kind"] == "eagle":
            del raw["draft_vocab_size"]
        _write(folder / "config.json", raw)
        module = random_head(
            head["kind"],
            raw,
            seed,
            own_embedding=head.get("own_embedding", head["kind"] == "eagle"),
            layers=SIZES["num_hidden_layers"],
        )
    _save(
        folder / head["weights"],
        {
            name: tensor
            for name, tensor in module.state_dict().items()
            if name not in head.get("without", ())
        },
    )


def random_head(
    kind: str,
    raw: dict[str, Any],
    seed: int = 0,
    spread: float = 0.25,
    own_embedding: bool = False,
    layers: int = 64,
) -> HeadModule:
    """A head of the shape that this config.json gives, with random weights; `kind` is eagle3, or
    eagle for the feature-level head of EAGLE, EAGLE-2 and HASS. `layers`: of its target."""
    if kind == "eagle":
        head = EagleHead(head_config(raw), bias=raw.get("bias", True), own_embedding=own_embedding)
        return _random(head, seed, spread)
    form = form_of("random", raw, SimpleNamespace(num_hidden_layers=layers, model_type="llama"))
    module = Eagle3Head(
        head_config(raw, num_hidden_layers=form.layers),
        form,
        target_size=raw.get("target_hidden_size"),
        draft_vocab=raw.get("draft_vocab_size"),
        own_embedding=own_embedding,
    )
    torch.manual_seed(seed)
    if module.d2t is not None:
        ids = torch.randperm(raw["vocab_size"])[: raw["draft_vocab_size"]].sort().values
        module.d2t.copy_(ids - torch.arange(len(ids)))
        module.t2d[ids] = True
    return _random(module, seed, spread)


@torch.no_grad()
def _random(module: Any, seed: int, spread: float = SPREAD) -> Any:
    """The module, with noise of this spread added to its matrices; those of a fresh module are
    drawn anew."""
    draw = torch.Generator().manual_seed(seed)
    for weight in module.parameters():
        if weight.ndim > 1:
            noise = spread * torch.randn(weight.shape, generator=draw)
            weight.copy_(weight + noise if spread == NOISE else noise)
    return module


def _save(file: Path, tensors: dict[str, Tensor], shards: int = 1) -> None:
    """One file, or several with an index beside them, as large models have them."""
    kept = {name: tensor.contiguous() for name, tensor in tensors.items()}
    if shards > 1:
        names = list(kept)
        parts = {
            f"{file.stem}-{number + 1:05}-of-{shards:05}{file.suffix}": names[number::shards]
            for number in range(shards)
        }
        for part, its in parts.items():
            _save(file.with_name(part), {name: kept[name] for name in its})
        place = {name: part for part, its in parts.items() for name in its}
        total = sum(tensor.nbytes for tensor in kept.values())
        index = {"metadata": {"total_size": total}, "weight_map": place}
        _write(file.with_name(f"{file.name}.index.json"), index)
        return
    if file.suffix == ".safetensors":
        save_file(kept, file, {"format": "pt"})
    else:
        torch.save(kept, file)


def _write(file: Path, content: Any) -> None:
    file.write_text(json.dumps(content, indent=1), encoding="utf-8")


@cache
def _tokenizer(family: str) -> PreTrainedTokenizerFast:
    """A tokenizer of VOCAB tokens, of the family's kind, with its special tokens and chat
    template."""
    form = HUB["families"][family]
    special, others = form["special"], form.get("others", [])
    named = [*special.values(), *others]
    backend = (
        _byte_level(VOCAB - len(named))
        if form["tokenizer"] == "byte_level"
        else _sentencepiece(named)
    )
    backend.add_special_tokens(named)
    if "bos" in special:
        bos = special["bos"]
        backend.post_processor = processors.TemplateProcessing(
            single=f"{bos} $A",
            pair=f"{bos} $A {bos} $B",
            special_tokens=[(bos, backend.token_to_id(bos))],
        )
    template = HERE / "templates" / f"{form['template']}.jinja" if "template" in form else None
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        **{f"{kind}_token": text for kind, text in special.items()},
        additional_special_tokens=others,
        chat_template=template and template.read_text(encoding="utf-8"),
    )


def _texts() -> Iterator[str]:
    rows = RowSource(path=DATA / "gsm8k" / "test.jsonl.gz").rows("gsm8k")
    return (f"{row['question']}\n{row['answer']}" for row in islice(rows, 200))


def _byte_level(size: int) -> Tokenizer:
    """Llama 3's and Qwen's kind: pairs of bytes joined."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(WORDS), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=size, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(_texts(), trainer)
    return tokenizer


@cache
def _pieces(size: int) -> tuple[list[str], list[str]]:
    """Joined pieces, the first ones joined first, and single characters: together `size`."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.train_from_iterator(
        _texts(), trainers.BpeTrainer(vocab_size=size, show_progress=False)
    )
    ordered = [
        piece
        for _, piece in sorted((number, piece) for piece, number in tokenizer.get_vocab().items())
    ]
    return [piece for piece in ordered if len(piece) > 1], [
        piece for piece in ordered if len(piece) == 1
    ]


def _sentencepiece(special: list[str]) -> Tokenizer:
    """Gemma's kind: characters joined, and bytes for those that are unknown."""
    vocabulary = [*special, *(f"<0x{byte:02X}>" for byte in range(256))]
    joined, single = _pieces(VOCAB - len(vocabulary))
    known = {piece: number for number, piece in enumerate([*vocabulary, *joined, *single])}
    merges = [
        next(
            (piece[:cut], piece[cut:])
            for cut in range(1, len(piece))
            if piece[:cut] in known and piece[cut:] in known
        )
        for piece in joined
    ]
    tokenizer = Tokenizer(
        models.BPE(known, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True)
    )
    tokenizer.normalizer = normalizers.Replace(" ", "▁")
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    )
    return tokenizer


def _save_proto(folder: Path, form: dict[str, Any]) -> None:
    """Vicuna's tokenizer.model, a SentencePiece file, and nothing beside it but the class that
    reads it."""
    from transformers.convert_slow_tokenizer import import_protobuf

    special = list(form["special"].values())
    proto = import_protobuf().ModelProto()
    spec = proto.trainer_spec
    spec.model_type, spec.byte_fallback = 2, True
    spec.unk_id, spec.bos_id, spec.eos_id, spec.pad_id = 0, 1, 2, -1
    proto.normalizer_spec.add_dummy_prefix, proto.normalizer_spec.remove_extra_whitespaces = (
        True,
        False,
    )
    joined, single = _pieces(VOCAB - len(special) - 256)
    for kind, pieces in (
        (2, special[:1]),
        (3, special[1:]),
        (6, [f"<0x{byte:02X}>" for byte in range(256)]),
        (1, [*joined, *single]),
    ):
        for piece in pieces:
            proto.pieces.add(
                piece=piece, type=kind, score=-float(len(proto.pieces)) if kind == 1 else 0.0
            )
    (folder / "tokenizer.model").write_bytes(proto.SerializeToString())
    tokens = {f"{kind}_token": text for kind, text in form["special"].items()}
    _write(
        folder / "tokenizer_config.json",
        {
            "tokenizer_class": "LlamaTokenizer",
            "legacy": False,
            "add_bos_token": True,
            "add_eos_token": False,
            "model_max_length": 2048,
            **tokens,
        },
    )


SENTENCE_WORDS = [
    "[PAD]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    "a",
    "b",
    "c",
    "d",
    "e",
    "the",
    "cat",
    "dog",
    "sat",
    "ran",
]


def save_sentence_model(folder: Path, labels: tuple[str, ...] = (), layers: int = 2) -> str:
    """A model of meaning of random weights: an encoder, or with `labels` a classifier of pairs; its
    folder."""
    torch.manual_seed(0)
    vocabulary = {word: i for i, word in enumerate(SENTENCE_WORDS)}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        model_max_length=32,
    ).save_pretrained(folder)
    config = BertConfig(
        vocab_size=len(vocabulary),
        hidden_size=16,
        num_hidden_layers=layers,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=32,
        initializer_range=0.5,
    )
    if labels:
        config.num_labels = len(labels)
        config.id2label, config.label2id = (
            dict(enumerate(labels)),
            {name: i for i, name in enumerate(labels)},
        )
    model = BertForSequenceClassification(config) if labels else BertModel(config)
    model.save_pretrained(folder)
    return str(folder)
