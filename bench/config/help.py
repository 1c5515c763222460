"""The text of `python -m bench --help`."""

from __future__ import annotations

from bench.config.paths import CONF

GROUPS = ("pair", "drafter", "rule", "method", "task", "decoding", "engine", "tracker", "report", "sweep")
TEXT = """\
python -m bench [KEY=VALUE ...] [-m]     measure one point of the experiment space, or several

One point: which models, what is drafted, what of it is kept, on which prompts.
  python -m bench pair=tiny method=mars task=mini_gsm n=20 rule.theta=0.9
  python -m bench drafter=model rule=fsd rule.threshold=0.4 rule.divergence=js_released task=mini_gsm n=20
  python -m bench pair=local pair.target=DIR pair.draft=DIR method=sps task=prompts task.path=FILE.jsonl
Several points: values separated by commas and -m, or a named sweep.
  python -m bench -m method=ar,sps,mars task=mini_gsm,mini_code n=50
  python -m bench +sweep=mars_theta
A report: the points of a table or figure; what is missing is run, the page is {output}/report/index.html.
  python -m bench report=mars_table1 n=20
  python -m bench report=all

Keys, with their defaults
  method=NAME                a named drafter x rule; drafter= and rule= win over it
  draft.length=5             K, tokens drafted in a cycle
  drafter.KEY= rule.KEY= task.KEY=          options of the chosen drafter, rule and task
  pair.target=DIR pair.draft=DIR pair.eagle3=DIR (eagle, hass, medusa)   parts of pair=local: folders or hub names
  n=null seed=0 repeat=0 batch=1            number of prompts (null = all), random streams, prompts decoded together
  decoding.temperature=0.0 decoding.top_p=1.0 decoding.top_k=0 decoding.max_new_tokens=null (the task's)
  engine.device=auto engine.dtype=${pair.dtype} engine.threads=null
  store.dir=outputs/store output.dir=outputs   where results and pages go
  summary=table|json         json: each summary as one JSON line at the end of the standard output
  dry_run=false              only show the resolved points, the memory they take and what would be downloaded
  judge.base_url=URL judge.model=NAME   an LLM judges MT-Bench, KoMT-Bench and Alpaca answers (key: OPENAI_API_KEY)
  tracker=none|wandb         WANDB_MODE=offline works without a network
  trace=false                note every verified position in a second, untimed pass: <point>/trace/*.parquet
  replay=auto|[0.8,0.9]      what traced points would keep at other thresholds, first order; nothing is decoded

A point is a folder in the store, named by the hash of its settings. The same command goes on where it was, whatever
ended it. Exit status: 0 all done, 1 something failed (the last lines say what), 2 the command is wrong.
Hydra's own flags: --hydra-help. What a configuration looks like: --cfg job.

Choices
"""


def help_text() -> str:
    """The command contract, with examples and the choices that conf/ holds."""
    lines = []
    for group in GROUPS:
        names = sorted(path.stem for path in (CONF / group).glob("*.yaml"))
        lines.append(f"  {group:<9}{', '.join(names) or 'none yet'}")
    return TEXT.replace("{output}", "outputs") + "\n".join(lines)
