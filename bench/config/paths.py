"""Where the project lies."""

from __future__ import annotations

from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
CONF = PROJECT / "conf"
TINY = PROJECT / "models" / "tiny"
"""The embedded pair."""
