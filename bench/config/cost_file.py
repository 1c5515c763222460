"""Files of cost profiles (conf/cost; docs/cost.md): read, checked and written in one place."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from bench.config.errors import ConfigError
from bench.config.section import parse
from methods import user_yaml
from results.metrics.cost import DRAWN, Profile
from results.store.files import replace_text


def profile_of(config: Mapping[str, Any]) -> Profile | None:
    """`cost=NAME`: what the parts of a cycle cost on another machine; None where none is named.
    Raises ConfigError, one line, for what is no profile, or cannot be one of a machine."""
    plain = config.get("cost")
    if plain is None:
        return None
    if isinstance(plain, Mapping) and "units" not in plain:
        raise ConfigError(
            "cost.units: missing; give cost.units={time: s}, with all times in seconds"
        )
    profile = parse(Profile, config, "cost")
    _check_models(profile)
    return profile


def _check_models(profile: Profile) -> None:
    """Raises ConfigError for a drafter with a model whose forwards have no price."""
    from methods import registry  # torch, which a command without a profile should not cost

    drafters = registry.classes("drafters")
    for kind in ("sampled", "greedy"):
        costs = getattr(profile, kind)
        for name, batches in costs.drafts.items() if costs is not None else ():
            drafter = drafters.get(name.removesuffix(DRAWN))
            empty = [batch for batch, drafting in batches.items() if not drafting.forwards]
            if empty and getattr(drafter, "model_role", None) is not None:
                raise ConfigError(
                    f"cost.{kind}.drafts.{name}.{empty[0]}.forwards: empty, and this drafter runs "
                    "a model; give the seconds of a forward by its tokens, such as {1: 0.001}"
                )


def load(file: Path) -> Profile:
    """The profile of a file. Raises ValueError, one line."""
    profile = profile_of({"cost": user_yaml.mapping(file)})
    assert profile is not None
    return profile


def save(file: Path, profile: Profile) -> None:
    """Write a profile as a file of conf/cost that `load` and `cost=NAME` read: a line for each
    drafter, rule and batch, numbers of four digits. Raises ConfigError for a profile that they
    would refuse, StoreError where it cannot be written."""
    plain = _rounded(profile.model_dump(exclude_none=True))
    profile_of({"cost": plain})
    for part in (plain[kind] for kind in ("sampled", "greedy") if kind in plain):
        part["drafts"] = {name: _Line(prices) for name, prices in part["drafts"].items()}
    text = yaml.dump(
        plain,
        Dumper=_Lines,
        sort_keys=False,
        default_flow_style=None,
        allow_unicode=True,
        width=1000,
    )
    replace_text(
        file,
        f"# python -m bench report=controls cost={file.stem}\n"
        f"# All times are in seconds; docs/cost.md explains each key.\n{text}",
    )


class _Line(dict[str, Any]):
    """What a profile has on one line, whatever is in it."""


class _Lines(yaml.SafeDumper):
    pass


_Lines.add_representer(
    _Line, lambda dumper, line: dumper.represent_mapping("tag:yaml.org,2002:map", line, True)
)


def _rounded(part: Any) -> Any:
    if isinstance(part, dict):
        return {name: _rounded(value) for name, value in part.items()}
    return float(f"{part:.4g}") if isinstance(part, float) else part
