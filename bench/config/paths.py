"""Where the project lies."""

from __future__ import annotations

from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
CONF = PROJECT / "conf"
MODELS = PROJECT / "models"
TINY = MODELS / "tiny"
"""The embedded pair."""
