"""Checkpoints as the hub has them, tiny and with random weights: hub.yaml says what stands behind
each name."""

from __future__ import annotations

import json
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
from torch import nn
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
SIZES: dict[str, Any] = HUB["sizes"]
"""Of every model and head. Prompts are long, so that attention and their number of tokens decide
what a rehearsal costs. EAGLE-3 reads the states behind layers 2, 2 and 1 of four."""
VOCAB = SIZES["vocab_size"]
SHARDS = 3
"""Files of weights of a large model."""
SPREAD, NOISE = 0.35, 0.02
"""Of the weights of a family, and of what a model adds to them: a draft model agrees with its
target now and then."""
BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
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
        _save_model(folder, name, seed)
    elif name in HUB["heads"]:
        _save_head(folder, HUB["heads"][name], seed)
    else:
        raise ValueError(
            f"{name}: a rehearsal does not know it; describe it in tests/helpers/rehearsal/hub.yaml"
        )
    (folder / "done").touch()
    return folder


def _save_model(folder, name, seed):
    entry = HUB["models"][name]
    family, padded = (entry, 0) if isinstance(entry, str) else entry.values()
    form = HUB["families"][family]
    tokenizer = _tokenizer(family)
    raw = SIZES | {"vocab_size": VOCAB + padded, "tie_word_embeddings": False} | form["config"]
    for kind, text in form["special"].items():
        if kind != "unk":
            raw[f"{kind}_token_id"] = tokenizer.convert_tokens_to_ids(text)
    ends = {"eos_token_id": tokenizer.convert_tokens_to_ids(form["ends"])}
    drawn = {"do_sample": True, "temperature": 0.6} | form.get("generation", {})
    _write(folder / "config.json", raw)
    _write(folder / "generation_config.json", drawn | ends)
    model = AutoModelForCausalLM.from_config(
        AutoConfig.from_pretrained(folder), dtype=torch.float32
    )
    _random(model, seed=list(HUB["families"]).index(family))
    tensors = _random(model, seed, NOISE).state_dict()
    if raw["tie_word_embeddings"]:
        del tensors["lm_head.weight"]
    file = folder / form.get("weights", "model.safetensors")
    _save(file, tensors, 1 if name in HUB["single"] else SHARDS)
    if form.get("proto"):
        _save_proto(folder, form)
    else:
        tokenizer.save_pretrained(folder)


def _save_head(folder, head, seed):
    kind, config = head["kind"], head.get("config", {})
    if kind == "medusa":
        raw = config
        module: nn.Module = _random(MedusaHeads(5, SIZES["hidden_size"], VOCAB), seed)
    else:
        narrower = {"draft_vocab_size": VOCAB * 2 // 3} if kind == "eagle3" else {}
        raw = {"architectures": ["LlamaForCausalLM"]} | SIZES | narrower | config
        own = head.get("own_embedding", kind == "eagle")
        module = random_head(kind, raw, seed, own_embedding=own, layers=SIZES["num_hidden_layers"])
    tensors = module.state_dict()
    for name in head.get("without", ()):
        del tensors[name]
    _write(folder / "config.json", raw)
    _save(folder / head["weights"], tensors)


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
def _random(module, seed, spread=SPREAD):
    """The module, with noise of this spread added to its matrices; those of a fresh module are
    drawn anew."""
    draw = torch.Generator().manual_seed(seed)
    for weight in module.parameters():
        if weight.ndim > 1:
            noise = spread * torch.randn(weight.shape, generator=draw)
            weight.copy_(weight + noise if spread == NOISE else noise)
    return module


def _save(file, tensors, shards=1):
    """One file, or several with an index beside them, as large models have them."""
    names, place = list(tensors), {}
    for number in range(shards):
        part = f"{file.stem}-{number + 1:05}-of-{shards:05}{file.suffix}"
        own = file.with_name(part) if shards > 1 else file
        kept = {name: tensors[name].contiguous() for name in names[number::shards]}
        place |= dict.fromkeys(kept, part)
        if file.suffix == ".safetensors":
            save_file(kept, own, {"format": "pt"})
        else:
            torch.save(kept, own)
    if shards > 1:
        total = sum(tensor.nbytes for tensor in tensors.values())
        index = {"metadata": {"total_size": total}, "weight_map": place}
        _write(file.with_name(f"{file.name}.index.json"), index)


def _write(file, content):
    file.write_text(json.dumps(content, indent=1), encoding="utf-8")


@cache
def _tokenizer(family):
    """A tokenizer of VOCAB tokens, of the family's kind, with its special tokens and chat
    template."""
    form = HUB["families"][family]
    special, others = form["special"], form.get("others", [])
    named = [*special.values(), *others]
    backend = (_byte_level if form["tokenizer"] == "byte_level" else _sentencepiece)(named)
    backend.add_special_tokens(named)
    if "bos" in special:
        bos = special["bos"]
        backend.post_processor = processors.TemplateProcessing(
            single=f"{bos} $A",
            pair=f"{bos} $A {bos} $B",
            special_tokens=[(bos, backend.token_to_id(bos))],
        )
    named_by_kind = {f"{kind}_token": text for kind, text in special.items()}
    if "template" in form:
        file = HERE / "templates" / f"{form['template']}.jinja"
        named_by_kind["chat_template"] = file.read_text(encoding="utf-8")
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, additional_special_tokens=others, **named_by_kind
    )


def _texts():
    rows = RowSource(path=DATA / "gsm8k" / "test.jsonl.gz").rows("gsm8k")
    return (f"{row['question']}\n{row['answer']}" for row in islice(rows, 200))


def _byte_level(special):
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
    return _trained(tokenizer, VOCAB - len(special), initial_alphabet=alphabet)


def _trained(tokenizer, size, **options):
    trainer = trainers.BpeTrainer(vocab_size=size, show_progress=False, **options)
    tokenizer.train_from_iterator(_texts(), trainer)
    return tokenizer


@cache
def _pieces(special):
    """Pieces behind so many special tokens and the bytes, and which pairs are joined to them."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    _trained(tokenizer, VOCAB - special - len(BYTES))
    learned = json.loads(tokenizer.to_str())["model"]
    return list(learned["vocab"]), list(map(tuple, learned["merges"]))


def _sentencepiece(special):
    """Gemma's kind: characters joined, and bytes for those that are unknown."""
    pieces, merges = _pieces(len(special))
    known = {piece: number for number, piece in enumerate([*special, *BYTES, *pieces])}
    tokenizer = Tokenizer(
        models.BPE(known, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True)
    )
    tokenizer.normalizer = normalizers.Replace(" ", "▁")
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    )
    return tokenizer


def _save_proto(folder, form):
    """Vicuna's tokenizer.model, a SentencePiece file, and nothing beside it but the class that
    reads it."""
    from transformers.convert_slow_tokenizer import import_protobuf

    special = list(form["special"].values())
    proto = import_protobuf().ModelProto()
    spec = proto.trainer_spec
    spec.model_type, spec.byte_fallback = 2, True
    spec.unk_id, spec.bos_id, spec.eos_id, spec.pad_id = 0, 1, 2, -1
    normalizer = proto.normalizer_spec
    normalizer.add_dummy_prefix, normalizer.remove_extra_whitespaces = True, False
    pieces, _ = _pieces(len(special))
    for kind, own in ((2, special[:1]), (3, special[1:]), (6, BYTES), (1, pieces)):
        for piece in own:
            score = -float(len(proto.pieces)) if kind == 1 else 0.0
            proto.pieces.add(piece=piece, type=kind, score=score)
    (folder / "tokenizer.model").write_bytes(proto.SerializeToString())
    read_by = {
        "tokenizer_class": "LlamaTokenizer",
        "legacy": False,
        "add_bos_token": True,
        "add_eos_token": False,
        "model_max_length": 2048,
    }
    tokens = {f"{kind}_token": text for kind, text in form["special"].items()}
    _write(folder / "tokenizer_config.json", read_by | tokens)


def save_sentence_model(folder: Path, labels: tuple[str, ...] = (), layers: int = 2) -> str:
    """A model of meaning of random weights: an encoder, or with `labels` a classifier of pairs; its
    folder."""
    torch.manual_seed(0)
    vocabulary = {word: i for i, word in enumerate(HUB["sentence_words"])}
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
        config.id2label = dict(enumerate(labels))
        config.label2id = {name: i for i, name in enumerate(labels)}
    model = BertForSequenceClassification(config) if labels else BertModel(config)
    model.save_pretrained(folder)
    return str(folder)
