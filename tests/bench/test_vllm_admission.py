"""Which requests a vLLM server takes. Runs without vLLM."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from bench.config.errors import ConfigError
from bench.config.rule_text import LONGEST, rule_of, words_of
from bench.run.vllm.admission import Admission, Offer, Outline, admitted, misplaced
from bench.run.vllm.requests import MOST_SETTINGS, Known, Refused, Requests, Target
from methods import registry
from tests.helpers.in_vllm import cell

OFFER = Offer("prompt_lookup", False, Outline("tiny", 2048))
DEFAULTS = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "seed": None, "presence_penalty": 0.0, "min_p": 0.0,
            "frequency_penalty": 0.0, "repetition_penalty": 1.0, "min_tokens": 0, "logit_bias": None, "bad_words": None,
            "allowed_token_ids": None, "structured_outputs": None, "logprob_token_ids": None, "extra_args": None,
            "thinking_token_budget": None, "trace_decode_token_ids": None}


def params(**given: Any) -> SimpleNamespace:
    return SimpleNamespace(**DEFAULTS | given)


def asks(text: Any, **given: Any) -> SimpleNamespace:
    return params(extra_args={"leeway": text}, **given)


@pytest.fixture(autouse=True)
def no_rule_of_the_operator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LEEWAY_RULE", raising=False)


@pytest.mark.parametrize(("text", "words"), [
    ("rule=mars rule.theta=[", "rule.theta=[: not of the form KEY=VALUE"),
    ('rule=mars rule.theta="!!bool x"', "tags, anchors and aliases are not read"),
    ('rule=mars rule.theta="!!timestamp x"', "tags, anchors and aliases are not read"),
    ('rule=near_top "rule.protected=[&a [1], *a]"', "tags, anchors and aliases are not read"),
    ('rule=mars "', "no closing quotation"),
    ("rule=mars rule.theta=" + "[" * 1900, "more than 5 lists in one another"),
    ("rule=mars rule.theta=" + "[" * LONGEST, f"at most {LONGEST} are read"),
    ("rule=mars rule.theta=2020-13-45", "must be a valid number"),
    ("rule=mars rule.theta=" + "9" * 1900, "rule.theta=999"),
    ('rule=mars "rule.theta=? [a]"', "a key must be a single value"),
    ("rule=mars rule.theta=a\x00", "unacceptable character"),
    ("rule=nope", "rule=nope: unknown; allowed: rule=arc, "),
    ("rule=base", "rule=base: unknown"), ("mars", "mars: unknown; give rule=NAME"),
    ("rule=mars task=gsm8k", "task=gsm8k: unknown; give rule=NAME and rule.OPTION=VALUE"),
    ("rule=fsd", "has none"), ("rule=argmax_only rule.draft=1", "rule.draft: unknown key"),
    ('rule=near_top "rule.protected=[5000]"', "must be token ids of tiny"),
    ('rule=near_top "rule.protected=[[1], [2], [3], [4], [5], [6]]"', "must be a valid integer"),
    ("rule=coarse_grained rule.largest=1024", "compares all pairs of 2048 tokens"),
    ('rule=either "rule.first={name: coarse_grained}" "rule.second={name: typical}"', "compares all pairs"),
    ("rule=dropmatch rule.variant=naive rule.heads=512", "rule.heads=512: at most 16 on a server"),
    ("rule=coarse_grained rule.groups=/etc/passwd", "rule.groups: a request may not name the server's files"),
    ('rule=either "rule.second={name: autojudge, classifier: /dev/null}"', "rule.classifier: a request may not name"),
    (5, "must be texts"), (["rule=mars"], "must be texts")])
def test_a_bad_rule_is_one_line(text: Any, words: str) -> None:
    with pytest.raises(ValueError) as caught:
        admitted(asks(text), OFFER)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["rule=mars rule.theta=2", "rule=mars rule.theta=hello", "rule=mars rule.theta=true",
                                  "rule=typical rule.thetta=1", "rule=relaxed_topk rule.top_n=0", "rule=fsd",
                                  "rule=ears rule.base=-1"])
def test_the_line_is_that_of_the_command_line(text: str) -> None:
    with pytest.raises(ValueError) as caught:
        admitted(asks(text), OFFER)
    with pytest.raises(ConfigError) as command:
        cell("pair=tiny", "task=mini_gsm", "drafter=prompt_lookup", "decoding.temperature=1", *words_of(text))
    theirs = str(command.value).replace(" rule.name,", "")  # the key `name` is that of a YAML
    assert str(caught.value) == theirs


@pytest.mark.parametrize(("given", "words"), [
    ({"presence_penalty": 0.5}, "leave out presence_penalty"), ({"min_p": 0.1}, "leave out min_p"),
    ({"logit_bias": {1: 2.0}}, "logit_bias"), ({"thinking_token_budget": 5}, "thinking_token_budget"),
    ({"extra_args": {"leeway_rule": "rule=mars"}}, "leeway_rule: unknown; allowed: leeway, leeway_key"),
    ({"extra_args": {"leeway_key": "k"}}, "give leeway, or leave out leeway_key"),
    ({"extra_args": {"leeway": "rule=mars", "leeway_key": "k" * 501}}, "at most 500 characters"),
    ({"extra_args": {"leeway": "rule=mars", "leeway_key": 7}}, "must be texts")])
def test_what_no_rule_can_serve_is_refused(given: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        admitted(params(**{"extra_args": {"leeway": "rule=mars"}} | given), OFFER)


def test_the_operators_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first is that of requests without one; the others may be asked for, whatever they cost."""
    assert admitted(params(), OFFER) is None
    monkeypatch.setenv("LEEWAY_RULE", "rule=mars rule.theta=0.5; rule=coarse_grained rule.largest=1024")
    default = admitted(params(extra_args={"leeway_key": "k"}, top_k=-1), OFFER)
    assert default is not None
    assert (default.rule, default.key, default.sampling.top_k) == (rule_of(["rule=mars", "rule.theta=0.5"]), "k", 0)
    assert admitted(asks("rule=coarse_grained rule.largest=1024"), OFFER) is not None
    assert admitted(asks(""), OFFER) is None
    with pytest.raises(ValueError, match="the operator may name such a rule in LEEWAY_RULE"):
        admitted(asks("rule=coarse_grained rule.largest=1023"), OFFER)


@pytest.mark.parametrize("name", registry.names("rules"))
def test_every_rule_is_taken_or_refused_in_one_line(name: str) -> None:
    for temperature in (0.0, 1.0):
        try:
            found = admitted(asks(f"rule={name}", temperature=temperature), OFFER)
            assert found is not None and found.rule.name == name
        except ValueError as error:
            assert "\n" not in str(error)


def test_a_worker_keeps_the_latest_settings_alone() -> None:
    own = Requests(OFFER, 4, torch.device("cpu"))
    own.target = Target(None, Known("tiny", "0"), 8, torch.device("cpu"))
    for number in range(MOST_SETTINGS + 10):
        own.of(f"r{number}", asks(f"rule=mars\nrule.theta=0.5{number}"), lambda: [1])
    assert len(own.settings) == MOST_SETTINGS
    with pytest.raises(Refused, match="rule=nope: unknown"):
        own.of("bad", asks("rule=nope"), lambda: [1])
    assert len(own.refusals) == 1


def test_each_sample_of_a_request_has_its_own_numbers() -> None:
    """By the names that vLLM gives them: N_ before the request's own. The first is that of a single answer."""
    own = Requests(OFFER, 4, torch.device("cpu"))
    own.target = Target(None, Known("tiny", "0"), 8, torch.device("cpu"))
    keyed = params(extra_args={"leeway": "rule=mars", "leeway_key": "7/q"})

    def key(name: str, given: Any) -> str:
        served = own.of(name, given, lambda: [1])
        assert served is not None
        return served.key

    assert [key(name, keyed) for name in ("cmpl-a-0-1b", "0_cmpl-a-0-1b", "1_cmpl-a-0-1b", "12_cmpl-a-0-1b")] == [
        "7/q", "7/q", "7/q sample 1", "7/q sample 12"]
    assert key("x", asks("rule=mars", seed=1)) == key("y", asks("rule=mars", seed=1)) != key(
        "z", asks("rule=mars", seed=2))
    assert key("u", asks("rule=mars")) == "u"


@pytest.mark.parametrize(("body", "words"), [
    ({"prompt": "x", "leeway": "rule=mars"}, "leeway: unknown; give"),
    ({"leeway_key": "k", "vllm_xargs": {}}, "leeway_key: unknown; give"),
    ({"vllm_xargs": {"leeway": "rule=mars"}, "prompt": "leeway"}, None), ({"prompt": "leeway"}, None),
    (["leeway"], None)])
def test_fields_that_vllm_would_leave_out(body: Any, words: str | None) -> None:
    found = misplaced(json.dumps(body).encode())
    assert (found is None) if words is None else (words in str(found))


def test_the_middleware_passes_a_body_on_as_it_came() -> None:
    """In its parts; and the check of the engine's client is put in once."""
    seen: list[bytes] = []
    config = SimpleNamespace(
        speculative_config=None, parallel_config=SimpleNamespace(tensor_parallel_size=1),
        model_config=SimpleNamespace(model="tiny", get_vocab_size=lambda: 8),
        device_config=SimpleNamespace(device_type="cpu"))
    processor = SimpleNamespace(validate_logits_processors_params=None)
    state = SimpleNamespace(engine_client=SimpleNamespace(input_processor=processor, vllm_config=config))
    sent: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        more = True
        while more:
            message = await receive()
            seen.append(message["body"])
            more = message.get("more_body", False)

    async def ask(*parts: bytes) -> None:
        waiting = iter(parts)

        async def receive() -> dict[str, Any]:
            part = next(waiting)
            return {"type": "http.request", "body": part, "more_body": part is not parts[-1]}

        async def send(message: Any) -> None:
            sent.append(message)

        await admission({"type": "http", "method": "POST", "app": SimpleNamespace(state=state)}, receive, send)

    admission = Admission(app)
    asyncio.run(ask(b'{"prompt": ', b'"x"}'))
    check = processor.validate_logits_processors_params
    asyncio.run(ask(b'{"leeway": ', b'"rule=mars"}'))
    assert seen == [b'{"prompt": ', b'"x"}']
    assert sent[0]["status"] == 400 and b"vllm_xargs" in sent[1]["body"]
    assert processor.validate_logits_processors_params is check
