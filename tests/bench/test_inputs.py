"""Folders that a dry run refuses, words that other programs give, and what a kill leaves of a baseline."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.config.compose import composer, users_folder
from bench.config.errors import ConfigError


def test_a_dry_run_makes_no_folder(command, tmp_path: Path) -> None:
    result = command("method=ar", "dry_run=true", f"store.dir={tmp_path / 'a' / 'b'}")
    assert result.status == 0 and list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("argv", "expected"), [
    (["--rule.theta=0.9", "method=mars"], ["rule.theta=0.9", "method=mars"]), (["--seed=3"], ["seed=3"]),
    (["seed=3", "--config-dir=FOLDER", "n=2"], ["seed=3", "n=2"]), (["-m", "n=2"], ["n=2"])])
def test_flags_and_overrides_come_in_any_order(argv: list[str], expected: list[str], tmp_path: Path) -> None:
    """An agent of W&B's sweeps gives each override as a flag."""
    words = [word.replace("FOLDER", str(tmp_path)) for word in argv]
    with composer(users_folder(words)) as hydra:
        assert hydra.command(words).overrides == expected


def test_a_value_with_an_equals_sign_is_told_how_to_be_quoted() -> None:
    with composer() as hydra:
        with pytest.raises(ConfigError, match=r"""give store.dir='"/a/x=1"'$|give store.dir='"/a/x=1"'\)$"""):
            hydra.point(["store.dir=/a/x=1"])
        assert hydra.point(['store.dir="/a/x=1"']).settings.store.dir == Path("/a/x=1")
