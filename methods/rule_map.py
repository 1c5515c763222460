"""`python -m methods.rule_map`: write docs/rules.md, one row for each rule, from the docstrings of methods/rules.

A rule's docstring ends in a block "In docs/rules.md" of five entries, continued on indented lines."""

from __future__ import annotations

import importlib
import re
import sys
from pathlib import Path

from methods import registry

HEADING = "In docs/rules.md\n"
COLUMNS = {"accepts": "accepts x iff", "reads": "looks at", "emits": "after a rejection", "strict": "strict limit",
           "source": "source and flag"}
OWN = "my own"
"""The `source` of a rule that is not shipped: `report=controls` need not show it."""
INTRODUCTION = """# The acceptance rules

<!-- python -m methods.rule_map -->
One row for each file in `methods/rules`; its docstring has the formulas. p and q are the distributions of target and
draft after temperature, top-k and top-p, z the target's raw logits, p0 their softmax, u a uniform number in [0, 1).
The token after a draft that was accepted as a whole is drawn from p, or is the argmax where a rule emits that, unless
a row says otherwise. "Strict limit" names the setting at which a rule emits exactly what the target would: lossless
in distribution, or greedy matching token by token. At temperature 0 every rule that compares p and q is greedy
matching. Always-accept is `ensemble` with `w=0`, and `random` with `rate=1` for drafters without a distribution.

## Symbols

A symbol means one thing on every page; the papers use some of them for other things.

| symbol | meaning here | in the papers |
| --- | --- | --- |
| τ | accept length: mean tokens that a cycle (one draft, one verification) emits | τ_δ in ARC-Decode: *tolerance* |
| T | temperature | FSD's T is `fsd`'s *threshold*, a divergence |
| K | draft length: tokens of a chain, depth of a tree | γ, L in FSD |
| θ | the threshold that `mars` or `arc` names `theta` | a logit ratio in MARS, a tolerance score in ARC-Decode |
| D | distortion: mean KL divergence, nats a token, of a rule's law from the target's | |
| λ | `tilted`'s price of a nat, in tokens | |
| n | prompts of a cell | |

## Rules

"""

NOT_HERE = (
    ("AdaptiveSpec's draft tree (arXiv 2609.02897)",
     "its shape changes with the draft's confidence and a running acceptance rate, cycle by cycle; its verification "
     "is `near_top`"),
    ("CSD with a table that grows while it decodes (arXiv 2604.13634)",
     "tokens would depend on the order of prompts, on batches, workers and restarts; `csd` has a frozen table"),
    ("the trained weight of DIVERSED (arXiv 2604.07622)",
     "a linear layer on both models' hidden states, trained by reinforcement on a task's reward; `ensemble` has a "
     "schedule in its place"),
    ("SecureSD on rules with a window or a rollback, and its `lossy_sd` (arXiv 2610.08678)",
     "FLy and BiLD do not decide a token from its own context; min(1, p/q + epsilon) is no rule of its own here"),
    ("suffix decoding from earlier answers of the same run, and its trees (arXiv 2411.04975)",
     "drafts would depend on the order of prompts; `drafter=suffix` copies from the text and from recorded answers, in "
     "chains"),
    ("vLLM: `rejection_sample_method=synthetic`", "a load generator: its text means nothing"),
)
"""Method, reason: what was looked at and is not a rule or drafter of this project."""


def entries(name: str) -> dict[str, str]:
    """Column -> text of one rule. Raises ValueError, one line, for a docstring without a complete block."""
    _, found, block = (importlib.import_module(f"methods.rules.{name}").__doc__ or "").rpartition(HEADING)
    parts = re.findall(r"^  (\w+) +(.*(?:\n   .*)*)", block, re.MULTILINE)
    texts = {key: " ".join(text.split()) for key, text in parts}
    if not found or list(texts) != list(COLUMNS):
        raise ValueError(f"methods/rules/{name}.py: its docstring must end in `{HEADING.strip()}` with the entries "
                         f"{', '.join(COLUMNS)}")
    return texts


def page() -> str:
    """The content of docs/rules.md."""
    rows = [["rule", *COLUMNS.values()], ["---"] * (1 + len(COLUMNS))]
    rows += [[f"`{name}`", *entries(name).values()] for name in registry.names("rules")]
    left_out = [["method", "why"], ["---", "---"], *map(list, NOT_HERE)]
    return INTRODUCTION + _table(rows) + "\n## Not here, and why\n\n" + _table(left_out)


def _table(rows: list[list[str]]) -> str:
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def main() -> int:
    try:
        Path("docs/rules.md").write_text(page(), encoding="utf-8")
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
