"""`make same-tokens SINCE=COMMIT`: record code whose digest moved and whose tokens did not.

The code of the commit and that of the checkout decode the same prompts at temperatures 0 and 1: with
every rule on chains of the pair's draft model, with every drafter under the lossless rule, and on
the embedded tasks for their scores. A digest is recorded as equal to the earlier one
(`conf/same_tokens.json`) where all answers of what has it are; that of the loop where all answers
are. What needs files of a user's, engine=vllm, and other scorers are not tried and not recorded."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from bench.config.code import SAME
from bench.config.paths import PROJECT
from results.store.cells import Store
from results.store.merge import difference

DECODE = """
import sys
from bench.__main__ import main
for part in sys.argv[3:]:
    folder, name = part.split("/")
    chosen = {
        "rules": [f"rule={name}", "drafter=model", "task=mini_chat"],
        "drafters": ["rule=lossless", f"drafter={name}", "task=mini_chat"],
        "scorers": ["-m", "rule=lossless", "task=glob(mini_*)"],
    }[folder]
    for temperature in (0, 1):
        main([
            *chosen, f"decoding.temperature={temperature}", "pair=tiny", "n=8", "timed=0", "workers=1",
            "decoding.max_new_tokens=64", f"store.dir={sys.argv[1]}/{part}",
            f"output.dir={sys.argv[1]}/out",
        ])
"""


def told(tree: Path, *words: str) -> str:
    """What Python prints with the modules of a checkout."""
    done = subprocess.run(
        [sys.executable, "-P", *words],
        cwd=tree,
        env={**os.environ, "PYTHONPATH": str(tree)},
        stdout=subprocess.PIPE,
        check=True,
        text=True,
    )
    return done.stdout


def is_same(before: Store, after: Store) -> bool:
    """Whether both decoded the same cells, to the same answers and scores."""
    names = [cell.key for cell in before.cells()]
    return names == [cell.key for cell in after.cells()] != [] and not any(
        difference(before.cell(name).samples(), after.cell(name).samples()) for name in names
    )


def equal(since: str, folder: Path) -> list[list[str]]:
    """[earlier digest, later digest] of what moved since the commit and gives the same answers."""
    trees = {"before": folder / "tree", "after": PROJECT}
    subprocess.run(
        ["git", "-C", str(PROJECT), "worktree", "add", "--detach", str(trees["before"]), since],
        check=True,
    )
    try:
        before, after = (
            dict(json.loads(told(tree, "-m", "bench.config.code"))) for tree in trees.values()
        )
        moved = {part for part in before.keys() & after.keys() if before[part] != after[part]}
        parts = [part for part in after if not part.startswith("loop/")]
        tried = [part for part in parts if part in moved or "loop/native" in moved]
        tried = [part for part in tried if not part.startswith("scorers/") or "Mini" in part]
        for name, tree in trees.items():
            told(tree, "-c", DECODE, str(folder / name), *tried)
    finally:
        subprocess.run(
            ["git", "-C", str(PROJECT), "worktree", "remove", "--force", str(trees["before"])],
            check=True,
        )
    stores = [[Store(folder / name / part) for name in trees] for part in tried]
    same = {part: is_same(*both) for part, both in zip(tried, stores, strict=True)}
    same["loop/native"] = all(
        same[part] for part in tried if Store(folder / "before" / part).cells()
    )
    print(
        *(f"{part}: {'same' if yes else 'other or not decoded'}" for part, yes in same.items()),
        sep="\n",
    )
    pairs = {(before[part], after[part]) for part in moved}
    return sorted(
        [*pair]
        for pair in pairs
        if all(same.get(part) for part in moved if (before[part], after[part]) == pair)
    )


def main(since: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        found = equal(since, Path(folder))
    known = json.loads(SAME.read_text(encoding="utf-8"))
    later = {pair[1] for pair in known}
    pairs = [*known, *(pair for pair in found if pair[1] not in later)]
    lines = ",\n".join(json.dumps(pair) for pair in pairs)
    SAME.write_text(f"[\n{lines}\n]\n" if pairs else "[]\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
