"""The text of `python -m bench --help`, whose keys, defaults and their meaning are read from conf/;
and the answer to other flags that ask for information, which is Hydra's."""

from __future__ import annotations

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
python -m bench [KEY=VALUE ...] [-m]     measure one point of the experiment space, or several

One point: which models, what is drafted, what of it is kept, on which prompts.
  python -m bench pair=tiny method=mars task=mini_gsm n=20 rule.theta=0.9
  python -m bench drafter=model rule=fsd rule.threshold=0.4 task=mini_gsm n=20
  python -m bench pair=local pair.target=DIR pair.draft=DIR task=prompts task.path=FILE.jsonl
Several points: -m with values separated by commas, or a named sweep.
  python -m bench -m method=ar,sps,mars task=mini_gsm,mini_code n=50
  python -m bench +sweep=mars_theta
A report: the points of a table or figure; what is missing is run. Its page is
outputs/report/index.html.
  python -m bench report=list
  python -m bench report=contradictions
  python -m bench report=mars_table1 n=20
  python -m bench report=mars_table1 pairs=[vicuna_13b,llama31_8b] n=80
  python -m bench report=[controls,mars_table1] pair=smollm2
  python -m bench report=all
  python -m bench report=every

"""
KEYS = (
    "Keys, with their defaults (options drafter.KEY=, rule.KEY=, task.KEY=: see "
    "conf/rule/NAME.yaml and its like)"
)
STORE = """
A cell is a folder in the store, named by the hash of all that decides its tokens. Re-running a
command resumes where it stopped; a larger n extends the cell. Relative paths start at the checkout,
or in the folder of a command that is given outside of it.
Exit status: 0 all done, 1 a cell failed (the last lines name it), 2 the command is wrong.
Hydra's own flags: --hydra-help; --config-dir DIR: a folder of your own with further YAMLs;
--version.
What a configuration looks like: --cfg job.

Choices
"""


def help_text() -> str:
    """The command contract: examples, keys, and the choices that conf/ holds."""
    keys = [
        line
        for prefix, file in SECTIONS.items()
        for line in key_lines(prefix, CONF / f"{file}.yaml")
    ]
    choices = []
    for group in GROUPS:
        names = sorted(path.stem for path in (CONF / group).glob("*.yaml"))
        choices.append(
            fill(
                ", ".join(names), WIDTH, initial_indent=f"  {group:<9}", subsequent_indent=" " * 11
            )
        )
    return TEXT + "\n".join([KEYS, *keys, STORE]) + "\n".join(choices)


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
            option = f"  {'.'.join(parents)}={'' if value == '???' else value}"
            yield (
                fill(
                    meaning or "",
                    WIDTH,
                    initial_indent=f"{option:<42} ",
                    subsequent_indent=" " * 43,
                )
                or option
            )


def answered(name: str, argv: Sequence[str], own_help: bool = False) -> bool:
    """Whether the command line `argv` over conf/NAME.yaml asks for information, which is printed:
    the options of `python -m bench` for --help where `own_help`, else what Hydra answers. Raises
    ConfigError."""
    asked = [word for word in argv if key_of(word) in ASKING]
    if own_help and {"--help", "-h"} & set(asked):
        print(help_text())
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
