"""How far an altered target is from the target itself, on given texts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from methods.currency import distances
from methods.engine.altered import FORMS, altered
from methods.engine.source import ModelError

if TYPE_CHECKING:
    from torch import Tensor

    from methods.audit import Text
    from methods.engine.language_model import LanguageModel
    from methods.sampling import Sampling

WARMER = "T = "
"""How the name of the target at another temperature begins; other names are forms of weights."""


def temperature_of(name: str) -> float | None:
    """That of `T = 0.9`; None for a form of weights. Raises ModelError for what is neither."""
    if name in FORMS:
        return None
    try:
        temperature = float(name.removeprefix(WARMER)) if name.startswith(WARMER) else 0.0
    except ValueError:
        temperature = 0.0
    if temperature <= 0:
        allowed = f"{', '.join(FORMS)}, or a temperature, T = 0.9"
        raise ModelError(f"{name}: no form of weights; allowed: {allowed}")
    return temperature


def altered_nats(
    target: LanguageModel, names: Iterable[str], texts: Sequence[Text], sampling: Sampling
) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Of the target with weights in each form, or at each temperature: name -> [texts] float64, the
    sum over a text's tokens of KL(altered target || target); and form -> what its reader must know.
    One altered copy is in memory at a time. Raises ModelError as `temperature_of`."""
    nats: dict[str, Tensor] = {}
    notes: dict[str, str] = {}
    for name in names:
        temperature = temperature_of(name)
        if temperature is not None:
            [nats[name]] = distances(target, {}, [temperature], texts, sampling).values()
            continue
        copy, left = altered(target, name)
        nats |= distances(target, {name: copy}, [], texts, sampling)
        if left:
            notes[name] = f"{name}: {left} matrices have rows that its blocks do not divide"
    return nats, notes
