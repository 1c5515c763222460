"""Hydra's part: from a command line to the resolved configuration of every point it names, before anything runs."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hydra import compose
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override, OverrideType
from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import ConfigAttributeError, ConfigKeyError

from bench.config.errors import ConfigError, NotHere, unknown_key
from bench.config.hydra_errors import CONFIG_ERRORS, format_hydra_error
from bench.config.hydra_internals import BASIC, CommandLine, ConfigLoaderImpl, combinations, compose_option, session
from bench.config.lines import check_number, check_values, first_line, line_of
from bench.config.patched import Patched
from bench.config.points import Candidate, Command, Point, as_dict
from bench.config.section import check_known, parse

SEPARATE = ("task", "pair")
"""Groups whose options set only their own section and are chosen by no other option, the one that fewer name first."""
OPTIONAL = ("drafter", "rule", "task")
"""Groups whose options differ by the choice."""
SCORER = "task.scorer"
"""Its keys depend on its name, which an override may choose; the scorer refuses those that it does not have."""

if TYPE_CHECKING:
    from bench.config.schema import Pair
    from bench.config.settings import Settings


def compose_command(name: str, argv: Sequence[str], run: Callable[[Command, Composer], int | None],
                    own_help: bool = False) -> int | None:
    """Compose the command line `argv` over conf/NAME.yaml and `run` it. --help prints the options of `python -m bench`
    where `own_help`, else Hydra's own help, as Hydra's other informative flags do; nothing runs then. Raises
    ConfigError."""
    line = CommandLine.parse(name, argv)
    if line.flags.help and own_help:
        from bench.config.help import help_text

        print(help_text())
        return 0
    if line.flags.help or line.asks_hydra:
        line.run_hydra()
        return 0
    with composer(line.flags.config_dir, name) as hydra:
        return run(hydra.command(line.flags.overrides, line.flags.multirun), hydra)

LAUNCHER = "hydra/launcher"


@contextmanager
def composer(config_dir: str | None = None, name: str = "config") -> Iterator[Composer]:
    """Hydra, ready to compose conf/NAME.yaml; `config_dir` is a user's own folder of further YAMLs."""
    with session(config_dir) as loader:
        yield Composer(loader, name, config_dir)


@dataclass(frozen=True, slots=True)
class _Base:
    """A composition before any value is overridden: the points' configuration, pickled, and Hydra's own."""

    pickled: bytes
    hydra: DictConfig

    def config(self) -> DictConfig:
        """A copy that may be changed; unpickling takes half as long as copying."""
        return pickle.loads(self.pickled)


class Composer:
    """Composes points. Hydra composes each set of group choices once, without the groups that stand apart; values are
    then set on copies of it, which makes a report of hundreds of points quick to check."""

    def __init__(self, loader: ConfigLoaderImpl, name: str, config_dir: str | None = None) -> None:
        self.config_dir = config_dir
        self._loader, self._name = loader, name
        self._parser = OverridesParser.create(loader)  # glob() asks the loader for the choices of a group
        self._bases: dict[tuple[str, ...], _Base] = {}
        self._options: dict[tuple[str, str], DictConfig] = {}
        self._groups: dict[str, list[str]] = {}
        self._parsed: dict[str, Override] = {}
        self._patched = Patched()

    def command(self, overrides: Sequence[str], multirun: bool) -> Command:
        """All points of a command line. Raises ConfigError for the first that cannot be composed."""
        parsed = self._parse(overrides)
        keys = [override.get_key_element().lstrip("+") for override in parsed]
        if repeated := [key for key in keys if keys.count(key) > 1]:
            raise ConfigError(f"{repeated[0]}: given {keys.count(repeated[0])} times; give it once")
        for override in parsed:
            if override.key_or_group == LAUNCHER and override.value() != "basic":
                raise ConfigError(f"{line_of(override)}: must be {LAUNCHER}=basic; launch=slurm or launch=ray runs the "
                                  "rotations of a command on several machines")
        if reports := [override for override in parsed if override.key_or_group == "report"]:
            rest = [line_of(override) for override in parsed if override not in reports]
            value = reports[-1].value()
            names = tuple(dict.fromkeys(map(str, value))) if isinstance(value, list) else (str(value),)
            if not names:
                raise ConfigError("report=[]: names no report; report=list shows all")
            return Command([], rest, None, names)
        hydra = self._base([first_line(override) for override in parsed if self._is_structural(override)]).hydra
        sweep = hydra.runtime.choices.get("sweep")
        if not multirun and str(hydra.mode) != "RunMode.MULTIRUN":
            if swept := [line_of(override) for override in parsed if override.is_sweep_override()]:
                raise ConfigError(f"{swept[0]}: several values in one run; add -m to run a point for each")
            return Command([self.point(overrides)], list(overrides), sweep, ())
        if not hydra.sweeper._target_.startswith(BASIC):
            raise ConfigError(f"hydra/sweeper={hydra.runtime.choices['hydra/sweeper']}: not supported: all "
                              "points must be known before the first one runs; leave it out, or give basic")
        params = self._parse([f"{key}={value}" for key, value in (hydra.sweeper.params or {}).items()])
        fixed = [line_of(override) for override in parsed if override.is_hydra_override()]
        task = [override for override in parsed if not override.is_hydra_override()]
        check_number([*params, *task])
        lines = [[*fixed, *combination] for combination in combinations([*params, *task])]
        points = [self.point(point) for point in self._with_their_options(lines, task)]
        return Command(points, list(overrides), sweep, ())

    def _with_their_options(self, points: list[list[str]], overrides: Sequence[Override]) -> list[list[str]]:
        """The points of a sweep, each without swept options that its own rule, drafter or task does not have but those
        of others do: `rule=lossless,mars rule.theta=0.8,0.9` is three points."""
        swept = {one.key_or_group for one in overrides if one.is_sweep_override() and one.type is OverrideType.CHANGE}
        chosen = {key for key in swept if self._loader.repository.group_exists(key)} & {"method", *OPTIONAL}
        options = {key for key in swept if chosen and key.partition(".")[0] in OPTIONAL and "." in key}
        known: dict[tuple[str, ...], set[str]] = {}
        lacking = []
        for point in points if options else ():
            structural = tuple(line_of(one) for one in self._parse(point) if self._is_structural(one))
            if structural not in known:
                config = self._config(structural)
                known[structural] = {key for key in options if _has(config, key)}
            lacking.append(options - known[structural])
        if not lacking:
            return points
        everywhere = set.intersection(*lacking)
        kept = [tuple(line for line in point if line.partition("=")[0] not in lacks - everywhere)
                for point, lacks in zip(points, lacking, strict=True)]
        return [list(point) for point in dict.fromkeys(kept)]

    def point(self, overrides: Sequence[str]) -> Point:
        """One point, every interpolation resolved. Of repeated keys the last wins. Raises ConfigError."""
        parsed = list({override.get_key_element(): override for override in self._parse(overrides)}.values())
        structural = [line_of(override) for override in parsed if self._is_structural(override)]
        values = [override for override in parsed if not self._is_structural(override)]
        try:
            sections = {group: self._option(group, option) for group, option in self._separate(structural).items()}
            plain = self._patched.resolve(self._config, structural, values, sections)
        except (ConfigKeyError, ConfigAttributeError) as error:
            beside = _keys_beside(self._config(structural), str(error.full_key))
            raise ConfigError(unknown_key(str(error.full_key), beside)) from error
        except CONFIG_ERRORS as error:
            raise format_hydra_error(error) from error
        return Point(tuple(line_of(override) for override in parsed if not override.is_hydra_override()), plain)

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
        if group not in self._groups:
            self._groups[group] = sorted(self._loader.get_group_options(group))
        return self._groups[group]

    def section(self, group: str, option: str, changes: Sequence[str] = ()) -> dict[str, Any]:
        """One YAML of a group, interpolations left for the points it names, with overrides of its own keys
        (`report.lengths=[2,4]`). Raises ConfigError."""
        config = self._base([f"{group}={option}"]).config()
        try:
            for override in self._parse(changes):
                OmegaConf.update(config, override.key_or_group, override.value(), merge=True, force_add=True)
        except CONFIG_ERRORS as error:
            raise format_hydra_error(error) from error
        return as_dict(config[group], resolve=False)

    def _base(self, structural: Sequence[str]) -> _Base:
        """Hydra's composition of group choices, added keys and its own settings. Raises ConfigError."""
        key = tuple(structural)
        if key not in self._bases:
            with refusals(self._name, *structural):
                config = compose(self._name, list(structural), return_hydra_config=True)
            with open_dict(config):
                hydra = config.pop("hydra")
            self._bases[key] = _Base(pickle.dumps(config), hydra)
        return self._bases[key]

    def _config(self, structural: Sequence[str]) -> DictConfig:
        """A copy of the points' part of that composition. The options of SEPARATE groups are composed once each and put
        in their place, so that a report composes its methods and its tasks, not every pair of them; but not those to
        which keys are added, or from which some are deleted."""
        separate = self._separate(structural)
        rest = [line for line in structural if line.partition("=")[0] not in separate]
        config = self._base(rest).config()
        with open_dict(config):
            for group, option in separate.items():
                config[group] = self._option(group, option)
        if isinstance(scorer := OmegaConf.select(config, SCORER), DictConfig):
            OmegaConf.set_struct(scorer, False)
        return config

    def _separate(self, structural: Sequence[str]) -> dict[str, str]:
        """SEPARATE group -> its option, of those to which no key is added and from which none is deleted."""
        changed = {line.lstrip("+~").partition("=")[0].partition(".")[0] for line in structural if line[0] in "+~"}
        chosen = dict(line.split("=", 1) for line in structural if "=" in line) if self._name == "config" else {}
        return {group: chosen[group] for group in SEPARATE
                if group not in changed and chosen.get(group) in self.options(group)}

    def _option(self, group: str, option: str) -> DictConfig:
        """The section that one option of a group makes."""
        if (group, option) not in self._options:
            with refusals(f"{group}/{option}"):
                self._options[group, option] = compose_option(self._loader, f"{group}/{option}")[group]
        return self._options[group, option]

    def _is_structural(self, override: Override) -> bool:
        """Does it choose a group's option, add or delete a key, or set Hydra itself?"""
        return (override.type is not OverrideType.CHANGE or override.is_hydra_override()
                or self._loader.repository.group_exists(override.key_or_group))

    def _parse(self, overrides: Sequence[str]) -> list[Override]:
        return [self._parsed_line(line) for line in overrides]

    def _parsed_line(self, line: str) -> Override:
        """Parse a line once: the points of a report share most of theirs."""
        if line not in self._parsed:
            try:
                [parsed] = self._parser.parse_overrides([line])
            except RecursionError:
                raise ConfigError(f"{line[:60]}…: nested too deeply; give fewer levels") from None
            except CONFIG_ERRORS as error:
                reason = str(format_hydra_error(error))
                key, _, value = line.partition("=")
                if "=" in value and value[:1] not in "'\"[{":  # a path, say, that two pairs of quotation marks keep
                    reason = f"a value with `=` is quoted: give {key}='\"{value}\"'"
                raise ConfigError(f"{line}: not of the form KEY=VALUE ({reason})") from error
            if parsed.is_sweep_override():
                check_values(parsed)
            elif self._loader.repository.group_exists(parsed.key_or_group):
                self._check_choice(parsed)
            self._parsed[line] = parsed
        return self._parsed[line]

    def _check_choice(self, override: Override) -> None:
        """Raises ConfigError where the value of a group is no name."""
        group = override.key_or_group
        if not group or not (override.is_delete() or isinstance(override.value(), str | list)):
            options = (f"{group}={name}" for name in self.options(group) if group)
            raise ConfigError(unknown_key(line_of(override), options, what="names no choice"))


@contextmanager
def refusals(name: str, *overrides: str) -> Iterator[None]:
    """What Hydra raises while it composes, as ConfigError."""
    try:
        yield
    except CONFIG_ERRORS as error:
        raise format_hydra_error(error) from error
    except RecursionError:
        raise ConfigError(f"{' '.join([name, *overrides])}: circular `defaults:`; remove the cycle") from None


def _keys_beside(config: DictConfig, key: str) -> list[str]:
    """The full names of the keys that do exist where `key` does not."""
    parent = key.rpartition(".")[0]
    while parent and not isinstance(OmegaConf.select(config, parent), DictConfig):
        parent = parent.rpartition(".")[0]
    node = OmegaConf.select(config, parent) if parent else config
    names = [str(name) for name in node]
    return [f"{parent}.{name}" for name in names] if parent else names


def _has(config: DictConfig, key: str) -> bool:
    """Whether the section of this key has it."""
    parent, _, name = key.rpartition(".")
    section = OmegaConf.select(config, parent)
    return isinstance(section, DictConfig) and name in section
