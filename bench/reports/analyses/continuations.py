"""What would have followed a rejected draft token? (ARC-Decode, Figure 2)

At positions of a traced answer where draft tokens were rejected, each of them is forced and the method continues the
answer under the same settings, up to the answer's own length limit. Each continuation is compared with the answer's
own, which follows the token that was emitted there. At temperature above 0 two continuations of one token differ too:
the emitted token, continued once more with other random numbers, is the reference."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from bench.reports.analyses import AGREEMENT
from bench.reports.analyses.agreement import Models, settings_of
from bench.run.answer import context, limits_of, stream_name
from methods.decode import Request, generate
from results.store.traces import EMITTED, Clause, TraceFolder

if TYPE_CHECKING:
    import pandas as pd

    from bench.config.cell import Cell
    from bench.run.session import Session
    from methods.method import Method
    from results.store.sample import Sample
    from tasks.base import Prompt

MEASURES = ("bertscore", "sentence", "entailment")
REJECTED, AGAIN = "rejected token", "same token, other random numbers"
COLUMNS = ["prompt", "turn", "cycle", "depth", "clause", "token"]
BATCH = 16


@dataclass(frozen=True, slots=True)
class Fork:
    """A place where an answer is continued once more.

    series   REJECTED or AGAIN.
    start    tokens before the continuation: context and answer up to the fork, and the token that is forced.
    forced   the token.
    key      name of the random stream.
    room     tokens left until the answer's length limit.
    own      the answer's own tokens from the fork on.
    """

    series: str
    start: tuple[int, ...]
    forced: int
    key: str
    room: int
    own: tuple[int, ...]


def continue_rejected(cell: Cell, session: Session, models: Models) -> None:
    """Continue after rejected tokens of a traced cell, and write the agreement with the answers into its folder:
    measure -> series -> one number per continuation. What was compared before is not compared again. Raises ModelError,
    StoreError."""
    folder, pool = session.folder(cell), session.engines.lab
    about = settings_of(cell, models, MEASURES) | {"positions": models.options.positions}
    traces = TraceFolder(folder, folder.ids)
    if not traces.exists() or (folder.record(AGREEMENT) or {}).get("about") == about:
        return
    pool.keep_only([cell])
    method, frame = pool.method(cell), traces.frame(COLUMNS)
    prompts = {prompt.id: prompt for prompt in cell.load_task().prompts(cell.n, cell.seed)}
    forks = [fork for sample in folder.good_samples()
             for fork in forks_of(cell, method, prompts[sample.id], sample, frame[frame["prompt"] == sample.id],
                                  models.options.positions)]
    continued = continuations(cell, method, forks)
    own = [method.target.decode(list(fork.own)) for fork in forks]
    values: dict[str, dict[str, list[float]]] = {}
    for measure in models.given(MEASURES):
        scores = models.score(measure, "contradiction", own, continued) if forks else []
        values[measure] = {series: [score for fork, score in zip(forks, scores, strict=True) if fork.series == series]
                           for series in (REJECTED, AGAIN)}
    with folder.lock(wait=True):
        folder.write_record(AGREEMENT, {"about": about, "values": values})


def forks_of(cell: Cell, method: Method, prompt: Prompt, sample: Sample, frame: pd.DataFrame,
             positions: int) -> Iterator[Fork]:
    """The forks of one answer: at `positions` evenly spread places of each turn where tokens were rejected, one for
    each rejected token and one for the emitted token. `frame`: the trace of the prompt."""
    task, start = cell.load_task(), 0
    for turn, tokens in enumerate(sample.turn_tokens):
        answer, start = sample.output_ids[start:start + tokens], start + tokens
        ids = context(method.target, prompt, sample.texts[:turn])
        stream = stream_name(cell, task, prompt, turn)
        rejected = rejections(frame[frame["turn"] == turn], tokens)
        chosen = np.linspace(0, len(rejected) - 1, min(positions, len(rejected))).round().astype(int)
        for at in np.array(sorted(rejected), int)[chosen].tolist():
            seeds = [(AGAIN, answer[at]), *((REJECTED, token) for token in rejected[at] if token != answer[at])]
            for series, token in seeds:
                yield Fork(series, (*ids, *answer[:at], token), token, f"{stream}/{at}/{token}",
                           cell.max_new_tokens - at - 1, tuple(answer[at:]))


def rejections(frame: pd.DataFrame, tokens: int) -> dict[int, list[int]]:
    """Position in an answer of so many tokens -> the draft tokens that were rejected there. `frame`: the trace of the
    turn; position 0 comes from the prefill."""
    path = frame[frame["clause"].isin(EMITTED)].sort_values(["cycle", "depth"], kind="stable").head(tokens - 1)
    places = {place: at for at, place in enumerate(zip(path["cycle"], path["depth"], strict=True), start=1)}
    found: dict[int, list[int]] = {}
    rejected = frame[frame["clause"] == Clause.REJECTED]
    for cycle, depth, token in zip(rejected["cycle"], rejected["depth"], rejected["token"], strict=True):
        if (cycle, depth) in places:  # not beyond the end of the answer
            found.setdefault(places[cycle, depth], []).append(int(token))
    return found


def continuations(cell: Cell, method: Method, forks: Sequence[Fork]) -> list[str]:
    """The text that each fork leads to, the forced token included."""
    limits, texts = limits_of(cell, method.target, cell.load_task()), []
    for batch in (forks[i:i + BATCH] for i in range(0, len(forks), BATCH)):
        open_forks = [fork for fork in batch if fork.room > 0 and fork.forced not in limits.eos_ids]
        runs = generate(method, [Request(list(fork.start), fork.key) for fork in open_forks], limits) \
            if open_forks else []
        ends = {fork: run.output_ids for fork, run in zip(open_forks, runs, strict=True)}
        texts += [method.target.decode([fork.forced, *ends.get(fork, [])[:max(fork.room, 0)]]) for fork in batch]
    return texts
