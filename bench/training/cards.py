"""Render the Markdown pages of trained models from templates."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

TEMPLATES = Path(__file__).parent / "templates"


def render(template: Path, **values: Any) -> str:
    """A page from a template; every name that it uses must be given."""
    templates = Environment(loader=FileSystemLoader(template.parent), undefined=StrictUndefined,
                            trim_blocks=True, lstrip_blocks=True)
    return templates.get_template(template.name).render(**values)
