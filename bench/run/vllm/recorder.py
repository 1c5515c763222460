"""What a vLLM worker notes for `bench.conformance`: verified drafts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch

from methods.sampling import Sampling

if TYPE_CHECKING:
    from torch import Tensor

    from methods.rules.verification import Verification
    from methods.rules.walk import Walk
    from methods.serving import Rows, Verifier

LEAST = 1e-6
"""Probabilities below are left out of a recorded row."""


class Recorder:
    """Notes cycles as lines of docs/serving.md; `last_logits`: [V] raw, of the last row without a draft."""

    def __init__(self, verifier: Verifier) -> None:
        self._verifier, self._wanted, self._lines = verifier, 0, list[dict[str, Any]]()
        self.last_logits: Tensor | None = None

    @property
    def is_open(self) -> bool:
        return len(self._lines) < self._wanted

    def restart(self, cycles: int | None) -> list[dict[str, Any]]:
        """Record the next `cycles`; None: no more. Returns what was recorded before."""
        lines, self._lines, self._wanted = self._lines, [], cycles or 0
        self._verifier.watch = self._rules_cycle if cycles else None
        return lines

    def engines_cycles(self, own: Sequence[int] | None, rows: Rows, sampled: Tensor,
                       params: Callable[[int], Any]) -> None:
        """Note what the engine's own sampler did with the drafts at `own`; None: all."""
        for place in range(len(rows.starts)) if own is None else own:
            if not self.is_open or not rows.drafts[place]:
                continue
            given = params(place)
            sampling = Sampling(given.temperature, max(given.top_k, 0), given.top_p)
            root = torch.zeros(1, dtype=torch.long, device=sampled.device)
            u = torch.zeros(1, rows.drafts[place] + 1, device=sampled.device)
            v = self._verifier.verification(sampling, [root], [place], rows, u)
            self._note(v, 0, [token for token in sampled[place].tolist() if token >= 0], is_numbered=False)

    def _rules_cycle(self, v: Verification, path: Walk, token: Tensor) -> None:
        for row, (length, after) in enumerate(zip(path.length.tolist(), token.tolist(), strict=True)):
            if self.is_open and int(v.drafted[row]):
                self._note(v, row, [*v.draft.tokens[row, 1:length + 1].tolist(), after], is_numbered=True)

    def _note(self, v: Verification, row: int, emitted: list[int], is_numbered: bool) -> None:
        count = int(v.drafted[row])
        line: dict[str, Any] = {"p": [_row(v.p[row, node]) for node in range(count + 1)]}
        if v.draft.sampled:
            line["q"] = [_row(v.q[row, node]) for node in range(count)]
        if v.sampling.temperature == 1.0:
            masses = v.logits[row, :count + 1].amax(-1) - v.p[row, :count + 1].amax(-1).log()
            line["log_mass"] = [round(mass, 6) for mass in masses.tolist()]
        line |= {"drafted": v.draft.tokens[row, 1:count + 1].tolist(), "emitted": emitted}
        if is_numbered:
            line["u"] = v.u[row, 1:count + 1].tolist()
        self._lines.append(line)


def _row(probabilities: Tensor) -> dict[str, float]:
    tokens = (probabilities > LEAST).nonzero()[:, 0]
    return {str(token): round(p, 9) for token, p in zip(tokens.tolist(), probabilities[tokens].tolist(), strict=True)}
