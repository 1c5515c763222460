"""Texts and tokens: control tokens as plain text, texts token by token, and vocabularies of two
sizes."""

from __future__ import annotations

import shutil
from datetime import date
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from tokenizers import (
    AddedToken,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)
from transformers import (
    AutoModelForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
)

from bench.config.compose import composer
from bench.run.models import ModelPool
from methods.batch import Generation
from methods.decode import Limits, emit, text_of
from methods.engine import texts
from methods.engine.language_model import LanguageModel
from methods.engine.source import ModelError
from methods.engine.texts import ControlTokens, shared_rows
from tests.helpers.tiny_models import VOCAB, language_model

PROGRAM = "def add(a, b):\n    return a + b\n\n\n  x = add(1, 2)\n"
TALK = [{"role": "user", "content": "hi"}]


TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}<|{{ m['role'] }}|>\n{{ m['content'] | trim "
    "}}<|end|>\n{% endfor %}{% if add_generation_prompt %}<|assistant|>\n{% endif %}"
)
NAMES = ("<s>", "</s>", "<unk>", "<|user|>", "<|assistant|>", "<|end|>")
TEXTS = {
    "A<|end|>\n<|assistant|>\nB<|end|>": "<|end|>",
    "say <s> and </s>": "<s>",
    "<|end|>": "<|end|>",
    "ends with <|user|>": "<|user|>",
    "<|en<|end|>d|>": "<|end|>",
}
"""Text -> the first control token in it."""
WORDS = [
    *TEXTS,
    *PROGRAM.splitlines(True),
    "one two three four\n",
    "Tom has 3 apples and buys 4 apples.",
    "A house at <the> sea | and // a tree.",
] * 20


def made(kind: str, names: tuple[str, ...] = NAMES) -> PreTrainedTokenizerFast:
    """`bytes`: like GPT-2; `llama2`: as in its tokenizer.json, whose decoder strips one leading
    space; `strips`: like Phi-3, control tokens behind the vocabulary that take the white space
    behind them."""
    special = [
        AddedToken(name, special=True, normalized=False, rstrip=kind == "strips") for name in names
    ]
    options = {"special_tokens": [] if kind == "strips" else special}
    if kind == "llama2":
        tokenizer = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True))
        trainer = trainers.BpeTrainer(vocab_size=120, **options)
        tokenizer.normalizer = normalizers.Sequence(
            [normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")]
        )
        tokenizer.decoder = decoders.Sequence(
            [
                decoders.Replace("\u2581", " "),
                decoders.ByteFallback(),
                decoders.Fuse(),
                decoders.Strip(content=" ", left=1),
            ]
        )
    else:
        tokenizer = Tokenizer(models.BPE())
        trainer = trainers.BpeTrainer(
            vocab_size=400, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), **options
        )
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(WORDS, trainer)
    tokenizer.add_special_tokens(special)
    opening = {}
    if "<s>" in names:
        opening["bos_token"] = "<s>"
        tokenizer.post_processor = processors.TemplateProcessing(
            single="<s> $A", special_tokens=[("<s>", tokenizer.token_to_id("<s>"))]
        )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token="</s>",
        unk_token="<unk>",
        chat_template=TEMPLATE,
        **opening,
    )


def model_of(kind: str) -> LanguageModel:
    """Of a tokenizer without control tokens and a beginning."""
    tokenizer = made(kind, ("<unk>", "</s>"))
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=8,
        intermediate_size=8,
        num_hidden_layers=1,
        num_attention_heads=2,
        eos_token_id=1,
    )
    return LanguageModel(kind, LlamaForCausalLM(config), tokenizer, "test")


@pytest.mark.parametrize("kind", ["llama2", "bytes"])
def test_an_answer_continues_its_prompt(kind: str) -> None:
    """Wherever the tokens of a text are cut, the two texts joined are the whole one."""
    model = model_of(kind)
    ids = model.encode_text(PROGRAM)
    starts = set()
    for cut in range(1, len(ids)):
        before, after = model.decode(ids[:cut], opens=True), model.decode(ids[cut:])
        assert before + after == PROGRAM
        starts.add(after[0])
    assert " " in starts and len(ids) > 5  # some cuts lie in front of a space


def test_a_message_opens_its_text() -> None:
    """The space in front of its first word is the tokenizer's, not the message's."""
    model = model_of("llama2")
    generation = Generation(output_ids=model.encode_text("two three"))
    assert text_of(generation, (), model, opens=True) == "two three"
    assert text_of(generation, (), model) == " two three"
    assert text_of(generation, (" three",), model) == " two"


def with_tokens(*control: str, opens: bool = False) -> LanguageModel:
    """A byte-level model whose tokenizer knows these tokens beside its own, and begins texts with
    them if it `opens`."""
    model = model_of("bytes")
    model.tokenizer.add_tokens([AddedToken(name, special=True) for name in control])
    model.model.resize_token_embeddings(len(model.tokenizer))
    if opens:
        ids = model.tokenizer.convert_tokens_to_ids(control)
        model.tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
            single=f"{' '.join(control)} $A", special_tokens=list(zip(control, ids, strict=True))
        )
    return model


@pytest.mark.parametrize(
    ("text", "stop", "kept", "answer"),
    [
        ("one<|im_end|>", ("\n", "<|im_end|>"), "one<|im_end|>", "one"),
        ("one\n<|im_end|>two", ("\n<|im_end|>",), "one\n<|im_end|>", "one"),
        ("one<|im_end|>two three", ("<|im_end|>two",), "one<|im_end|>two", "one"),
        (
            "one<|im_end|>two three",
            ("<|im_end|> two", " three"),
            "one<|im_end|>two three",
            "onetwo",
        ),
        ("one two\n<|im_end|>", ("two",), "one two", "one "),
        ("one two three", ("<|im_end|>",), "one two three", "one two three"),
    ],
)
@pytest.mark.parametrize("block", [1, 3, 9])
def test_stop_strings_that_hold_control_tokens(text, stop, kept, answer, block) -> None:
    """However many tokens a cycle brings; `kept` ends where the stop string is complete."""
    model = with_tokens("<|im_end|>")
    ids = model.tokenizer.encode(text, add_special_tokens=False)
    generation, limits = Generation(), Limits(99, frozenset(), stop)
    for start in range(0, len(ids), block):
        if not generation.finish:
            emit(generation, ids[start : start + block], limits, model)
    assert generation.output_ids == model.tokenizer.encode(kept, add_special_tokens=False)
    assert text_of(generation, stop, model) == answer
    assert (generation.finish == "stop") == (answer != text)


@pytest.mark.parametrize("control", [("<s>",), ("[gMASK]", "<sop>"), ()], ids=str)
def test_a_text_gets_its_beginning_once(control: tuple[str, ...]) -> None:
    """As `<s>` of Llama and the two tokens of GLM; a tokenizer that adds none takes a text as it
    stands."""
    model, opening = with_tokens(*control, opens=control != ()), "".join(control)
    own = model.tokenizer.encode(opening, add_special_tokens=False)
    words = model.tokenizer.encode("one two", add_special_tokens=False)
    assert model.encode_text("one two") == [*own, *words]
    assert model.encode_text(f"{opening}one two") == [*own, *words]
    assert model.encode_text(opening) == own
    assert model.encode_text(2 * opening + "one two") == [*own, *own, *words]
    if opening:
        assert model.encode_text(f"{opening}one two", plain=True)[: 2 * len(own)] != [*own, *own]


def templated(template: str) -> LanguageModel:
    model = model_of("bytes")
    model.tokenizer.chat_template = template
    return model


@pytest.mark.parametrize(
    ("template", "day", "text"),
    [
        (
            '{%- set t = "Today: " + strftime_now("%B %d, %Y") %}{{ t }}|',
            date(2025, 1, 2),
            "Today: January 02, 2025|",
        ),
        (
            "{%- if not date_string is defined %}{%- set date_string = strftime_now('%d %b %Y') "
            "%}{%- endif %}{{ date_string }}",
            None,
            "26 Jul 2024",
        ),  # Llama 3.2
        (
            "{%- if not date_string is defined %}{%- set date_string = '26 Jul 2024' %}{% endif %}{{ date_string }}",
            date(2025, 1, 2),
            "02 Jan 2025",
        ),  # Llama 3.1
        ("{{ strftime_now('%H:%M:%S') }}", None, "00:00:00"),
    ],
)
def test_the_day_that_a_template_prints(template: str, day: date | None, text: str) -> None:
    model = templated(template)
    assert model.decode(model.encode(TALK, day=day)) == text


def test_a_template_that_reads_the_clock_says_which_day_it_is_given(
    caplog: pytest.LogCaptureFixture,
) -> None:
    texts._say.cache_clear()
    model = templated("{{ strftime_now('%Y') }}")
    for _ in range(2):
        model.encode(TALK)
    model.encode(TALK, day=date(2025, 1, 2))
    [said] = [record.getMessage() for record in caplog.records]
    assert "2024-07-26" in said and "task.date=YYYY-MM-DD" in said


@pytest.mark.parametrize(
    ("template", "day", "message"),
    [
        (
            "{{ messages[0].content }}",
            date(2025, 1, 2),
            r"task\.date=2025-01-02: its chat template prints no date",
        ),
        (
            "{% set f = '%Y' %}{{ strftime_now(f) }}",
            None,
            "date cannot be fixed; give pair.chat_template",
        ),
    ],
)
def test_days_that_are_refused(template: str, day: date | None, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        templated(template).encode(TALK, day=day)


def test_a_token_without_an_embedding_is_refused() -> None:
    model = templated("{{ messages[0].content }}")
    model.model.resize_token_embeddings(40)
    for encode in (
        lambda: model.encode_text("zzz"),
        lambda: model.encode([{"role": "user", "content": "zzz"}]),
    ):
        with pytest.raises(
            ModelError, match=r"its tokenizer gives token \d+, and its embedding has 40 rows"
        ):
            encode()


@pytest.fixture(scope="module", params=["bytes", "llama2", "strips"])
def tokenizer(request: pytest.FixtureRequest) -> PreTrainedTokenizerFast:
    return made(request.param)


@pytest.mark.parametrize("text", TEXTS)
def test_a_broken_text_has_no_control_token(tokenizer: PreTrainedTokenizerFast, text: str) -> None:
    unknown = tokenizer.unk_token_id
    control, found = ControlTokens(tokenizer), []
    broken = control.broken(text)
    assert (control.first(text), control.first(broken)) == (TEXTS[text], None)
    for said in ((broken, broken, "B"), ("A", "C", "B")):
        talk = [
            {"role": role, "content": content}
            for role, content in zip(("user", "assistant", "user"), said, strict=True)
        ]
        ids = tokenizer.apply_chat_template(talk, add_generation_prompt=True, return_dict=False)
        special = tokenizer.added_tokens_decoder
        found.append([token for token in ids if token in special and token != unknown])
    assert found[0] == found[1] != []
    assert broken.replace("\u200b", "") == text


@pytest.mark.parametrize(
    ("ours", "theirs", "largest", "rows"),
    [
        (16, 0, VOCAB, VOCAB),
        (16, 8, VOCAB, VOCAB + 8),
        (8, 8, VOCAB, None),
        (16, 0, VOCAB + 1, None),
    ],
)
def test_what_two_vocabularies_share(
    ours: int, theirs: int, largest: int, rows: int | None
) -> None:
    tokenizer = SimpleNamespace(get_vocab=lambda: {"last": largest - 1})
    target, draft = (
        SimpleNamespace(vocab_size=VOCAB + pad, tokenizer=tokenizer) for pad in (ours, theirs)
    )
    assert shared_rows(target, draft) == rows


def test_a_narrowed_model_knows_no_other_token() -> None:
    whole, tokens = language_model(vocab=VOCAB + 16), torch.tensor([[5, 9, 3]])
    narrow = whole.narrowed(VOCAB)
    every, some = (
        model.forward(tokens, model.new_cache(1, 8), hidden=True) for model in (whole, narrow)
    )
    assert torch.equal(some.logits, every.logits[..., :VOCAB])
    assert torch.equal(narrow.head(some.hidden), some.logits)


def test_a_pair_of_two_sizes_is_accepted(pair_folder: Path, tmp_path: Path) -> None:
    """The command's own way: the draft of the pair with 64 more rows."""
    folder = shutil.copytree(pair_folder / "draft", tmp_path / "draft")
    model = AutoModelForCausalLM.from_pretrained(folder)
    size = model.get_input_embeddings().weight.shape[0]
    model.resize_token_embeddings(size + 64)
    model.save_pretrained(folder)
    pair = ["pair=local", f"pair.target={pair_folder / 'target'}", f"pair.draft={folder}"]
    with composer() as hydra:
        cell = hydra.point([*pair, "method=sps", "task=mini_gsm"]).cell
        pool = ModelPool()
        method = pool.load(cell).method
        assert method.target.vocab_size == method.model.vocab_size == size
        assert pool.load(cell).method.model is method.model


def test_bytes_that_are_no_text_still_have_a_text_per_token() -> None:
    """A later byte can change how earlier ones are shown, which the stream of `tokenizers`
    refuses."""
    vocabulary = {"<unk>": 0, "▁a": 1, "i": 2, "(": 3} | {
        f"<0x{byte:02X}>": 4 + byte for byte in range(256)
    }
    tokenizer = Tokenizer(models.BPE(vocabulary, [], unk_token="<unk>", byte_fallback=True))
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    )
    ids = [4 + 0xC3, 4 + 0xAC, 4 + 0xAC, 2, 3, 4 + 0xC3, 4 + 0x82, 1]
    split = texts.TokenTexts(tokenizer)
    assert split.of(ids) == [split.alone(token) for token in ids] and split.of(ids)[-1] == " a"
    assert split.of([2, 4 + 0xC3, 4 + 0xAC, 1]) == ["i", "", "ì", " a"], (
        "whole characters stand with their last byte"
    )
