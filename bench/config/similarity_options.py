"""The options of the models that compare the meaning of texts."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field, field_validator

from bench.config.section import Section


class Similarity(Section):
    """The options of conf/similarity/default.yaml."""

    sentence: str | None
    entailment: str | None
    bertscore: str | None
    bertscore_layer: int | None = Field(ge=0)
    positions: int = Field(ge=1)

    @field_validator("sentence", "entailment", "bertscore")
    @classmethod
    def _is_source(cls, source: str | None) -> str | None:
        """A folder that is there, or what can be a name on the hub."""
        if source is None or Path(source).is_dir():
            return source
        if source.startswith((".", "/", "~")) or len(Path(source).parts) != 2:
            raise ValueError("no such folder; give a folder or a hub name org/model")
        return source

    def models(self, measures: tuple[str, ...]) -> dict[str, str]:
        """Measure -> model of those that are given."""
        return {name: source for name in measures if (source := getattr(self, name)) is not None}
