"""Write conf/schema/*.json: JSON schemas of conf/'s YAMLs, which editors complete by.

  python -m bench.schema          # after a change of the report language, or of an option of a
                                  pair, rule or drafter

`.vscode/settings.json` names the schema of each folder of YAMLs for the YAML extension of VS
Code."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, TypeAdapter

from bench.config.paths import CONF
from bench.config.schema import Decoding, Pair
from methods import registry
from results.metrics.catalog import METRICS
from results.reports.scales import SCALES
from results.reports.spec import AnyReport

FOLDER = CONF / "schema"
Schema = dict[str, Any]
LATER: Schema = {"type": "string", "pattern": r"\$\{|^\?\?\?$"}
"""A value that another key gives, or the command line."""
TEXTS: Schema = {"type": "array", "items": {"type": "string"}}
AXIS: Schema = {
    "anyOf": [
        {"type": "array", "items": {"anyOf": [{"type": "string"}, {"$ref": "#/$defs/Entry"}]}},
        {"$ref": "#/$defs/Entry", "required": ["override", "values"]},
        {
            "type": "object",
            "properties": {scale: {"$ref": "#/$defs/Axis"} for scale in SCALES},
            "additionalProperties": False,
        },
    ]
}
ENTRY: Schema = {
    "use": {"type": "string"},
    "override": {"type": "string"},
    "values": {"type": "array"},
    "variants": {"$ref": "#/$defs/Axis"},
    "scale": {"anyOf": [{"enum": list(SCALES)}, TEXTS]},
}
"""What an axis and an entry may be in a YAML, beside what they are once names and values are
spelled out."""


def of_reports() -> Schema:
    """The schema of conf/report: what a report becomes, and what stands for it in a YAML."""
    schema = TypeAdapter[AnyReport](AnyReport).json_schema()
    known: dict[str, Schema] = schema["$defs"]
    known["Axis"] = AXIS
    known["Entry"] |= {"properties": known["Entry"]["properties"] | ENTRY, "required": []}
    known["Column"] = {"anyOf": [{"enum": list(METRICS)}, known["Column"]]}
    one_or_more = known["Bars"]["properties"]["y"]
    known["Bars"]["properties"]["y"] = {"anyOf": [one_or_more, one_or_more["items"]]}
    for name in (
        "TableSpec",
        "FigureSpec",
    ):  # one that builds on another by `defaults` gives the rest alone
        own = known[name]["properties"]
        own |= {
            "axes": {"type": "object", "additionalProperties": {"$ref": "#/$defs/Axis"}},
            "defaults": TEXTS,
        }
        known[name]["required"] = ["name"]
    known["Choice"]["required"] = known["Published"]["required"] = []
    return schema


def of_section(model: type[BaseModel], **further: Schema) -> Schema:
    """The schema of a section's YAML."""
    schema = model.model_json_schema()
    own = {name: {"anyOf": [value, LATER]} for name, value in schema.get("properties", {}).items()}
    return {**schema, "properties": own | further | {"defaults": {"type": "array"}}, "required": []}


def of_pairs() -> Schema:
    """The schema of conf/pair, where a checkpoint is a text and its revision a key of its own."""
    roles = [
        name for name, field in Pair.model_fields.items() if "Checkpoint" in str(field.annotation)
    ]
    text: Schema = {"type": ["string", "null"]}
    return of_section(Pair, **{key: text for role in roles for key in (role, f"{role}_revision")})


def of_choices(folder: str) -> Schema:
    """The schema of conf/rule or conf/drafter: the options of the class that `name` chooses."""
    find = {"rules": registry.rule, "drafters": registry.drafter}[folder]
    models: Mapping[str, type[BaseModel]] = {name: find(name) for name in registry.names(folder)}
    return {"anyOf": [of_section(model, name={"const": name}) for name, model in models.items()]}


def schemas() -> dict[str, Schema]:
    """Folder of conf/ -> schema of its YAMLs."""
    return {
        "report": of_reports(),
        "pair": of_pairs(),
        "decoding": of_section(Decoding),
        "rule": of_choices("rules"),
        "drafter": of_choices("drafters"),
    }


def main() -> int:
    FOLDER.mkdir(exist_ok=True)
    for name, schema in schemas().items():
        (FOLDER / f"{name}.json").write_text(
            json.dumps(schema, ensure_ascii=False) + "\n", encoding="utf-8"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
