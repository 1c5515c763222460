"""Tiny sentence models with random weights, saved as a hub checkpoint is."""

from __future__ import annotations

from pathlib import Path

import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import BertConfig, BertForSequenceClassification, BertModel, PreTrainedTokenizerFast

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
WORDS = ["a", "b", "c", "d", "e", "the", "cat", "dog", "sat", "ran"]


def save_model(folder: Path, labels: tuple[str, ...] = ()) -> str:
    """An encoder, or with `labels` a classifier of pairs; its folder."""
    torch.manual_seed(0)
    vocabulary = {word: i for i, word in enumerate([*SPECIAL, *WORDS])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]",
                            sep_token="[SEP]", model_max_length=32).save_pretrained(folder)
    config = BertConfig(vocab_size=len(vocabulary), hidden_size=16, num_hidden_layers=2, num_attention_heads=2,
                        intermediate_size=32, max_position_embeddings=32, initializer_range=0.5)
    if labels:
        config.num_labels = len(labels)
        config.id2label, config.label2id = dict(enumerate(labels)), {name: i for i, name in enumerate(labels)}
    model = BertForSequenceClassification(config) if labels else BertModel(config)
    model.save_pretrained(folder)
    return str(folder)
