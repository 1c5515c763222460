"""The text of `python -m bench --help`, whose keys, defaults and their meaning are read from conf/;
and the answer to other flags that ask for information, which is Hydra's."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from textwrap import fill

from bench.config.command import key_of
from bench.config.errors import ConfigError
from bench.config.paths import CONF, PROJECT
from results.store.errors import one_line

ASKING = (
    "--help",
    "--help-all",
    "-h",
    "--hydra-help",
    "--shell-completion",
    "-sc",
    "--cfg",
    "-c",
    "--info",
    "-i",
)
"""Flags that ask for information."""
GROUPS = (
    "pair",
    "drafter",
    "rule",
    "method",
    "task",
    "decoding",
    "engine",
    "tracker",
    "launch",
    "report",
    "sweep",
)
SECTIONS = {
    "": "config",
    "pair": "pair/local",
    "decoding": "decoding/default",
    "engine": "engine/native",
    "judge": "judge/default",
}
"""Prefix of the keys -> the file of conf/ that lists them with their defaults."""
NOT_KEYS = ("defaults", "hydra", "name")
LINE = re.compile(r"( *)([a-z_0-9]+): *([^#]*?) *(?:# (.*))?")
CONTINUED = re.compile(r"(?<=\S)\n {12,}# +")
"""Where a comment behind a value goes on below it."""
WIDTH = 120
TEXT = """\
python -m bench KEY=VALUE ... [-m]     measure one point, several points, or a report

One point: which models, what is drafted, what of it is kept, on which prompts.
  python -m bench pair=tiny method=mars task=mini_gsm n=20 rule.theta=0.9
  python -m bench pair=local pair.target=DIR pair.draft=DIR task=prompts task.path=FILE.jsonl
Several points: -m with values separated by commas, or a named sweep.
  python -m bench -m method=ar,sps,mars task=mini_gsm,mini_code n=50
  python -m bench +sweep=mars_theta
A report: the points of a table or figure; what is missing is run. Its page is
outputs/report/index.html.
  python -m bench report=list
  python -m bench report=mars_table1 n=20
  python -m bench report=[controls,mars_table1] pair=smollm2
Does my rule keep more tokens, and how far does it move the text? A command of its own:
python -m bench.screen rule=FILE.py:CLASS; python -m bench.screen has every rule.

"""
FIRST = {
    "What": ("pair", "method", "drafter", "rule", "task", "decoding.temperature", "draft.length"),
    "How much": ("n", "timed", "sessions"),
    "Where": ("engine.device", "output.dir", "tracker", "launch"),
    "Before it runs": ("dry_run",),
}
"""Group -> the keys that --help shows; --help-all shows all."""
MEANINGS = {
    "pair": "the models: the measured target, and what drafts for it",
    "method": "a named drafter and rule, such as mars",
    "drafter": "how drafts are proposed",
    "rule": "which draft tokens are accepted",
    "task": "the prompts, and how answers are scored",
    "tracker": "where results are also logged: none, wandb",
    "launch": "where groups of cells run: local, slurm, ray",
}
"""Key of a group of conf/ -> what it chooses."""
OPTIONS = (
    "Options of a drafter, rule or task: drafter.KEY=, rule.KEY=, task.KEY=; conf/rule/NAME.yaml "
    "and its like list them.\nAll keys: python -m bench --help-all"
)
STORE = """
The same command resumes where it stopped; a larger n extends what is there. Relative paths start at
the checkout, or in the folder of a command that is given outside of it.
Exit status: 0 all done, 1 a cell failed (the last lines name it), 2 the command is wrong.
--config-dir DIR: a folder of your own with further YAMLs; --version; --cfg job: a configuration.

Choices
"""


def help_text(every: bool = False) -> str:
    """The command contract: examples, the first keys or `every` one, and the choices of conf/."""
    lines = {
        line.split("=")[0].strip(): line
        for prefix, file in SECTIONS.items()
        for line in key_lines(prefix, CONF / f"{file}.yaml")
    }
    lines |= {key: _line(key, _default(key), meaning) for key, meaning in MEANINGS.items()}
    if every:
        keys = ["Keys, with their defaults", *lines.values()]
    else:
        keys = [
            line
            for title, names in FIRST.items()
            for line in (title, *(lines[name] for name in names))
        ]
    choices = []
    for group in GROUPS:
        names = sorted(path.stem for path in (CONF / group).glob("*.yaml"))
        choices.append(
            fill(
                ", ".join(names), WIDTH, initial_indent=f"  {group:<9}", subsequent_indent=" " * 11
            )
        )
    return TEXT + "\n".join([*keys, "", OPTIONS, STORE]) + "\n".join(choices)


def _default(group: str) -> str:
    """The option of a group that a command has which names none."""
    listed = re.search(rf"- {group}: (\S+)", (CONF / "config.yaml").read_text(encoding="utf-8"))
    assert listed is not None
    return listed[1]


def _line(key: str, default: str, meaning: str) -> str:
    option = f"  {key}={default}"
    wide = fill(meaning, WIDTH, initial_indent=f"{option:<42} ", subsequent_indent=" " * 43)
    return wide or option


def key_lines(prefix: str, file: Path) -> Iterator[str]:
    """`KEY=DEFAULT   meaning` of every option in a YAML file, from its values and the comments
    behind them, which may go on below; wrapped."""
    text = CONTINUED.sub(" ", file.read_text(encoding="utf-8"))
    parents: list[str] = [prefix] if prefix else []
    outer = len(parents)
    for match in filter(None, map(LINE.fullmatch, text.splitlines())):
        indent, key, value, meaning = match.groups()
        depth = outer + len(indent) // 2
        parents = [*parents[:depth], key]
        if value and not set(parents[outer:]) & set(NOT_KEYS):
            yield _line(".".join(parents), "" if value == "???" else value, meaning or "")


def show(text: str) -> None:
    """Print a text of which `| head` may read the beginning alone."""
    try:
        print(text, flush=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for the flush at the end


def answered(name: str, argv: Sequence[str], own_help: bool = False) -> bool:
    """Whether the command line `argv` over conf/NAME.yaml asks for information, which is printed:
    the options of `python -m bench` for --help where `own_help`, else what Hydra answers. Raises
    ConfigError."""
    asked = [word for word in argv if key_of(word) in ASKING]
    if own_help and {"--help", "--help-all", "-h"} & set(asked):
        show(help_text(every="--help-all" in asked))
    elif asked:
        from hydra import main as hydra_main
        from omegaconf import OmegaConf

        from bench.config.compose import HYDRA_ERRORS, MULTIRUN, composer

        OmegaConf.register_new_resolver("project", lambda path: str(PROJECT / path), replace=True)
        program, *_ = before = sys.argv
        overrides = [word for word in argv if "=" in word and word[0] != "-"]
        if not {*MULTIRUN} & set(argv):  # what Hydra refuses it says in many lines
            with composer(argv, name) as conf:
                conf.point(overrides, resolve=False)
        sys.argv = [program, *(word for word in argv if word not in overrides), *overrides]
        try:  # Hydra reads sys.argv itself, and wants its overrides in one piece
            hydra_main(config_path=str(CONF), config_name=name, version_base="1.3")(
                lambda _: None
            )()
        except HYDRA_ERRORS as error:
            raise ConfigError(one_line(error)) from error
        finally:
            sys.argv = before
    return bool(asked)
