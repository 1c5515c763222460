"""Any lm-eval task, any method: `leeway-lm-eval --model leeway --model_args method=mars,pair=tiny
--tasks ifeval`.

`model_args` are overrides of `python -m bench`: method, pair, drafter.KEY, rule.KEY, draft.length,
engine.KEY, seed …. lm-eval has no plug-ins: `leeway-lm-eval`, or `python -m bench.lm_eval_adapter`,
registers the model `leeway` and runs lm-eval's own command line. Generation goes through the decode
loop; log-likelihoods are the target's own, since there is nothing to draft.
"""

from __future__ import annotations

import hashlib
import logging
import sys
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from lm_eval.api.instance import Instance
from lm_eval.api.model import TemplateLM
from lm_eval.api.registry import register_model
from lm_eval.models.utils import normalize_gen_kwargs
from tqdm import tqdm

from bench.cli.command import run_command
from bench.run.models import ModelPool
from bench.run.one_cell import open_cell
from methods.decode import Limits, Request, generate, text_of
from methods.engine import texts
from methods.method import Method

log = logging.getLogger(__name__)


@register_model("leeway")
class LeewayLM(TemplateLM):
    """One cell's method behind lm-eval's interface."""

    def __init__(
        self,
        batch_size: int | str = 1,
        max_batch_size: int | None = None,
        device: str | None = None,
        max_gen_toks: int = 256,
        think_end_token: str | None = None,
        **overrides: Any,
    ) -> None:
        """`batch_size`: prompts decoded together. `think_end_token`: the mark that ends a
        reasoning; None: those that the tokenizer or its template names. `overrides`: as in the
        module's docstring. Raises ValueError, ModelError."""
        super().__init__()
        if not str(batch_size).isdigit():
            raise ValueError(
                f"batch_size={batch_size}: must be a number, because the decode loop keeps "
                "shapes fixed"
            )
        lines = [f"{key}={'null' if value is None else value}" for key, value in overrides.items()]
        # lm-eval's command passes "cuda:0" by default; its own models fall back to the CPU if there
        # is no GPU
        missing = device is None or (device.startswith("cuda") and not torch.cuda.is_available())
        if not missing and "engine.device" not in overrides:
            lines.append(f"engine.device={device}")
        decided = ("task=", "decoding.", "n=", "batch=")
        if fixed := [line for line in lines if line.startswith(decided)]:
            raise ValueError(
                f"{fixed[0]}: lm-eval decides this; give --tasks, --gen_kwargs, --limit or "
                "--batch_size"
            )
        self._pool = ModelPool()
        self.cell, method = open_cell(lines, self._pool)
        self.batch_size = int(batch_size)
        self.max_gen_toks = max_gen_toks
        self._warned = False  # about a truncated prompt
        self._methods = dict[tuple, Method]()
        self.target, self._model = method.target, method.model
        self.tokenizer: Any = self.target.tokenizer
        self._device = self.target.device
        self.think_end = (
            self.target.think_end if think_end_token is None else (str(think_end_token),)
        )

    def generate_until(self, requests: list[Instance], disable_tqdm: bool = False) -> list[str]:
        """Each request's text, up to the first of its `until` strings. Raises ValueError."""
        texts: dict[int, str] = {}
        groups: dict[str, list[int]] = defaultdict(list)
        for index, request in enumerate(requests):
            groups[repr(sorted(request.args[1].items(), key=str))].append(index)
        # All are checked first: one call holds the requests of several tasks, and each task may
        # take hours.
        settings = {
            name: self._wanted(requests[indices[0]].args[1]) for name, indices in groups.items()
        }
        repeats: Counter[str] = Counter()
        with tqdm(total=len(requests), disable=disable_tqdm, desc="leeway: generate_until") as bar:
            for name, indices in groups.items():
                wanted, limits = settings[name]
                method = self._method(wanted)
                for start in range(0, len(indices), self.batch_size):
                    batch = indices[start : start + self.batch_size]
                    asked = [
                        self._request(requests[index].args[0], limits, repeats) for index in batch
                    ]
                    for index, answer in zip(batch, generate(method, asked, limits), strict=True):
                        texts[index] = text_of(
                            answer, limits.stop, self.target, think_end=limits.think_end
                        )
                        self.cache_hook.add_partial(
                            "generate_until", requests[index].args, texts[index]
                        )
                    bar.update(len(batch))
        return [texts[index] for index in range(len(requests))]

    def _wanted(self, asked: Mapping[str, Any]) -> tuple[dict[str, Any], Limits]:
        """A request's settings in lm-eval's full form, and the limits of its answers. Raises
        ValueError."""
        wanted = normalize_gen_kwargs(dict(asked), self.max_gen_toks)
        if wanted["max_gen_toks"] >= self.max_length:
            raise ValueError(
                f"max_gen_toks={wanted['max_gen_toks']}: leaves no room for a prompt in the "
                f"model's {self.max_length} positions; give --gen_kwargs max_gen_toks=N with a "
                "smaller N"
            )
        until = tuple(filter(None, wanted["until"]))
        return wanted, Limits(wanted["max_gen_toks"], self.target.eos_ids, until, self.think_end)

    def _request(self, context: str, limits: Limits, repeats: Counter[str]) -> Request:
        """A prompt, truncated from the left as lm-eval does. Its random stream depends on its text
        and on how often it was asked before (repeats)."""
        ids = self.tok_encode(context)
        room = self.max_length - limits.max_new_tokens
        if len(ids) > room and not self._warned:
            self._warned = True
            log.warning(
                "a prompt of %d tokens is truncated to its last %d: max_gen_toks=%d leaves no "
                "more of the model's %d positions (further prompts may be truncated without a "
                "warning)",
                len(ids),
                room,
                limits.max_new_tokens,
                self.max_length,
            )
        ids = ids[-room:]
        name = hashlib.sha256(context.encode()).hexdigest()[:16]
        repeats[name] += 1
        return Request(
            ids, f"{self.cell.seed}/lm_eval/{name}/{self.cell.repeat}/{repeats[name] - 1}"
        )

    def _method(self, wanted: Mapping[str, Any]) -> Method:
        """The cell's method under one request's sampling settings."""
        names = ("temperature", "top_p", "top_k", "min_p")
        sampling = {name: wanted[name] for name in names if wanted.get(name) is not None}
        key = tuple(sorted(sampling.items()))
        if key not in self._methods:
            cell = self.cell.replace(decoding=self.cell.decoding.model_copy(update=sampling))
            self._methods[key] = self._pool.load(cell).method
        return self._methods[key]

    @torch.inference_mode()
    def _loglikelihood_tokens(
        self,
        requests: list[tuple[tuple[str, str], list[int], list[int]]],
        disable_tqdm: bool = False,
        **_: Any,
    ) -> list[tuple[float, bool]]:
        """(log-probability of the continuation, whether greedy decoding gives it) for each
        request."""
        results = []
        for _texts, context, continuation in tqdm(
            requests, disable=disable_tqdm, desc="leeway: loglikelihood"
        ):
            ids = (context + continuation)[-(self.max_length + 1) :]
            tokens = torch.tensor([ids[:-1]], device=self.device)
            cache = self.target.new_cache(1, tokens.shape[1])
            logits = self.target.forward(tokens, cache).logits[0, -len(continuation) :]
            expected = torch.tensor(continuation, device=self.device)
            log_p = logits.log_softmax(-1).gather(-1, expected[:, None]).sum()
            results.append((float(log_p), bool((logits.argmax(-1) == expected).all())))
        return results

    def loglikelihood_rolling(
        self, requests: list[Instance], disable_tqdm: bool = False
    ) -> list[float]:
        """Log-probability of whole texts, in windows of the model's length, each with one token of
        context."""
        from lm_eval.utils import get_rolling_token_windows, make_disjoint_window

        totals = []
        for request in requests:
            tokens = self.tok_encode(request.args[0])
            windows = get_rolling_token_windows(tokens, self.prefix_token_id, self.max_length, 1)
            pairs = [(("", ""), *make_disjoint_window(window)) for window in windows]
            totals.append(
                sum(value for value, _ in self._loglikelihood_tokens(pairs, disable_tqdm=True))
            )
        return totals

    @property
    def max_length(self) -> int:
        """Positions of the shortest model the method runs."""
        models = (self.target, self._model)
        return min(model.max_positions for model in models if model is not None)

    @property
    def eot_token_id(self) -> int:
        return self.tokenizer.eos_token_id

    @property
    def prefix_token_id(self) -> int:
        first = self.tokenizer.bos_token_id
        return self.eot_token_id if first is None else first

    def tok_encode(
        self, string: str, add_special_tokens: bool | None = None, **_: Any
    ) -> list[int]:
        """Token ids. A text that begins with the beginning-of-sequence token (of a chat template)
        gets no second."""
        if add_special_tokens is None:
            return self.target.encode_text(string)
        return self.tokenizer.encode(string, add_special_tokens=add_special_tokens)

    @property
    def tokenizer_name(self) -> str:
        return self.target.source.replace("/", "__")

    def apply_chat_template(
        self, chat_history: list[dict[str, str]], add_generation_prompt: bool = True
    ) -> str:
        return self.tokenizer.apply_chat_template(
            chat_history,
            tokenize=False,
            add_generation_prompt=add_generation_prompt,
            continue_final_message=not add_generation_prompt,
            **texts.fixed_date(self.target.source, self.tokenizer.chat_template, None),
        )

    def chat_template(self, chat_template: bool | str = False) -> str | None:
        return self.tokenizer.chat_template if chat_template else None


def main(argv: Sequence[str] | None = None) -> int:
    """lm-eval's command line with the model `leeway` registered. Exit status: 0 done, 2 the command
    is wrong."""
    from lm_eval.__main__ import cli_evaluate

    if argv is not None:
        sys.argv[1:] = argv
    return run_command(cli_evaluate)


if __name__ == "__main__":
    sys.exit(main())
