"""`python -m models.tiny.train.wording`: the freedom of wording in the training answers of each embedded benchmark.

nats: mean log of the number of equally good continuations, for each token of the embedded pair's tokenizer. opening:
share of answers (last turn) that begin with the most frequent first word. long: share of conversations that do not fit
a row of 256 tokens, which training leaves out.
"""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from models.tiny.train.texts import BENCHMARKS, split_of
from models.tiny.train.texts.phrase import wording

TOKENIZER = Path("models", "tiny", "target", "tokenizer.json")
ROW = 256


class Freedom(NamedTuple):
    """What the heading of this file explains, and the mean and largest number of tokens of a turn's answer."""

    nats: float
    opening: float
    long: float
    mean_tokens: float
    most_tokens: int


def freedom(name: str, n: int) -> Freedom:
    """The freedom in the answers to `n` training examples of one benchmark."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(TOKENIZER))

    def size(text: str) -> int:
        return len(tokenizer.encode(f" {text.strip()}", add_special_tokens=False).ids) + 1  # with the end token

    rng = random.Random(f"freedom/{name}")
    nats, answers, conversations, openings = 0.0, list[int](), list[int](), Counter[str]()
    while len(conversations) < n:
        example = BENCHMARKS[name].draw(rng)
        if split_of(example.turns) != "train":
            continue
        drawn = [wording(phrase, rng) for phrase in example.phrases]
        nats -= sum(one.log_probability for one in drawn)
        sizes = [size(one.text) for one in drawn]
        answers += sizes
        conversations.append(sum(sizes) + sum(1 + size(turn) for turn in example.turns) + len(sizes))
        openings[drawn[-1].text.split()[0]] += 1
    return Freedom(nats / sum(answers), openings.most_common(1)[0][1] / n, sum(c > ROW for c in conversations) / n,
                   sum(answers) / len(answers), max(answers))


def main() -> None:
    """Print one line a benchmark."""
    print(f"{'benchmark':14} nats/token  opening  long  tokens (most)")
    for name in BENCHMARKS:
        one = freedom(name, 300)
        tokens = f"{one.mean_tokens:.0f} ({one.most_tokens})"
        print(f"{name:14} {one.nats:10.3f} {one.opening:8.2f} {one.long:5.2f}  {tokens}")


if __name__ == "__main__":
    main()
