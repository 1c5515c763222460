"""Which requests a vLLM server takes: `--middleware bench.run.vllm.admission.Admission`, and again in the worker.

A request names its rule in `SamplingParams.extra_args` (`vllm_xargs` of the server's requests): `leeway`, as on this
project's command line, `rule=mars rule.theta=0.9`, and `leeway_key`, the name of its random numbers. The environment
variable LEEWAY_RULE names the operator's rules, separated by `;`. The first is that of all requests which name none;
without it they keep the engine's own sampler. Runs in vLLM's environment."""

from __future__ import annotations

import json
import os
from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import Any

from starlette.responses import JSONResponse

from bench.config.rule_text import options_of, read, words_of
from bench.config.section import parse
from methods import registry
from methods.rules.base import DraftCapabilities, Rule
from methods.sampling import Sampling
from results.store.errors import one_line

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]

DEFAULT = "LEEWAY_RULE"
DRAFTERS = {"ngram": "prompt_lookup", "draft_model": "model", "eagle3": "eagle3", "eagle": "eagle", "medusa": "medusa",
            "suffix": "suffix", None: "none"}
"""vLLM's name of a drafter -> the name here."""
NAMES = ("leeway", "leeway_key")
LONGEST_KEY = 500
OPERATOR = f"the operator may name such a rule in {DEFAULT}"
ONE_DEVICE = ("the rule reads the target's embedding, of which each tensor-parallel rank has a part: take one device")


class Unknown(LookupError):
    """A rule binds to weights that this process does not have."""


@dataclass(frozen=True)
class Outline:
    """A target as far as it is known without its weights (`methods.rules.base.Rule.bind`)."""

    source: str
    vocab_size: int
    devices: int = 1
    head: None = None

    @property
    def embedding(self) -> Any:
        if self.devices > 1:
            raise ValueError(ONE_DEVICE)
        raise Unknown


@dataclass(frozen=True)
class Offer:
    """What a server has to offer to rules. `drafter`: its name here; `is_drawn`: above temperature 0 drafts carry the
    distribution they are from; `is_ours`: all requests are this project's own, and may cost what they like."""

    drafter: str
    is_drawn: bool
    target: Outline
    on_cpu: bool = False
    is_ours: bool = False

    @classmethod
    def of(cls, config: Any) -> Offer:
        """That of a VllmConfig."""
        spec, model = config.speculative_config, config.model_config
        method = spec and spec.method
        return cls(DRAFTERS.get(method, str(method)), spec is not None and spec.draft_sample_method == "probabilistic",
                   Outline(model.model, model.get_vocab_size(), config.parallel_config.tensor_parallel_size),
                   config.device_config.device_type == "cpu")


@dataclass(frozen=True)
class Admitted:
    """A request's rule, not yet bound; `key` names its random numbers, if the request does."""

    text: str
    rule: Rule
    sampling: Sampling
    key: str | None


def operators_rules() -> list[str]:
    """The texts of LEEWAY_RULE; the first is that of all requests that name none, and may be empty."""
    return [text.strip() for text in os.environ.get(DEFAULT, "").split(";")]


def admitted(params: Any, offer: Offer) -> Admitted | None:
    """The rule of a request with these SamplingParams; None for one that keeps the engine's own sampler. Raises
    ValueError, one line, for a request that must not run."""
    given = params.extra_args or {}
    if wrong := [name for name in given if name.startswith("leeway") and name not in NAMES]:
        raise ValueError(f"{wrong[0]}: unknown; allowed: {', '.join(NAMES)}")
    text, key = given.get("leeway", operators_rules()[0]), given.get("leeway_key")
    if not isinstance(text, str) or not isinstance(key, str | None) or len(key or "") > LONGEST_KEY:
        raise ValueError(f"leeway and leeway_key: must be texts, the key of at most {LONGEST_KEY} characters")
    if not text:
        if key is not None:
            raise ValueError("leeway_key names the random numbers of a rule: give leeway, or leave out leeway_key")
        if offer.on_cpu and params.seed is not None:
            raise ValueError("seed: vLLM's own sampler stops a server on CPUs when it reads such a prompt in parts; "
                             "leave out seed, or give a rule")
        return None
    if reason := unsupported(params):
        raise ValueError(reason)
    name, options = read(words_of(text))
    is_free = offer.is_ours or text in operators_rules()
    if not is_free and (files := sorted(options_of(options) & _file_options())):
        raise ValueError(f"rule.{files[0]}: a request may not name the server's files; {OPERATOR}")
    rule = parse(registry.rule(name), {"rule": options}, "rule")
    sampling = Sampling(float(params.temperature), 0 if params.top_k == -1 else int(params.top_k), float(params.top_p))
    _check(rule, sampling, offer)
    if not is_free and (reason := rule.too_much(offer.target.vocab_size)):
        raise ValueError(f"{reason}; {OPERATOR}")
    return Admitted(text, rule, sampling, key)


def _check(rule: Rule, sampling: Sampling, offer: Offer) -> None:
    sampled = offer.is_drawn and not sampling.greedy
    rule.check(DraftCapabilities(offer.drafter, sampled, sampled), sampling)
    if sampled and (sampling.top_k or sampling.top_p < 1.0):
        raise ValueError("vLLM draws drafts with the temperature alone: give no top_k and top_p, or "
                         "draft_sample_method=greedy")
    if not offer.is_ours:
        with suppress(Unknown):
            rule.bind(offer.target, None)  # type: ignore[arg-type]  # what rules bind to, no more


@cache
def _file_options() -> frozenset[str]:
    return frozenset(name for rule in registry.names("rules")
                     for name, field in registry.rule(rule).model_fields.items() if "Path" in repr(field.annotation))


def unsupported(params: Any) -> str | None:
    """Why the rules cannot serve a request with these SamplingParams; None where they can."""
    given = [name for name, default in (
        ("presence_penalty", 0.0), ("frequency_penalty", 0.0), ("repetition_penalty", 1.0), ("min_p", 0.0),
        ("min_tokens", 0), ("logit_bias", None), ("bad_words", None), ("allowed_token_ids", None),
        ("structured_outputs", None), ("logprob_token_ids", None), ("thinking_token_budget", None),
        ("trace_decode_token_ids", None)) if (getattr(params, name, default) or default) != default]
    return f"rules see the target's own distribution: leave out {', '.join(given)}" if given else None


class Admission:
    """An ASGI middleware. vLLM's server asks its logits processors' `validate_params` before a request reaches the
    engine, but loads none beside speculative decoding: this one puts the check of rules beside theirs, so that the
    server answers 400 with its line."""

    def __init__(self, app: App) -> None:
        self.app = app
        self.is_installed = False

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] in ("http", "websocket") and not self.is_installed:
            install(scope["app"].state.engine_client)
            self.is_installed = True
        if scope["type"] != "http" or scope["method"] != "POST":
            return await self.app(scope, receive, send)
        messages = [await receive()]
        while messages[-1].get("more_body"):
            messages.append(await receive())
        if reason := misplaced(b"".join(message.get("body", b"") for message in messages)):
            error = {"message": reason, "type": "BadRequestError", "param": None, "code": 400}
            return await JSONResponse({"error": error}, 400)(scope, receive, send)
        waiting = iter(messages)

        async def again() -> MutableMapping[str, Any]:
            return next(waiting, None) or await receive()

        return await self.app(scope, again, send)


def install(client: Any) -> None:
    """Let an engine's client check each request's rule when it is handed in. Raises AttributeError for a vLLM without
    this check."""
    processor, offer = client.input_processor, Offer.of(client.vllm_config)
    others = processor.validate_logits_processors_params

    def validate(params: Any) -> None:
        others(params)
        try:
            admitted(params, offer)
        except (ValueError, OSError) as error:
            from vllm.exceptions import VLLMValidationError

            raise VLLMValidationError(one_line(error)) from error

    processor.validate_logits_processors_params = validate


def misplaced(body: bytes) -> str | None:
    """A rule where vLLM would leave it out without a word; None where there is none."""
    if b"leeway" not in body:
        return None
    try:
        given = json.loads(body)
    except (ValueError, RecursionError):
        return None  # the server says what is wrong
    if not isinstance(given, dict):
        return None
    if wrong := [name for name in given if name.startswith("leeway")]:
        return f'{wrong[0]}: unknown; give "vllm_xargs": {{"leeway": …, "leeway_key": …}}'
    return None
