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
stores, prompts, *parts = sys.argv[1:]  # a command changes sys.argv
files = {
    "arc": ["rule.constants=${pair.arc}"],
    "autojudge": ["rule.classifier=${pair.autojudge}"],
}
for part in parts:
    folder, name = part.split("/")
    chosen = {
        "rules": [f"rule={name}", "drafter=model", "task=mini_chat", *files.get(name, [])],
        "drafters": ["rule=lossless", f"drafter={name}", "task=mini_chat"],
        "scorers": ["-m", "rule=lossless", "task=glob(mini_*)"],
    }[folder]
    for temperature in (0, 1):
        main([
            *chosen, f"decoding.temperature={temperature}", "pair=tiny", f"n={prompts}",
            "timed=0", "workers=1", "decoding.max_new_tokens=64",
            f"store.dir={stores}/{part}", f"output.dir={stores}/out",
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


def compare(
    before: Path, after: Path, folder: Path, prompts: int = 8
) -> tuple[dict[str, bool], list[list[str]]]:
    """Decode with two trees of the project what moved between them; the stores lie in `folder`.

    Returns whether each part gave the same answers, and [earlier digest, later digest] of the code
    that moved of which all did."""
    trees = {"before": before, "after": after}
    earlier, later = (
        dict(json.loads(told(tree, "-m", "bench.config.code"))) for tree in trees.values()
    )
    moved = {part for part in earlier.keys() & later.keys() if earlier[part] != later[part]}
    tried = [
        part
        for part in later
        if not part.startswith("loop/")
        and (part in moved or "loop/native" in moved)
        and (not part.startswith("scorers/") or "Mini" in part)
    ]
    for name, tree in trees.items():
        told(tree, "-c", DECODE, str(folder / name), str(prompts), *tried)
    stores = {part: [Store(folder / name / part) for name in trees] for part in tried}
    same = {part: is_same(*both) for part, both in stores.items()}
    if "loop/native" in moved:
        same["loop/native"] = all(same[part] for part in tried if stores[part][0].cells())
    pairs = {(earlier[part], later[part]) for part in moved}
    equal = [
        [*pair]
        for pair in pairs
        if all(same.get(part) for part in moved if (earlier[part], later[part]) == pair)
    ]
    return same, sorted(equal)


def since_commit(commit: str, folder: Path) -> tuple[dict[str, bool], list[list[str]]]:
    """`compare` a commit's tree and the checkout."""
    before = folder / "tree"
    git = ["git", "-C", str(PROJECT), "worktree"]
    subprocess.run([*git, "add", "--detach", str(before), commit], check=True)
    try:
        return compare(before, PROJECT, folder)
    finally:
        subprocess.run([*git, "remove", "--force", str(before)], check=True)


def main(commit: str):
    with tempfile.TemporaryDirectory() as folder:
        same, equal = since_commit(commit, Path(folder))
    for part, is_equal in same.items():
        print(f"{part}: {'same' if is_equal else 'other or not decoded'}")
    known = json.loads(SAME.read_text(encoding="utf-8"))
    recorded = {pair[1] for pair in known}
    pairs = [*known, *(pair for pair in equal if pair[1] not in recorded)]
    lines = ",\n".join(json.dumps(pair) for pair in pairs)
    SAME.write_text(f"[\n{lines}\n]\n" if pairs else "[]\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
