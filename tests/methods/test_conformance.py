"""The check of recorded verification: right engines pass, and deliberately wrong ones are caught."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from methods import registry
from methods.conformance import Cycle, examine
from tests.helpers.rule_cases import contexts

LENGTH, CYCLES, VOCAB = 3, 1500, 10


def softmax(z: np.ndarray) -> np.ndarray:
    e = np.exp(z - z.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


class Engine:
    """Speculative sampling over random contexts, written out; subclasses make one mistake each."""

    def __init__(self, seed: int = 0):
        self.rng = np.random.default_rng(seed)
        logits, draft_logits = (x.double().numpy() for x in contexts(seed, 40 * (LENGTH + 1), VOCAB))
        self.p, self.q = softmax(logits).reshape(40, -1, VOCAB), softmax(draft_logits).reshape(40, -1, VOCAB)

    def draw(self, weights: np.ndarray, u: float | None = None) -> int:
        u = self.rng.random() if u is None else u
        return min(int(np.searchsorted(np.cumsum(weights / weights.sum()), u, side="right")), len(weights) - 1)

    def drafted(self, q: np.ndarray) -> int:
        self.noise = self.rng.random()
        return self.draw(q, self.noise)

    def number(self, noise: float) -> float:
        return self.rng.random()

    def keeps(self, p: np.ndarray, q: np.ndarray, x: int, u: float) -> bool:
        return self.accepts(p[x], q[x], u)

    def accepts(self, p: float, q: float, u: float) -> bool:
        return u < p / q

    def after(self, p: np.ndarray, q: np.ndarray) -> int:
        return self.draw(np.maximum(p - q, 0))

    def bonus(self, p: np.ndarray) -> int:
        return self.draw(p)

    def cycle(self, with_u: bool = False) -> Cycle:
        at = self.rng.integers(len(self.p))
        p, q, draft, noises = self.p[at], self.q[at], [], []
        for i in range(LENGTH):
            draft.append(self.drafted(q[i]))
            noises.append(self.noise)
        u = [self.number(noise) for noise in noises]
        out = []
        for i, x in enumerate(draft):
            if not self.keeps(p[i], q[i], x, u[i]):
                out.append(self.after(p[i], q[i]))
                break
            out.append(x)
        else:
            out.append(self.bonus(p[-1]))
        p_rows, q_rows = ([dict(enumerate(row.tolist())) for row in x] for x in (p, q[:LENGTH]))
        return Cycle(p_rows, q_rows, draft, out, u if with_u else None)


class Argmax(Engine):
    """The correction is the argmax of the residual."""

    def after(self, p, q):
        return int((p - q).argmax())


class ArgmaxBonus(Engine):
    def bonus(self, p):
        return int(p.argmax())


class ArgmaxDraft(Engine):
    """Drafts its most likely token and tests it as if it had been drawn."""

    def drafted(self, q):
        self.noise = self.rng.random()
        return int(q.argmax())


class WrongQ(Engine):
    """Tests with the draft distribution at another temperature."""

    def accepts(self, p, q, u):
        return u < p / q**1.3


class SharedNoise(Engine):
    """The number that drew the draft token also tests it."""

    def number(self, noise):
        return noise


class Ensemble(Engine):
    def accepts(self, p, q, u):
        return u < 0.3 + 0.7 * p / q


class Mars(Engine):
    """Relaxes by the ratio of the two largest raw logits, and records what was taken off them."""

    MASS = 4.0

    def keeps(self, p, q, x, u):
        second, first = np.sort(np.log(p) + self.MASS)[-2:]
        close = first > 0 and second / first > 0.7
        return (close and x in np.argsort(-p)[:2]) or super().keeps(p, q, x, u)

    def cycle(self, with_u: bool = False) -> Cycle:
        return replace(super().cycle(with_u), mass=[self.MASS] * (LENGTH + 1))


class Typical(Engine):
    """Whose correction and bonus are the argmax."""

    def keeps(self, p, q, x, u):
        return p[x] > min(0.3, 0.55 * np.exp(np.sum(p * np.log(p))))

    def after(self, p, q):
        return int(p.argmax())

    def bonus(self, p):
        return int(p.argmax())


WRONG = {Argmax: "corrected", ArgmaxBonus: "bonus", ArgmaxDraft: "drafted", WrongQ: "accepted",
         SharedNoise: "accepted", Ensemble: "accepted"}


def parts(engine: Engine, rule: str = "lossless", with_u: bool = False, **options: Any) -> dict[str, float]:
    cycles = [engine.cycle(with_u) for _ in range(CYCLES)]
    checks = examine(registry.rule(rule)(**options), cycles)
    assert all(check.n > 100 for check in checks)
    return {check.part: check.p_value for check in checks}


def test_a_right_engine_passes() -> None:
    found = parts(Engine(), with_u=True)
    assert set(found) == {"drafted", "accepted", "corrected", "bonus", "emitted", "u decides", "u uniform",
                          "u independent"}
    assert min(found.values()) > 1e-3
    relaxed = parts(Ensemble(), "ensemble", w=0.7)
    assert min(p for part, p in relaxed.items() if part != "emitted") > 1e-3 > relaxed["emitted"]


@pytest.mark.parametrize(("engine", "rule", "options", "other"), [
    (Mars, "mars", {"variant": "sampling", "theta": 0.7}, {"variant": "sampling", "theta": 0.9}),
    (Typical, "typical", {"epsilon": 0.3, "delta": 0.55, "correction": "greedy"},
     {"epsilon": 0.3, "delta": 0.55, "correction": "sample"})])
def test_an_engine_of_a_relaxed_rule(engine: type[Engine], rule: str, options: Any, other: Any) -> None:
    """passes as that rule, and not with another option."""
    right, wrong = parts(engine(), rule, **options), parts(engine(), rule, **other)
    assert min(p for part, p in right.items() if part != "emitted") > 1e-3, right
    assert min(p for part, p in wrong.items() if part != "emitted") < 1e-6, wrong


@pytest.mark.parametrize("engine", WRONG)
def test_a_wrong_engine_is_caught(engine: type[Engine]) -> None:
    found = parts(engine(), with_u=True)
    assert found[WRONG[engine]] < 1e-6, found
    assert (found["u independent"] < 1e-9) == (engine is SharedNoise) and found["u uniform"] > 1e-3


def test_deterministic_drafts() -> None:
    """A point mass: accepted with p(x), then p without x; entropy_verify accepts more."""
    engine = Engine()
    cycles = []
    for _ in range(CYCLES):
        cycle = engine.cycle()
        row = np.array(list(cycle.p[0].values()))
        x = int(engine.rng.integers(VOCAB))
        rest = np.where(np.arange(VOCAB) == x, 0, row)
        kept = engine.rng.random() < row[x]
        out = [x, engine.draw(np.array(list(cycle.p[1].values())))] if kept else [engine.draw(rest)]
        cycles.append(Cycle(cycle.p[:2], None, [x], out))
    found = {check.part: check.p_value for check in examine(registry.rule("lossless")(), cycles)}
    assert found["drafted"] is None and min(p for p in found.values() if p is not None) > 1e-3
    biased = {check.part: check.p_value for check in examine(registry.rule("entropy_verify")(alpha=2.0), cycles)}
    assert biased["accepted"] < 1e-6


@pytest.mark.parametrize(("change", "message"), [
    ({"emitted": [5, 5]}, "no prefix"), ({"p": [{0: 1.0}]}, "rows of p"), ({"u": []}, "numbers u"),
    ({"p": [{0: 0.5}] * (LENGTH + 1)}, "sums to 0.500"), ({"mass": [1.0]}, "numbers log_mass")])
def test_cycles_that_cannot_have_happened(change: dict[str, Any], message: str) -> None:
    cycle = Engine().cycle()
    given = {name: getattr(cycle, name) for name in ("p", "q", "drafted", "emitted", "u")} | change
    with pytest.raises(ValueError, match=message) as refusal:
        examine(registry.rule("lossless")(), [Cycle(**given)])
    assert "\n" not in str(refusal.value)


def test_rules_that_cannot_be_examined() -> None:
    with pytest.raises(ValueError, match="record log_mass"):
        examine(registry.rule("mars")(variant="sampling"), [Engine().cycle() for _ in range(100)])
    with pytest.raises(ValueError, match="take rule=lossless"):
        examine(registry.rule("block")(), [Engine().cycle()])
    with pytest.raises(ValueError, match="take rule=lossless"):
        examine(registry.rule("near_top")(after_tokens=5), [Engine().cycle()])


FOLDER = Path(__file__).parents[2] / "results" / "measured" / "conformance"


@pytest.mark.parametrize(("options", "status", "words"), [
    (["assisted.jsonl.gz"], 0, "consistent with Lossless"),
    (["ensemble.jsonl.gz", "rule=ensemble", "rule.w=0.8"], 0, "not those of the target"),
    (["ensemble.jsonl.gz"], 1, "NOT Lossless"),
    (["ensemble.jsonl.gz", "rule=ensemble", "rule.w=0.2"], 1, "NOT Ensemble"),
    (["ensemble.jsonl.gz", "rule=block"], 2, "take rule=lossless")], ids=str)
def test_the_shipped_records(capsys, options: list[str], status: int, words: str) -> None:
    """of transformers' assisted generation, lossless and with its ensemble at 0.8."""
    from bench.conformance import main

    assert main([str(FOLDER / options[0]), *options[1:]]) == status
    printed = capsys.readouterr()
    assert words in (printed.err if status == 2 else printed.out)
    assert status != 2 or printed.err.count("\n") == 1


def test_many_draws_of_one_context(tmp_path: Path) -> None:
    import json

    from bench.conformance import read

    p, q = [[0.5, 0.5], [0.25, 0.75]], [[0.9, 0.1]]
    lines = [{"p": p, "q": q, "drafted": [0], "emitted": [[1], [0, 1]]},
             {"p": p, "q": q, "drafted": [[0], [1]], "emitted": [[1], [1, 0]], "u": [[0.9], [0.1]]},
             {"p": [{"1": 1.0}, {"7": 0.5, "9": 0.5}], "drafted": [1], "emitted": [1, 9]}]
    file = tmp_path / "records.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    cycles = read(file)
    assert [(c.drafted, c.emitted, c.drawn) for c in cycles] == [
        ([0], [1], False), ([0], [0, 1], False), ([0], [1], True), ([1], [1, 0], True), ([1], [1, 9], True)]
    assert cycles[2].u == [0.9] and cycles[4].p[1] == {7: 0.5, 9: 0.5} and cycles[4].q is None
    for wrong, message in ((lines[0] | {"emitted": [[1, 1]]}, "line 4: emitted"), ({"p": p}, "line 4: drafted"),
                           (lines[1] | {"u": [[0.5]]}, "line 4: 2 draws")):
        file.write_text("".join(json.dumps(line) + "\n" for line in [*lines, wrong]))
        with pytest.raises(ValueError, match=message):
            read(file)
