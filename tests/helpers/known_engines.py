"""The table of docs/audit.md: `python -m tests.helpers.known_engines FOLDER`. Audits of texts whose
law is known, on the embedded pair; some minutes of one core. Finished rows are kept."""

from __future__ import annotations

import json
import sys
from itertools import islice
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from transformers import AutoModelForCausalLM

from bench.audit import main as audit
from bench.config.paths import TINY
from tests.helpers.tables import rows

TREE = "drafter=eagle3 drafter.total=16 drafter.depth=6 draft.length=7"
CHAIN = "drafter=model draft.length=5"
LONG = "n=200 samples=2"
ALIKE = rows(f"""
no draft | method=ar {LONG}
chain of the draft model | {CHAIN} rule=lossless {LONG}
the same, another seed | {CHAIN} rule=lossless seed=7
the same, top-p 0.9 | {CHAIN} rule=lossless decoding.top_p=0.9
tree of EAGLE-3 | {TREE} rule=lossless {LONG}
block verification | {CHAIN} rule=block
transformers | transformers=plain {LONG}
transformers, assisted | transformers=assisted {LONG}
transformers, assisted, top-k 20 | transformers=assisted decoding.top_k=20 n=200
transformers, prompt lookup | transformers=prompt_lookup n=200
""")
OTHER = rows(f"""
chain, lossy 0.3 | {CHAIN} rule=lossy rule.alpha=0.3 {LONG}
chain, MARS' sampling 0.9 | {CHAIN} rule=mars_sampling rule.theta=0.9 {LONG}
tree, tilted 4 | {TREE} rule=tilted rule.lam=4 {LONG}
tree, threshold 0.5 | {TREE} rule=threshold rule.single=0.5
chain, typical | {CHAIN} rule=typical
tree, tilted 1 | {TREE} rule=tilted rule.lam=1
tree, q of the draft in place of 1 (wrong q) | {TREE} rule=lossless_draft_q
tree, MARS | {TREE} rule=mars
tree, ARC | {TREE} rule=arc rule.constants=${{{{pair.arc}}}}
transformers, assisted, ensemble weight 0.7 | transformers=assisted n=96 +arguments.assistant_ensemble_weight=0.7
temperature ignored (1, asked 0.7) | texts={{plain}} decoding.temperature=0.7 n=200
greedy acceptance | texts={{greedy}} n=200
stale cache behind rejections | texts={{stale}} n=200
""")


def faulty(file: Path, prompts: Path, fault: str, n: int = 96, length: int = 48):
    """Answers of engines with a fault, drawn token by token from the target, to prompts of an
    answers file.

    greedy  every second token is a draft's argmax, kept where it is the target's argmax.
    stale   behind each fifth token the cache holds the second likeliest in its place."""
    target, draft = (
        AutoModelForCausalLM.from_pretrained(TINY / name, dtype=torch.float32).eval()
        for name in ("target", "draft")
    )
    random = torch.Generator().manual_seed(0)

    def logits(model, ids):
        return model(torch.tensor([ids])).logits[0, -1]

    with file.open("w") as out, torch.no_grad():
        for row in islice(map(json.loads, prompts.open()), n):
            seen, answer = list(row["prompt_ids"]), []
            while len(answer) < length and 1 not in answer:
                wanted = logits(target, seen)
                token = int(torch.multinomial(wanted.softmax(-1), 1, generator=random))
                best, second = wanted.topk(2).indices.tolist()
                if fault == "greedy" and len(answer) % 2 and logits(draft, seen).argmax() == best:
                    token = best
                answer.append(token)
                is_stale = fault == "stale" and len(answer) % 5 == 0
                seen.append(second if is_stale else token)
            finish = "stop" if 1 in answer else "length"
            made = {"id": row["id"], "prompt_ids": row["prompt_ids"]}
            out.write(json.dumps(made | {"output_ids": answer, "finish": finish}) + "\n")


def row_of(name: str, words: str, folder: Path, files: dict[str, Path]) -> dict[str, Any]:
    place = folder / "".join(letter if letter.isalnum() else "-" for letter in name)
    report = place / "audit.json"
    if not report.exists():
        given = [word.format(**files) for word in words.split()]
        base = [] if any(word.startswith("n=") for word in given) else ["n=96"]
        audit([*given, *base, "workers=1", f"output.dir={place}", f"store.dir={folder / 'store'}"])
    found = json.loads(report.read_text())
    low = found["low"]
    return {
        "texts": name,
        "tokens": found["tokens"],
        "D": found["exact"],
        "z": round(found["z"], 1),
        "p": found["p"],
        "bound": f"{found['bound']:+.4f} [{low:+.4f}, {found['high']:+.4f}]",
        "verdict": found["verdict"],
    }


def main():
    folder = Path(sys.argv[1])
    files = {name: folder / f"{name}.jsonl" for name in ("plain", "greedy", "stale")}
    table = [row_of(name, words, folder, files) for name, words in ALIKE]
    files["plain"] = folder / "transformers" / "answers.jsonl"
    for fault in ("greedy", "stale"):
        if not files[fault].exists():
            faulty(files[fault], files["plain"], fault)
    table += [row_of(name, words, folder, files) for name, words in OTHER]
    print(pd.DataFrame(table).to_string())


if __name__ == "__main__":
    main()
