"""`engine.name=vllm`: vLLM as an engine of the runner, with this project's rules in it
(docs/serving.md).

Cells with the same pair, drafter, draft length K, engine settings and way of drawing drafts share
a server; the rule and all other decoding settings change from call to call."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from bench.config.engine import PYTHON
from bench.run.pool import ProcessPool
from bench.run.vllm.export import drafter_of, identity, target_of
from bench.run.vllm.server import StreamedAnswer, VllmServer
from methods.batch import Generation
from methods.decode import CycleOutcome, TooLong, count_cycle, emit
from methods.engine.families import check_generation_config
from methods.engine.loading import load_model

if TYPE_CHECKING:
    from torch import Tensor

    from bench.config.cell import Cell
    from methods.decode import Limits, Request
    from methods.engine.language_model import LanguageModel

METHODS = {"prompt_lookup": "ngram", "model": "draft_model", "eagle3": "eagle3", "medusa": "medusa"}
"""Drafter -> vLLM's name of it."""


def speculative(cell: Cell) -> dict[str, Any] | None:
    """vLLM's `speculative_config` of a cell; None for plain decoding. Raises ModelError."""
    name = cell.drafter.name
    if name == "none":
        return None
    config = {
        "method": METHODS[name],
        "num_speculative_tokens": cell.drafter.options.nodes(cell.draft.length) - 1,
    }
    if name == "prompt_lookup":
        return config | {
            "prompt_lookup_min": 1,
            "prompt_lookup_max": getattr(cell.drafter.options, "max_ngram"),  # noqa: B009
        }
    drawn = cell.drafter.options.samples(cell.decoding.sampling)
    return config | {
        "model": drafter_of(cell),
        "draft_sample_method": "probabilistic" if drawn else "greedy",
    }


def settings(cell: Cell) -> dict[str, Any]:
    """The options of vLLM's server for a cell. Raises ModelError."""
    engine, pair = cell.engine, cell.pair
    options = {
        "model": target_of(pair.target),
        "dtype": engine.dtype,
        "seed": 0,
        "max_num_seqs": 256,
        "trust_remote_code": pair.trust_remote_code,
        "generation_config": "vllm",
        "no_enable_prefix_caching": True,
        "tensor_parallel_size": engine.devices,
        "disable_log_stats": True,
        "enforce_eager": engine.graphs != "on",
        "distributed_executor_backend": "uni" if engine.devices == 1 else "mp",
    }
    if pair.target.revision is not None and options["model"] == pair.target.source:
        options["revision"] = pair.target.revision
    if engine.device.startswith("cuda"):
        options["gpu_memory_utilization"] = engine.memory
    if (spec := speculative(cell)) is not None:
        options["speculative_config"] = spec
    return options


def variables(cell: Cell) -> dict[str, str]:
    """Environment variables of the engine's process: on CUDA the GPUs it may use, on a CPU its
    threads and the room for keys and values in GiB."""
    kind, _, index = cell.engine.device.partition(":")
    if kind == "cuda":
        return {"CUDA_VISIBLE_DEVICES": index} if index else {}
    threads = cell.engine.threads or torch.get_num_threads()
    openmp = PYTHON.parent.parent / "lib" / "libiomp5.so"  # vLLM's kernels are built for it
    preload = {"LD_PRELOAD": str(openmp)} if openmp.exists() else {}
    return preload | {
        "VLLM_CPU_KVCACHE_SPACE": str(cell.engine.cpu_cache_gib),
        "OMP_NUM_THREADS": str(threads),
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "CUDA_VISIBLE_DEVICES": "",
    }


class Loaded:
    """One engine, loaded in a server of its own (`bench.run.pool`). Raises ModelError, Died."""

    def __init__(self, cell: Cell) -> None:
        role = cell.drafter.options.model_role
        start = partial(
            VllmServer,
            variables(cell),
            settings(cell),
            identity(cell, "target"),
            None if role is None else identity(cell, role),
        )
        self._pool: ProcessPool[dict[str, Any]] = ProcessPool([start], _again)
        self._pool.start()

    def call(self, name: str, **arguments: Any) -> Any:
        """The result of a call of `VllmServer`. Raises ModelError, Died."""
        return self._pool.call({"call": name, **arguments})

    def close(self) -> None:
        self._pool.close()


def _again(call: Mapping[str, Any]) -> str:
    if "requests" in call:
        return f"answering its {len(call['requests'])} prompts again"
    return "starting it again"


@dataclass(frozen=True, slots=True)
class VllmMethod:
    """As `bench.run.engine.LoadedMethod`."""

    cell: Cell
    loaded: Loaded
    target: LanguageModel

    def check_fit(self, prompt_tokens: int, limits: Limits) -> None:
        if prompt_tokens + limits.max_new_tokens > self.target.max_positions:
            raise TooLong(
                f"{self.target.source}: a prompt of {prompt_tokens} tokens and "
                f"{limits.max_new_tokens} new ones exceed its {self.target.max_positions} "
                "positions; lower decoding.max_new_tokens, or shorten the prompt"
            )

    def generate(self, requests: Sequence[Request], limits: Limits) -> list[Generation]:
        return self._answers(requests, limits, nll=False)

    def generate_with_nll(self, requests: Sequence[Request], limits: Limits) -> list[Generation]:
        return self._answers(requests, limits, nll=True)

    def generate_traced(self, requests: Sequence[Request], limits: Limits) -> list[Generation]:
        raise NotImplementedError(
            "engine=vllm records no traces; take engine=native, or trace=false"
        )

    def next_logits(self, ids: Sequence[int]) -> Tensor:
        return torch.tensor(self.loaded.call("next_logits", ids=list(ids), rule=self._rule))

    def phases(self, request: Request, limits: Limits) -> None:
        return None

    @property
    def _rule(self) -> list[Any]:
        """As `RuleWorker.leeway_use` takes it."""
        rule = self.cell.rule
        return [rule.name, rule.options.model_dump(mode="json"), self._sampling]

    @property
    def _sampling(self) -> dict[str, Any]:
        sampling = self.cell.decoding.sampling
        return {
            "temperature": sampling.temperature,
            "top_k": sampling.top_k,
            "top_p": sampling.top_p,
        }

    def _answers(self, requests: Sequence[Request], limits: Limits, nll: bool) -> list[Generation]:
        """The batch's answers. Raises ModelError, Died."""
        params = {
            **self._sampling,
            "max_tokens": limits.max_new_tokens,
            "stop_token_ids": sorted(limits.eos_ids),
            "ignore_eos": True,
            "stop": list(limits.stop),
            "detokenize": bool(limits.stop),
            "skip_special_tokens": not any(map(self.target.control_tokens.first, limits.stop)),
            "logprobs": 0 if nll else None,
        }
        plain = [{"ids": request.input_ids, "key": request.key} for request in requests]
        answers = self.loaded.call("generate", requests=plain, params=params, rule=self._rule)
        first = max(answer.first_s for answer in answers)
        last = max(answer.last_s for answer in answers)
        generations = []
        for request, answer in zip(requests, answers, strict=True):
            generation = self._generation(request, answer, limits, nll)
            generation.prefill_s = first / len(answers)
            generation.decode_s = (last - first) / len(answers)
            generations.append(generation)
        return generations

    def _generation(
        self, request: Request, answer: StreamedAnswer, limits: Limits, nll: bool
    ) -> Generation:
        """The generation as this project's loop counts it."""
        generation = Generation(prompt_tokens=len(request.input_ids))
        emit(generation, answer.ids[:1], limits, self.target)
        for cycle in answer.cycles:
            if generation.finish:
                break
            count_cycle(generation, CycleOutcome(*cycle), limits, self.target)
        if not generation.finish:
            generation.finish = "length"
        if nll:
            generation.nll = sum(answer.nats[: len(generation.output_ids)])
        return generation


class Vllm:
    """As `bench.run.engine.DecodingEngine`."""

    def __init__(self) -> None:
        self._engines: dict[str, Loaded] = {}
        self._texts: dict[str, LanguageModel] = {}

    def load(self, cell: Cell) -> VllmMethod:
        key = _key(cell)
        if key not in self._engines:
            self._engines[key] = Loaded(cell)
        return VllmMethod(cell, self._engines[key], self._text(cell))

    def keep_only(self, cells: Sequence[Cell]) -> None:
        wanted = {_key(cell) for cell in [*cells, *(cell.baseline() for cell in cells)]}
        for key in set(self._engines) - wanted:
            self._engines.pop(key).close()

    def prepare(self, cells: Sequence[Cell]) -> None:
        """Nothing to prepare: a server starts with its first cell."""

    def _text(self, cell: Cell) -> LanguageModel:
        pair, key = cell.pair, cell.pair.model_dump_json()
        if key not in self._texts:
            if not pair.ignore_generation_config:
                check_generation_config(pair.target.source, pair.target.revision, fetch=True)
            self._texts[key] = load_model(
                pair.target.source,
                dtype=cell.engine.dtype,
                revision=pair.target.revision,
                trust_remote_code=pair.trust_remote_code,
                chat_template=pair.chat_template,
                thinking=pair.thinking,
                weights=False,
            )
        return self._texts[key]


def _key(cell: Cell) -> str:
    """Equal for cells that share an engine."""
    return json.dumps([settings(cell), variables(cell)])
