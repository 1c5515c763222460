"""Answers of transformers' own `generate`: of the target alone, or with drafts (of the pair's
draft, or looked up in the prompt)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Literal

import torch
from transformers import AutoModelForCausalLM

from bench.run.auditing.answers import Answer, AnswerFile, AnswersError
from methods.engine.source import ModelSource
from results.store.errors import format_exception

if TYPE_CHECKING:
    from bench.config.cell import Cell
    from bench.run.auditing.answers import Asked

Way = Literal["plain", "assisted", "prompt_lookup"]
"""The target alone, with the pair's draft, or with drafts out of the prompt."""


@dataclass
class Generated:
    """Asks transformers' `generate` for the answers of a pair.

    arguments  further arguments of it, which override those made of the cell.
    failed     `id: reason` of each prompt without an answer.
    """

    cell: Cell
    way: Way
    arguments: Mapping[str, Any]
    failed: list[str] = field(default_factory=list)

    def answer(self, requests: Sequence[Asked], file: AnswerFile) -> None:
        """Answer the requests that the file lacks, one after the other, and add them to it. Raises
        AnswersError, ConfigError."""
        missing = file.missing(requests)
        if not missing:
            return
        target = self._model("target")
        options = self._options()
        eos = target.generation_config.eos_token_id  # one, several, or None
        ends = eos if isinstance(eos, list) else [eos]
        for request in missing:
            ids = torch.tensor([list(request.ids)], device=target.device)
            # each prompt has its own seed, whatever was asked before it
            digest = sha256(f"{request.seed}/{request.id}".encode()).hexdigest()
            torch.manual_seed(int(digest[:15], 16))  # 60 bits: torch takes 64
            try:
                output = target.generate(ids, attention_mask=torch.ones_like(ids), **options)
            # an argument is wrong: no prompt can be answered
            except (TypeError, ValueError) as error:
                raise AnswersError(f"transformers={self.way}: {str(error).strip()}") from error
            # of this prompt alone: out of memory, say
            except RuntimeError as error:
                self.failed.append(f"{request.id}: {format_exception(error)}")
                continue
            new_ids = output[0, len(request.ids) :].tolist()
            has_ended = bool(new_ids) and new_ids[-1] in ends
            file.add(
                Answer(
                    id=request.id,
                    sample=request.sample,
                    prompt_ids=list(request.ids),
                    output_ids=new_ids,
                    finish="stop" if has_ended else "length",
                )
            )

    def _options(self) -> dict[str, Any]:
        """The arguments of `generate`. Raises AnswersError, ConfigError."""
        sampling = self.cell.decoding.sampling
        options: dict[str, Any] = {
            "do_sample": not sampling.greedy,
            "max_new_tokens": self.cell.max_new_tokens,
            "pad_token_id": 0,  # nothing is padded: prompts are answered one by one
        }
        if not sampling.greedy:
            options |= {
                "temperature": sampling.temperature,
                "top_k": sampling.top_k,
                "top_p": sampling.top_p,
                "min_p": sampling.min_p or None,  # None: no such filter
            }
        length = self.cell.draft.length
        if self.way == "prompt_lookup":
            options["prompt_lookup_num_tokens"] = length
        elif self.way == "assisted":
            draft = self._model("draft")
            # every draft has K tokens: none is cut short, and K does not adapt
            draft.generation_config.num_assistant_tokens = length
            draft.generation_config.num_assistant_tokens_schedule = "constant"
            draft.generation_config.assistant_confidence_threshold = 0.0
            options["assistant_model"] = draft
        return options | dict(self.arguments)

    def _model(self, role: str) -> Any:
        """The pair's model in the role "target" or "draft", as transformers loads it. Raises
        AnswersError, ConfigError."""
        checkpoint = self.cell.pair.checkpoint(role)
        source = ModelSource.of(checkpoint.source)
        if source.is_cut or source.is_random or source.is_gguf:
            raise AnswersError(
                f"pair.{role}={checkpoint.source}: transformers cannot load this form; give a "
                "folder or hub name in its own format"
            )
        folder = source.folder if source.folder.is_dir() else checkpoint.source
        engine = self.cell.engine
        model: Any = AutoModelForCausalLM.from_pretrained(
            folder, dtype=getattr(torch, engine.dtype), revision=checkpoint.revision
        )
        return model.to(engine.device).eval()
