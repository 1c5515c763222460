"""Token ids and texts: answers that continue a prompt, templates that print the date, ids without an embedding."""

from __future__ import annotations

from datetime import date

import pytest
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from methods.batch import Generation
from methods.decode import text_of
from methods.engine import texts
from methods.engine.language_model import LanguageModel
from methods.engine.source import ModelError

PROGRAM = "def add(a, b):\n    return a + b\n\n\n  x = add(1, 2)\n"
TALK = [{"role": "user", "content": "hi"}]


def model_of(kind: str) -> LanguageModel:
    """A tokenizer as in Llama 2's tokenizer.json, whose decoder strips one leading space, or a byte-level one."""
    tokenizer = Tokenizer(models.BPE(byte_fallback=kind == "llama2", unk_token="<unk>"))
    if kind == "llama2":
        tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
        tokenizer.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(),
                                               decoders.Fuse(), decoders.Strip(content=" ", left=1)])
    else:
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator([*PROGRAM.splitlines(True), "one two three four\n"] * 4, trainers.BpeTrainer(
        vocab_size=120, special_tokens=["<unk>", "</s>"], show_progress=False,
        initial_alphabet=[] if kind == "llama2" else pre_tokenizers.ByteLevel.alphabet()))
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="<unk>", eos_token="</s>")
    model = LlamaForCausalLM(LlamaConfig(vocab_size=len(fast), hidden_size=8, intermediate_size=8, num_hidden_layers=1,
                                         num_attention_heads=2, eos_token_id=1))
    return LanguageModel(kind, model, fast, "test")


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


def templated(template: str) -> LanguageModel:
    model = model_of("bytes")
    model.tokenizer.chat_template = template
    return model


@pytest.mark.parametrize(("template", "day", "text"), [
    ("{{ strftime_now('%Y-%m-%d') }}|", None, "2024-07-26|"),  # gpt-oss
    ("{{ strftime_now('%Y-%m-%d') }}|", date(2025, 1, 2), "2025-01-02|"),
    ('{%- set t = "Today: " + strftime_now("%B %d, %Y") %}{{ t }}|', date(2025, 1, 2), "Today: January 02, 2025|"),
    ("{%- if not date_string is defined %}{%- set date_string = strftime_now('%d %b %Y') %}{%- endif %}"
     "{{ date_string }}", None, "26 Jul 2024"),  # Llama 3.2
    ("{%- if not date_string is defined %}{%- set date_string = '26 Jul 2024' %}{% endif %}{{ date_string }}",
     None, "26 Jul 2024"),  # Llama 3.1
    ("{%- if not date_string is defined %}{%- set date_string = '26 Jul 2024' %}{% endif %}{{ date_string }}",
     date(2025, 1, 2), "02 Jan 2025"),
    ("{{ strftime_now('%H:%M:%S') }}", None, "00:00:00"),
])
def test_the_day_that_a_template_prints(template: str, day: date | None, text: str) -> None:
    model = templated(template)
    assert model.decode(model.encode(TALK, day=day)) == text


def test_a_template_that_reads_the_clock_says_which_day_it_is_given(caplog: pytest.LogCaptureFixture) -> None:
    texts._say.cache_clear()
    model = templated("{{ strftime_now('%Y') }}")
    for _ in range(2):
        model.encode(TALK)
    model.encode(TALK, day=date(2025, 1, 2))
    [said] = [record.getMessage() for record in caplog.records]
    assert "2024-07-26" in said and "task.date=YYYY-MM-DD" in said


@pytest.mark.parametrize(("template", "day", "message"), [
    ("{{ messages[0].content }}", date(2025, 1, 2), r"task\.date=2025-01-02: its chat template prints no date"),
    ("{% set f = '%Y' %}{{ strftime_now(f) }}", None, "date cannot be fixed; give pair.chat_template"),
])
def test_days_that_are_refused(template: str, day: date | None, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        templated(template).encode(TALK, day=day)


def test_a_token_without_an_embedding_is_refused() -> None:
    model = templated("{{ messages[0].content }}")
    model.model.resize_token_embeddings(40)
    for encode in (lambda: model.encode_text("zzz"), lambda: model.encode([{"role": "user", "content": "zzz"}])):
        with pytest.raises(ModelError, match=r"its tokenizer gives token \d+, and its embedding has 40 rows"):
            encode()
