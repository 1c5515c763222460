"""How near autoregressive decoding comes to the speed that the memory allows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from results.store.sample import Sample


def roofline(samples: Sequence[Sample], tokens_per_s: float | None, reads: Mapping[str, float] | None) -> float | None:
    """Share of the copy bandwidth that the bytes of a token reach: (weights / rows + entry * context) * tokens_per_s
    / bandwidth. None without a clock or without `reads`.

    samples       the answers of the baseline; the context is the mean over their tokens
    tokens_per_s  of the baseline, over all rows of a batch
    reads         bytes of the weights and of the cache's entry for one token, rows of a batch, bytes/s of a copy"""
    tokens = sum(len(sample.output_ids) for sample in samples)
    if reads is None or tokens_per_s is None or not tokens:
        return None
    context = sum(len(sample.output_ids) * _context(sample) for sample in samples) / tokens
    return (reads["weights"] / reads["rows"] + reads["entry"] * context) * tokens_per_s / reads["bandwidth"]


def _context(sample: Sample) -> float:
    """Tokens in the cache in the middle of an answer, mean over the turns."""
    return (sample.prompt_tokens + len(sample.output_ids) / 2) / max(1, len(sample.turn_tokens))
