"""Which prompts are timed: a random sample of those asked for, and of an older store none but those."""

from __future__ import annotations

from hashlib import sha256

from hypothesis import given
from hypothesis import strategies as st

from results.store.sample import timing_order


@given(st.lists(st.text(min_size=1), unique=True, min_size=1), st.randoms())
def test_the_order_depends_on_the_ids_alone(ids: list[str], rng) -> None:
    shuffled = rng.sample(ids, len(ids))
    ordered = timing_order(shuffled)
    assert ordered == timing_order(ids) and sorted(ordered) == sorted(ids)
    digests = [sha256(name.encode()).hexdigest() for name in ordered]
    assert digests == sorted(digests)
