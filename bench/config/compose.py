"""From a command line to the configuration of every point that it names, plain data, before
anything runs.

YAMLs of conf/ are read once and joined as dictionaries in the order of their `defaults`. Hydra's
parser reads the overrides."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from itertools import islice, product
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override, RangeSweep
from hydra.errors import HydraException
from omegaconf.errors import OmegaConfBaseException
from pydantic import BaseModel

from bench.config.command import (
    EMBEDDED,
    Candidate,
    Command,
    ComposedPoint,
    edition,
    follow_length,
    key_of,
)
from bench.config.errors import ConfigError, NotHere, unknown_key
from bench.config.paths import CONF
from bench.config.plain import Data, has, leaves, merge, put, resolved
from bench.config.section import check_known, parse
from methods import outside, user_yaml
from results.store.errors import one_line

if TYPE_CHECKING:
    from bench.config.schema import Pair
    from bench.config.settings import Settings

Choices = dict[str, str | None]
"""Group -> the option chosen."""
FROM_OUTSIDE = {"rule": "rules", "drafter": "drafters"}
"""Groups whose options may be classes outside of the project -> the folder of theirs in methods."""
OPTIONAL = ("drafter", "rule", "task")
"""Groups whose options differ by the choice."""
NO_GROUPS = ("scale",)
"""Folders of conf/ whose YAMLs are no part of a point: reports read them."""
MOST_POINTS = 10_000
"""Composing so many points takes minutes."""
HYDRA_ERRORS = (HydraException, OmegaConfBaseException, ValueError, AssertionError)
MULTIRUN = ("-m", "--multirun")
CONFIG_DIR = ("--config-dir", "-cd")
AGENT = re.compile(r"--[A-Za-z_][\w./@]*=")
"""`--rule.theta=0.9`, as an agent of W&B's sweeps gives an override."""
KEY = re.compile(r"[\w.@/+~-]+", re.ASCII)
PACKAGE = re.compile(r"\s*#\s*@package\s+(\S+)")


def split(argv: Sequence[str]) -> tuple[str | None, list[str]]:
    """The --config-dir of a command line, and its other words."""
    folder = None
    others = []
    words = iter(argv)
    for word in words:
        flag, _, value = word.partition("=")
        if flag in CONFIG_DIR:
            folder = value or next(words, "")
        else:
            others.append(word)
    return folder, others


@contextmanager
def composer(argv: Sequence[str] = (), name: str = "config") -> Iterator[Composer]:
    """What composes conf/NAME.yaml, and the further YAMLs of the --config-dir of a command line.
    Raises ConfigError."""
    folder, _ = split(argv)
    if folder is not None:
        if not (folder and Path(folder).is_dir()):  # an empty path is this folder
            raise ConfigError(
                f"--config-dir {folder}: no such folder; give one with files like those of conf/"
            )
        # none may run code, hang, or end in a traceback
        for file in sorted(Path(folder).rglob("*.yaml")):
            user_yaml.mapping(file)
    yield Composer(name, folder)


class _ConfLoader(yaml.CSafeLoader):
    yaml_implicit_resolvers = user_yaml.RESOLVERS


class Composer:
    """Composes points. Of two YAMLs with one name that of conf/ counts, not the user's."""

    def __init__(self, name: str, config_dir: str | None) -> None:
        self.config_dir = config_dir
        self._name = name
        self._folders = [CONF] if config_dir is None else [CONF, Path(config_dir)]
        self._parser = OverridesParser.create(self)  # type: ignore[arg-type]  # glob() asks for options alone
        self.get_group_options = cache(self._group_options)
        self._read = cache(self._file)
        self._parse = cache(self._override)
        self._base = cache(self._joined)

    def command(self, argv: Sequence[str]) -> Command:
        """All points of a command line; `composer` has taken its --config-dir. Raises ConfigError
        for the first that cannot be composed."""
        words = [word for word in split(argv)[1] if word not in MULTIRUN]
        overrides = [word[2:] if AGENT.match(word) else word for word in words]
        if unknown := [word for word in overrides if word.startswith("-")]:
            raise ConfigError(f"{unknown[0]}: unknown flag; see --help")
        parsed = [self._parse(line) for line in overrides]
        keys = [override.key_or_group for override in parsed]
        if repeated := [key for key in keys if keys.count(key) > 1]:
            raise ConfigError(f"{repeated[0]}: given {keys.count(repeated[0])} times; give it once")
        swept = [override.input_line for override in parsed if override.is_sweep_override()]
        if "report" in keys:
            return _reports(parsed, swept)
        config, choices = self._base(*(_values(line)[0] for line in parsed if self._chooses(line)))
        hydra = config.get("hydra", {})
        sweep = choices.get("sweep")
        if sweep is not None:
            scale = str(parsed[keys.index("scale")].value()) if "scale" in keys else EMBEDDED
            lines = edition(config.get("sweep") or {}, sweep, scale, keys)
            parsed = [*map(self._parse, lines), *parsed]
        if {*MULTIRUN} & set(argv) or hydra.get("mode") == "MULTIRUN":
            params = (hydra.get("sweeper") or {}).get("params") or {}
            points = self._sweep(
                [self._parse(f"{key}={value}") for key, value in params.items()], parsed
            )
        elif swept:
            raise ConfigError(
                f"{swept[0]}: several values in one run; add -m to run a point for each"
            )
        else:
            points = [tuple(overrides)]
        return Command([self.point(point) for point in points], overrides, sweep, ())

    def _base_of(self, lines: Sequence[str]) -> tuple[Data, Choices]:
        """`_joined` of those lines that choose a group's option."""
        return self._base(*(line for line in lines if self._chooses(self._parse(line))))

    def _sweep(
        self, params: Sequence[Override], commanded: Sequence[Override]
    ) -> list[tuple[str, ...]]:
        """The points of a sweep, in the order of Hydra's basic sweeper, each without swept options
        that its own rule, drafter or task does not have but those of others do: `rule=lossless,mars
        rule.theta=0.8,0.9` is three."""
        values = {override.key_or_group: _values(override) for override in (*params, *commanded)}
        swept = [override for override in (*params, *commanded) if override.is_sweep_override()]
        if prod(map(len, values.values())) > MOST_POINTS:
            raise ConfigError(
                f"{' '.join(str(override.input_line) for override in swept)}: more than "
                f"{MOST_POINTS} points in one sweep; give fewer values"
            )
        points = list(dict.fromkeys(product(*values.values())))
        keys = {override.key_or_group for override in swept if override in commanded}
        options = {key for key in keys if "." in key and key.partition(".")[0] in OPTIONAL}
        if not options or keys.isdisjoint(("method", *OPTIONAL)):
            return points
        configs = [self._base_of(point)[0] for point in points]
        lacking = [{key for key in options if not has(config, key)} for config in configs]
        nowhere = set.intersection(*lacking)  # a typing error, which the point tells
        shortened = []
        for point, lacks in zip(points, lacking, strict=True):
            left_out = lacks - nowhere
            shortened.append(tuple(line for line in point if key_of(line) not in left_out))
        return list(dict.fromkeys(shortened))

    def point(self, overrides: Sequence[str], *, resolve: bool = True) -> ComposedPoint:
        """One point, unless not `resolve` with every interpolation replaced. Of repeated keys the
        last wins. Raises ConfigError."""
        by_key = {override.key_or_group: override for override in map(self._parse, overrides)}
        lines = tuple(str(override.input_line) for override in by_key.values())
        base, _ = self._base_of(lines)
        config = merge({}, {key: value for key, value in base.items() if key != "hydra"})
        for key, override in by_key.items():
            if not self._chooses(override):
                is_added = override.is_add() or override.is_force_add()
                if not is_added and key.partition(".")[0] not in config:
                    raise ConfigError(self._unknown(key, config))
                put(config, key.split("."), override.value(), force=is_added)
        follow_length(config, by_key)
        try:
            return ComposedPoint(lines, resolved(config, config) if resolve else config)
        except RecursionError:
            circle = next((line for line in lines if "${" in line), "${…}")
            raise ConfigError(f"{circle}: interpolations in a circle; give a value") from None

    def candidate(self, overrides: Sequence[str]) -> Candidate:
        """The cell of a point, or why it cannot run."""
        try:
            return Candidate(self.point(overrides).cell)
        except NotHere as error:
            return Candidate(None, absent=str(error))
        except ConfigError as error:
            return Candidate(None, refused=str(error), lacks=getattr(error.__cause__, "key", ""))

    def settings(self, overrides: Sequence[str]) -> Settings:
        """The settings that the overrides give; those of cells are left aside. Raises
        ConfigError."""
        from bench.config.settings import Settings

        lines = [line for line in overrides if key_of(line).split(".")[0] in Settings.model_fields]
        return self.point(lines).settings

    def pair(self, overrides: Sequence[str]) -> Pair:
        """The pair of a point, whether or not its cell can run. Raises ConfigError."""
        from bench.config.schema import Pair

        return parse(Pair, self.point(overrides).config, "pair")

    def check_option(self, group: str, option: str, *others: str) -> None:
        """Raises ConfigError for an option that is neither a YAML of the group, nor a class outside
        of the project, nor one of `others`."""
        if not self._is_outside(group, option):
            check_known(group, option, (*others, *self.options(group)))

    def options(self, group: str) -> list[str]:
        """The YAMLs of a group, sorted."""
        return self.get_group_options(group) or []

    def section(self, group: str, option: str, changes: Sequence[str] = ()) -> Data:
        """One YAML of a group, interpolations left for the points it names, with overrides of its
        own keys (`report.lengths=[2,4]`). Raises ConfigError."""
        config = merge({}, self._base(f"{group}={option}")[0])
        for override in map(self._parse, changes):
            put(config, override.key_or_group.split("."), override.value(), force=True)
        section: Data = config[group]
        return section

    def _group_options(self, group: str, results_filter: object = None) -> list[str] | None:
        """As `options`; None for what is no group. Hydra's glob() asks by this name."""
        files = (file for folder in self._folders for file in (folder / group).glob("*.yaml"))
        return sorted({file.stem for file in files}) or None

    def _chooses(self, override: Override) -> bool:
        """Does it choose a group's option?"""
        key = override.key_or_group
        return key not in ("", *NO_GROUPS) and self.get_group_options(key) is not None

    def _override(self, line: str) -> Override:
        """Parse a line, once: the points of a report share most of theirs. Raises ConfigError."""
        if not key_of(line).strip("+~ "):
            raise ConfigError(
                f"{line if line.strip() else repr(line)}: no key before `=`; give KEY=VALUE"
            )
        try:
            [parsed] = self._parser.parse_overrides([line])
        except RecursionError:
            raise ConfigError(f"{line[:60]}…: nested too deeply; give fewer levels") from None
        except HYDRA_ERRORS as error:
            key, _, value = line.partition("=")
            if not (KEY.fullmatch(key) and value):
                reason = "give n=4, for example"
            elif re.search(r"[][{}'\"$]", value):
                reason = "check the quotes and brackets of VALUE"
            else:
                reason = (
                    f"a value with `=`, `~`, `;`, é or the like is quoted: give {key}='\"{value}\"'"
                )
            raise ConfigError(f"{line}: not of the form KEY=VALUE; {reason}") from error
        if parsed.is_delete():
            raise ConfigError(f"{line}: not read; give the key a value, such as {line[1:]}=null")
        if parsed.is_hydra_override() or parsed.package is not None:
            raise ConfigError(
                f"{line}: not read; -m runs several points, and launch=slurm or launch=ray several "
                "machines"
            )
        if parsed.is_sweep_override():
            _values(parsed)
        elif self._chooses(parsed):
            group = parsed.key_or_group
            option = parsed.value()
            if isinstance(option, list) and group != "report":
                raise ConfigError(
                    f"{line}: a point has one {group}; several are a sweep: -m "
                    f"{group}={','.join(map(str, option))}"
                )
            if not isinstance(option, str | list):
                raise ConfigError(unknown_key(line, self._lines_of(group), what="names no choice"))
        return parsed

    def _unknown(self, key: str, config: Data) -> str:
        """What to say of a key that neither the configuration nor a group of conf/ has."""
        groups = {
            path.name for folder in self._folders for path in folder.iterdir() if path.is_dir()
        }
        options = {group: self._options_of(group) for group in OPTIONAL}
        keys = [*leaves(config), *leaves(options)]
        return unknown_key(key, {*config, *groups - {*NO_GROUPS}}, elsewhere=keys)

    def _options_of(self, group: str) -> Data:
        """The options that the YAMLs of a group have, all together."""
        options: Data = {}
        for name in self.options(group):
            with suppress(ConfigError):
                merge(options, self._read(f"{group}/{name}")[0])
        return options

    def _lines_of(self, group: str) -> list[str]:
        return [f"{group}={name}" for name in self.options(group)]

    def _file(self, name: str) -> tuple[Data, list[Any], bool]:
        """Of NAME.yaml its values, its defaults list, and whether the values belong to the root.
        Raises ConfigError."""
        files = [folder / f"{name}.yaml" for folder in self._folders]
        file = next(filter(Path.is_file, files), None)
        if file is None:
            group, _, option = name.partition("/")
            raise ConfigError(
                unknown_key(f"{group}={option}", self._lines_of(group), what="unknown")
            )
        text = file.read_text(encoding="utf-8")
        package = PACKAGE.match(text)
        if package and package[1] != "_global_":
            raise ConfigError(f"{file}: # @package {package[1]}: not read; only _global_ is")
        values = yaml.load(text, _ConfLoader) or {}
        defaults = values.pop("defaults", [])
        if "_self_" not in defaults:
            defaults = [*defaults, "_self_"]
        return values, defaults, package is not None

    def _option(self, group: str, name: str, *within: str) -> tuple[Data, Choices]:
        """A YAML of a group joined with those that it builds on, and what their `override /GROUP:
        NAME` choose."""
        if self._is_outside(group, name):
            return {group: _defaults_of(group, name)}, Choices()
        values, defaults, is_global = self._read(f"{group}/{name}")
        if name in within:
            raise ConfigError(f"{group}={name}: circular `defaults:`; remove the cycle")
        data: Data = {}
        chosen: Choices = {}
        for entry in defaults:
            if entry == "_self_":
                merge(data, values if is_global else {group: values})
            elif isinstance(entry, str):
                inherited, choices = self._option(group, entry, name, *within)
                merge(data, inherited)
                chosen |= choices
            elif isinstance(entry, dict) and all(
                str(key).startswith("override /") for key in entry
            ):
                chosen |= {
                    str(key).removeprefix("override /"): option for key, option in entry.items()
                }
            else:
                raise ConfigError(
                    f"{group}={name}: defaults: {entry}: not read; give the name of another "
                    f"{group}, _self_, or `override /GROUP: NAME`"
                )
        return data, chosen

    def _is_outside(self, group: str, name: str) -> bool:
        """Whether the option is a class outside of the project, and none of its YAMLs. Raises
        ConfigError for a file without its class."""
        if group not in FROM_OUTSIDE:
            return False
        if outside.is_outside(name):
            return True
        if name.endswith(".py"):
            raise ConfigError(f"{group}={name}: names no class; give {group}={name}:CLASS")
        return name not in self.options(group) and name in outside.installed(FROM_OUTSIDE[group])

    def _joined(self, *structural: str) -> tuple[Data, Choices]:
        """The configuration before values are set, with the options that the overrides choose, and
        all choices. Of those of one group that of the command line wins, then that of the last
        YAML. Raises ConfigError."""
        values, listed, _ = self._read(self._name)
        overrides = map(self._parse, structural)
        choices: Choices = {line.key_or_group: str(line.value()) for line in overrides}
        groups = {group for entry in listed if isinstance(entry, dict) for group in entry}
        added = [{group: option} for group, option in choices.items() if group not in groups]
        parts = []
        for entry in reversed(listed + added):
            if entry == "_self_":
                parts.append(values)
                continue
            [(group, default)] = entry.items()
            option = choices.setdefault(group, default)
            if option is not None:
                data, chosen = self._option(group, option)
                choices = chosen | choices
                parts.append(data)
        config: Data = {}
        for part in reversed(parts):
            merge(config, part)
        return config, choices


def _reports(overrides: Sequence[Override], swept: Sequence[str | None]) -> Command:
    """The command of a line with `report=`. Raises ConfigError."""
    [asked] = [override for override in overrides if override.key_or_group == "report"]
    if asked.input_line in swept:
        raise ConfigError(f"{asked.input_line}: several reports are a list: report=[NAME,NAME]")
    names: Any = asked.value()
    if names == []:
        raise ConfigError("report=[]: names no report; report=list shows all")
    if swept:
        raise ConfigError(
            f"{swept[0]}: a report names its own points; give one value beside report="
        )
    rest = [str(override.input_line) for override in overrides if override is not asked]
    reports = dict.fromkeys(map(str, names if isinstance(names, list) else [names]))
    return Command([], rest, None, tuple(reports))


def _defaults_of(group: str, name: str) -> Data:
    """The section of a rule or drafter outside of the project: the defaults of its options. Raises
    ConfigError."""
    from methods import registry

    name = outside.absolute(name)
    try:
        option = registry.rule(name) if group == "rule" else registry.drafter(name)
    except outside.OutsideError as error:
        raise ConfigError(str(error)) from error
    section: Data = {"name": name}
    for key, field in option.model_fields.items():
        default = "???" if field.is_required() else field.get_default(call_default_factory=True)
        section[key] = default.model_dump() if isinstance(default, BaseModel) else default
    return section


def _values(override: Override) -> list[str]:
    """The override with each of its values; one more than can be composed at most. Raises
    ConfigError for a sweep whose values cannot be listed, and for one without any."""
    if not override.is_sweep_override():
        return [str(override.input_line)]
    if not override.is_discrete_sweep():
        raise ConfigError(
            f"{override.input_line}: only lists of values can be swept: KEY=a,b,c or KEY=range(1,9)"
        )
    try:
        values = list(islice(override.sweep_string_iterator(), MOST_POINTS + 1))
    except TypeError as error:  # of glob(), which lists a group's names
        raise ConfigError(
            f"{override.input_line}: glob() chooses among the YAMLs of a group, such as rule or "
            "task; give KEY=a,b,c"
        ) from error
    except (ValueError, ArithmeticError) as error:  # of range(): a step of 0, a bound that is none
        raise ConfigError(
            f"{override.input_line}: no list of values ({one_line(error)}); give KEY=a,b,c or "
            "KEY=range(1,9)"
        ) from error
    if isinstance(override.value(), RangeSweep):
        values = [
            value if value.lstrip("-").isdigit() else f"{float(value):.12g}" for value in values
        ]
    if not values:
        raise ConfigError(
            f"{override.input_line}: the list of values is empty; give KEY=a,b,c, "
            "KEY=range(1,9), or a KEY=glob(PATTERN) that a name fits"
        )
    numbers = [_number(value) for value in values]
    if twice := [value for at, value in enumerate(values) if numbers[at] in numbers[:at]]:
        raise ConfigError(f"{override.input_line}: {twice[0]} is given twice; give each value once")
    if override.key_or_group in FROM_OUTSIDE:
        values = [value.replace("\\:", ":") for value in values]
    return [f"{override.get_key_element()}={value}" for value in values]


def _number(value: str) -> float | str:
    """A swept value as what it is: 0 and 0.0 are one."""
    for kind in (int, float):
        with suppress(ValueError):
            return kind(value)
    return value
