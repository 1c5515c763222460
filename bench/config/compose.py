"""From a command line to the configuration of every point that it names, plain and typed, before anything runs."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from itertools import islice, product
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from hydra import __version__, compose, initialize_config_dir
from hydra import main as hydra_main
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override, OverrideType
from hydra.errors import HydraException, MissingConfigException
from omegaconf import OmegaConf
from omegaconf.errors import MissingMandatoryValue, OmegaConfBaseException

from bench.config.errors import ConfigError, NotHere, unknown_key
from bench.config.paths import CONF
from bench.config.plain import Choices, Data, Unusual, Yamls, merge, put, register_resolvers, resolved
from bench.config.section import check_known, parse
from bench.config.swept import EMBEDDED, check_lengths, edition, follow_length
from methods import user_yaml
from results.store.errors import one_line

if TYPE_CHECKING:
    from bench.config.cell import Cell
    from bench.config.schema import Pair
    from bench.config.settings import Settings

OPTIONAL = ("drafter", "rule", "task")
"""Groups whose options differ by the choice."""
NO_GROUPS = ("scale",)
"""Folders of conf/ whose YAMLs are no part of a point: reports read them."""
MOST_POINTS = 10_000
"""Composing so many points takes minutes."""
HYDRA_ERRORS = (HydraException, OmegaConfBaseException, ValueError, AssertionError)
AGENT = re.compile(r"--[A-Za-z_][\w./@]*=")
"""`--rule.theta=0.9`, as an agent of W&B's sweeps gives an override."""
SWITCHES = (("--help", "-h"), ("--hydra-help",), ("--resolve",), ("--run", "-r"), ("--multirun", "-m"),
            ("--shell-completion", "-sc"))
TEXTS = (("--package", "-p"), ("--config-path", "-cp"), ("--config-name", "-cn"), ("--config-dir", "-cd"),
         ("--experimental-rerun",))


@dataclass(frozen=True)
class Point:
    """One experiment point: the overrides that name it and its resolved configuration, plain data.

    `cell` and `settings` are that configuration, typed: both raise ConfigError. The options of a rule or drafter are
    typed by its class: `cell` imports torch, but only once what needs no torch was checked."""

    overrides: tuple[str, ...]
    config: dict[str, Any]

    @cached_property
    def cell(self) -> Cell:
        if "bench.config.cell" not in sys.modules:  # which imports torch
            from bench.config.schema import check_sections

            check_sections(self.config)
        from bench.config.cell import Cell

        return Cell.from_config(self.config)

    @cached_property
    def settings(self) -> Settings:
        from bench.config.settings import Settings

        return Settings.from_config(self.config)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A point that may be one this machine or the pair cannot run.

    cell     None where it is refused or absent.
    refused  why this machine cannot run the point.
    absent   which part of the pair, or which data file, the point needs but is not here.
    lacks    with `refused`: the file of the pair, pair.NAME, that the rule needs and that a command measures.
    """

    cell: Cell | None
    refused: str = ""
    absent: str = ""
    lacks: str = ""


@dataclass(frozen=True, slots=True)
class Command:
    """What a command line asks for.

    points     every point, in the order of the sweep; none for a report, which names its own.
    overrides  what was given besides report=.
    sweep      the name given as +sweep=NAME.
    reports    the names given as report=NAME or report=[NAME,NAME]; none for points.
    """

    points: list[Point]
    overrides: list[str]
    sweep: str | None
    reports: tuple[str, ...]

    @property
    def cells(self) -> list[Cell]:
        """The cell of every point. Raises ConfigError."""
        return [point.cell for point in self.points]

    @property
    def labels(self) -> list[str]:
        """Name each point by the overrides in which they differ; a single one by its method and task."""
        points = [point.overrides for point in self.points]
        common = set(points[0]).intersection(*points)
        varying = [" ".join(line for line in overrides if line not in common) for overrides in points]
        return [own or f"{cell.label} {cell.task.name}" for own, cell in zip(varying, self.cells, strict=True)]

    @property
    def settings(self) -> Settings:
        """What the points share. Raises ConfigError."""
        return self.points[0].settings

    def only_point(self) -> Point:
        """The point of a command that takes a single one. Raises ConfigError for several."""
        if len(self.points) != 1:
            raise ConfigError("several values: this command takes one point; give one value for each key")
        return self.points[0]


class _Flags(argparse.ArgumentParser):
    """Hydra's own flags, and the overrides, in any order."""

    def __init__(self) -> None:
        super().__init__(add_help=False)
        self.add_argument("overrides", nargs="*")
        self.add_argument("--version", action="version", version=f"Hydra {__version__}")
        for name in SWITCHES:
            self.add_argument(*name, action="store_true")
        for name in TEXTS:
            self.add_argument(*name)
        self.add_argument("--cfg", "-c", choices=["job", "hydra", "all"])
        self.add_argument("--info", "-i", nargs="?", const="all",
                          choices=["all", "config", "defaults", "defaults-tree", "plugins", "searchpath"])

    def error(self, message: str) -> NoReturn:
        raise ConfigError(f"{message}; see --help")


def compose_command(name: str, argv: Sequence[str], run: Callable[[Command, Composer], int | None],
                    own_help: bool = False) -> int | None:
    """Compose the command line `argv` over conf/NAME.yaml and `run` it. --help prints the options of `python -m bench`
    where `own_help`, else Hydra's own help, as Hydra's other informative flags do; nothing runs then. Raises
    ConfigError."""
    parser = _Flags()
    own = [flag for names in (*SWITCHES, *TEXTS, ("--cfg", "--info", "--version")) for flag in names]
    agents = {word for word in argv if AGENT.match(word) and not any(flag.startswith(word.partition("=")[0])
                                                                     for flag in own)}
    words = [word.removeprefix("--") if word in agents else word for word in argv]
    flags = parser.parse_intermixed_args(words)
    for flag, value in (("--config-name", flags.config_name), ("--config-path", flags.config_path)):
        if value is not None:
            parser.error(f"{flag} {value}: conf/{name}.yaml is what this command reads; give --config-dir FOLDER for "
                         "further YAMLs")
    if flags.help and own_help:
        from bench.config.help import help_text

        print(help_text())
        return 0
    if flags.help or flags.cfg or flags.info or flags.hydra_help or flags.shell_completion or flags.experimental_rerun:
        register_resolvers()
        known = sys.argv
        sys.argv = [sys.argv[0], *(word for word in words if word not in flags.overrides), *flags.overrides]
        try:  # Hydra reads sys.argv itself, and wants its overrides in one piece
            with refusals():
                hydra_main(config_path=str(CONF), config_name=name, version_base="1.3")(lambda _: None)()
        finally:
            sys.argv = known
        return 0
    with composer(flags.config_dir, name) as hydra:
        return run(hydra.command(flags.overrides, flags.multirun), hydra)


@contextmanager
def composer(config_dir: str | None = None, name: str = "config") -> Iterator[Composer]:
    """What composes conf/NAME.yaml; `config_dir` is a user's own folder of further YAMLs. Raises ConfigError."""
    if config_dir is not None:
        if not Path(config_dir).is_dir():
            raise ConfigError(f"--config-dir {config_dir}: no such folder; give one with files like those of conf/")
        for file in sorted(Path(config_dir).rglob("*.yaml")):  # none may run code, hang, or end in a traceback
            user_yaml.mapping(file)
    yield Composer(name, config_dir)


class Composer:
    """Composes points."""

    def __init__(self, name: str, config_dir: str | None) -> None:
        self.config_dir = config_dir
        self._name = name
        self._yamls = Yamls([CONF] if config_dir is None else [CONF, Path(config_dir)])
        self._parser = OverridesParser.create(self._yamls)  # type: ignore[arg-type]  # glob() asks for options alone
        self._parsed: dict[str, Override] = {}
        self._bases: dict[tuple[str, ...], tuple[Data, Choices]] = {}

    def command(self, overrides: Sequence[str], multirun: bool) -> Command:
        """All points of a command line. Raises ConfigError for the first that cannot be composed."""
        parsed = [self._parse(line) for line in overrides]
        keys = [override.get_key_element().lstrip("+") for override in parsed]
        if repeated := [key for key in keys if keys.count(key) > 1]:
            raise ConfigError(f"{repeated[0]}: given {keys.count(repeated[0])} times; give it once")
        for override in parsed:
            if override.key_or_group == "hydra/launcher" and override.value() != "basic":
                raise ConfigError(f"{override.input_line}: must be hydra/launcher=basic; launch=slurm or launch=ray "
                                  "runs the rotations of a command on several machines")
        if reports := [override for override in parsed if override.key_or_group == "report"]:
            rest = [str(override.input_line) for override in parsed if override not in reports]
            value = reports[-1].value()
            names = tuple(dict.fromkeys(map(str, value))) if isinstance(value, list) else (str(value),)
            if not names:
                raise ConfigError("report=[]: names no report; report=list shows all")
            return Command([], rest, None, names)
        config, choices = self._base([_values(one)[0] for one in parsed if self._is_structural(one)])
        hydra, sweep = config["hydra"], choices.get("sweep")
        if sweep is not None:
            scale = next((str(one.value()) for one in parsed if one.key_or_group == "scale"), EMBEDDED)
            parsed = [*map(self._parse, edition(config.get("sweep") or {}, sweep, scale, keys)), *parsed]
        if not multirun and not str(hydra.get("mode")).endswith("MULTIRUN"):
            if swept := [override.input_line for override in parsed if override.is_sweep_override()]:
                raise ConfigError(f"{swept[0]}: several values in one run; add -m to run a point for each")
            return Command([self._checked(overrides)], list(overrides), sweep, ())
        if (sweeper := choices.get("hydra/sweeper", "basic")) != "basic":
            raise ConfigError(f"hydra/sweeper={sweeper}: not supported: all points must be known before the first one "
                              "runs; leave it out, or give basic")
        params = (hydra.get("sweeper") or {}).get("params") or {}
        points = self._sweep([self._parse(f"{key}={value}") for key, value in params.items()], parsed)
        return Command([self._checked(point) for point in points], list(overrides), sweep, ())

    def _checked(self, overrides: Sequence[str]) -> Point:
        """A point of the command line, whose own keys must agree. Raises ConfigError."""
        point = self.point(overrides)
        check_lengths(point.config, [self._parse(line).key_or_group for line in overrides])
        return point

    def _sweep(self, params: Sequence[Override], given: Sequence[Override]) -> list[tuple[str, ...]]:
        """The points of a sweep, in the order of Hydra's basic sweeper, each without swept options that its own rule,
        drafter or task does not have but those of others do: `rule=lossless,mars rule.theta=0.8,0.9` is three."""
        overrides = [*params, *given]
        swept = [override for override in overrides if override.is_sweep_override()]
        changed = [override for override in swept if override in given and override.type is OverrideType.CHANGE]
        if prod(len(_values(override)) for override in swept) > MOST_POINTS:
            raise ConfigError(f"{' '.join(str(override.input_line) for override in swept)}: more than {MOST_POINTS} "
                              "points in one sweep; give fewer values")
        points = list(product(*{override.get_key_element(): _values(override) for override in overrides}.values()))
        keys = {override.key_or_group for override in changed}
        chosen = {key for key in keys if self._is_group(key)} & {"method", *OPTIONAL}
        options = {key for key in keys if chosen and key.partition(".")[0] in OPTIONAL and "." in key}
        lacking = []
        for point in points if options else ():
            config, _ = self._base([line for line in point if self._is_structural(self._parse(line))])
            lacking.append({key for key in options if not _has(config, key)})
        everywhere = set.intersection(*lacking) if lacking else set()
        kept = [tuple(line for line in point if line.partition("=")[0] not in lacks - everywhere)
                for point, lacks in zip(points, lacking, strict=True)] if lacking else points
        return list(dict.fromkeys(kept))

    def point(self, overrides: Sequence[str]) -> Point:
        """One point, every interpolation resolved. Of repeated keys the last wins. Raises ConfigError."""
        parsed = list({one.get_key_element(): one for one in map(self._parse, overrides)}.values())
        base, _ = self._base([str(one.input_line) for one in parsed if self._is_structural(one)])
        config = merge({}, {key: value for key, value in base.items() if key != "hydra"})
        for override in parsed:
            if not self._is_structural(override):
                put(config, override.key_or_group.split("."), override.value())
        follow_length(config, [one.key_or_group for one in parsed])
        with refusals():
            config = resolved(config)
        return Point(tuple(str(one.input_line) for one in parsed if not one.is_hydra_override()), config)

    def candidate(self, overrides: Sequence[str]) -> Candidate:
        """The cell of a point, or why it cannot run."""
        try:
            return Candidate(self.point(overrides).cell)
        except NotHere as error:
            return Candidate(None, absent=str(error))
        except ConfigError as error:
            return Candidate(None, refused=str(error), lacks=getattr(error.__cause__, "key", ""))

    def settings(self, overrides: Sequence[str]) -> Settings:
        """The settings that the overrides give; those of cells are left aside. Raises ConfigError."""
        from bench.config.settings import Settings

        own = [line for line in overrides if line.partition("=")[0].split(".")[0] in Settings.model_fields]
        return self.point(own).settings

    def pair(self, overrides: Sequence[str]) -> Pair:
        """The pair of a point, whether or not its cell can run. Raises ConfigError."""
        from bench.config.schema import Pair

        return parse(Pair, self.point(overrides).config, "pair")

    def check_option(self, group: str, option: str, *others: str) -> None:
        """Raises ConfigError for an option that is neither a YAML of the group nor one of `others`."""
        check_known(group, option, (*others, *self.options(group)))

    def options(self, group: str) -> list[str]:
        """The YAMLs of a group, sorted."""
        return self._yamls.get_group_options(group) or []

    def section(self, group: str, option: str, changes: Sequence[str] = ()) -> Data:
        """One YAML of a group, interpolations left for the points it names, with overrides of its own keys
        (`report.lengths=[2,4]`). Raises ConfigError."""
        config = merge({}, self._base([f"{group}={option}"])[0])
        for override in map(self._parse, changes):
            put(config, override.key_or_group.split("."), override.value(), force=True)
        found: Data = config[group]
        return found

    def _base(self, structural: Sequence[str]) -> tuple[Data, Choices]:
        """The configuration before values are set, that of Hydra under `hydra`, and the choices that made it. Raises
        ConfigError."""
        key = tuple(structural)
        if key not in self._bases:
            try:
                config, choices = self._yamls.joined(self._name, [self._parse(line) for line in structural])
            except Unusual:
                config, choices = self._composed_by_hydra(structural)
            self._bases[key] = {"hydra": {}, **config}, choices
        return self._bases[key]

    def _composed_by_hydra(self, structural: Sequence[str]) -> tuple[Data, Choices]:
        """As `_base`: added and deleted keys, settings of Hydra's own, and whatever else its defaults lists can do."""
        register_resolvers()
        further = [] if self.config_dir is None else [f"hydra.searchpath=['file://{Path(self.config_dir).absolute()}']"]
        with initialize_config_dir(str(CONF), "bench", version_base="1.3"), refusals(self._name, *structural):
            made = compose(self._name, [*structural, *further], return_hydra_config=True)
            config = OmegaConf.to_container(made)
        assert isinstance(config, dict)
        return {str(key): value for key, value in config.items()}, dict(made.hydra.runtime.choices)

    def _is_group(self, key: str) -> bool:
        return key not in NO_GROUPS and self._yamls.get_group_options(key) is not None

    def _is_structural(self, override: Override) -> bool:
        """Does it choose a group's option, add or delete a key, or set Hydra itself?"""
        return (override.type is not OverrideType.CHANGE or override.is_hydra_override()
                or self._is_group(override.key_or_group))

    def _parse(self, line: str) -> Override:
        """Parse a line once: the points of a report share most of theirs."""
        if line not in self._parsed:
            try:
                [parsed] = self._parser.parse_overrides([line])
            except RecursionError:
                raise ConfigError(f"{line[:60]}…: nested too deeply; give fewer levels") from None
            except HYDRA_ERRORS as error:
                reason = str(_refusal(error))
                key, _, value = line.partition("=")
                if "=" in value and value[:1] not in "'\"[{":  # a path, say, that two pairs of quotation marks keep
                    reason = f"a value with `=` is quoted: give {key}='\"{value}\"'"
                raise ConfigError(f"{line}: not of the form KEY=VALUE ({reason})") from error
            group = parsed.key_or_group
            if parsed.is_sweep_override():
                _values(parsed)
            elif self._is_group(group) and not (group and (parsed.is_delete()
                                                                 or isinstance(parsed.value(), str | list))):
                options = (f"{group}={name}" for name in self.options(group) if group)
                raise ConfigError(unknown_key(line, options, what="names no choice"))
            self._parsed[line] = parsed
        return self._parsed[line]


def _values(override: Override) -> list[str]:
    """The override with each of its values; one more than can be composed at most. Raises ConfigError for a sweep whose
    values cannot be listed, and for one without any."""
    key = override.get_key_element()
    if not override.is_sweep_override():
        return [str(override.input_line)]
    if not override.is_discrete_sweep():
        raise ConfigError(f"{override.input_line}: only lists of values can be swept: KEY=a,b,c or KEY=range(1,9)")
    values = [f"{key}={value}" for value in islice(override.sweep_string_iterator(), MOST_POINTS + 1)]
    if not values:
        raise ConfigError(f"{override.input_line}: the list of values is empty; give KEY=a,b,c, KEY=range(1,9), or a "
                          "KEY=glob(PATTERN) that a name fits")
    return values


def _has(config: Data, key: str) -> bool:
    """Whether the section of this key has it."""
    *above, last = key.split(".")
    section: Any = config
    for name in above:
        section = section.get(name) if isinstance(section, dict) else None
    return isinstance(section, dict) and last in section


@contextmanager
def refusals(*overrides: str) -> Iterator[None]:
    """What Hydra and OmegaConf refuse inside, as ConfigError."""
    try:
        yield
    except HYDRA_ERRORS as error:
        raise _refusal(error) from error
    except RecursionError:
        raise ConfigError(f"{' '.join(overrides)}: circular `defaults:`; remove the cycle") from None


def _refusal(error: Exception) -> ConfigError:
    """What Hydra or OmegaConf said about an override, in one line."""
    text = str(error)
    if text.startswith("Error merging override") and isinstance(error.__cause__, HYDRA_ERRORS):
        return _refusal(error.__cause__)
    if isinstance(error, MissingMandatoryValue):
        key = error.full_key or text.splitlines()[0].rpartition(" ")[2]
        return ConfigError(f"{key}: missing; give {key}=VALUE")
    if isinstance(error, MissingConfigException) and error.missing_cfg_file:
        group, _, option = str(error.missing_cfg_file).rpartition("/")
        return ConfigError(unknown_key(f"{group}={option}", (f"{group}={name}" for name in error.options or ()),
                                       what="unknown"))
    return ConfigError(re.sub(r" See https://hydra\S+.*", "", one_line(text)))
