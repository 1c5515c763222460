"""Reports as data: their points, their mistakes, and the shipped ones."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from results.metrics.tau_gain import TEMPERATURES
from results.reports.published import by_place, load_published, place_in_paper
from results.reports.scales import SCALES, at_all_scales
from results.reports.spec import TableSpec, parse_report
from tests.helpers.synthetic_cells import figure_spec, table_spec

REPORTS = [
    path
    for path in sorted((Path(__file__).parents[2] / "conf" / "report").glob("*.yaml"))
    if "defaults" not in yaml.safe_load(path.read_text(encoding="utf-8"))
]


HERE = Path(__file__).parent


def cases(name: str) -> list[Any]:
    return [*yaml.safe_load_all((HERE / f"{name}.yaml").read_text(encoding="utf-8"))]


[MISTAKES], [POINTS], (AXES, EDITIONS) = map(cases, ("mistakes", "points", "editions"))


@pytest.mark.parametrize("case", POINTS)
def test_points_are_the_product_with_the_overrides_in_axis_order(case):
    spec = table_spec(**case["given"])
    points = [(", ".join(point.coords), [*point.overrides]) for point in spec.points()]
    assert points == [*case["points"].items()]
    assert TableSpec.model_validate(spec.model_dump()).points() == spec.points()


def test_the_frontier_has_the_settings_that_it_names():
    chain = {"label": "chain", "overrides": ["drafter.tree=chain"]}
    spec = table_spec(
        base=["decoding.temperature=1"],
        rows=["Method"],
        columns=[],
        axes={"Method": [{"label": "best", "variants": [{"label": "tree"}, chain]}]},
        choice={"lossless": "best", "frontier": ["chain"]},
    )
    coords = [point.coords for point in spec.points()]
    assert coords[:2] == [("best", "tree"), ("best", "chain")]
    assert [setting for _, setting in coords[2:]] == ["chain"] * (len(TEMPERATURES) - 1)


@pytest.mark.parametrize(("said", "change"), MISTAKES)
def test_mistakes_are_named(said, change):
    """Changes of the made-up table, and figures of an axis `name`."""
    with pytest.raises(ValidationError, match=re.escape(said)):
        if "kind" in change:
            figure_spec({"name": [{"label": "a"}, {"label": "b"}]}, change)
        else:
            table_spec(**change)


def test_an_edition_of_a_figure_has_options_of_its_own():
    axes = {
        "Model": [
            {"label": "Alpha", "overrides": ["pair=alpha"], "scale": "embedded"},
            {"label": "Laptop", "overrides": ["pair=laptop"], "scale": "real"},
        ]
    }
    figure = {"kind": "pareto", "x": "tau", "y": "accuracy", "series": "Model"}
    spec = figure_spec(axes, figure, figure_at={"real": {"y": "nll"}})
    assert spec.edition().metrics() == ["tau", "accuracy"]
    assert spec.edition(["laptop"]).metrics() == ["tau", "nll"]
    with pytest.raises(ValueError, match="report=f: does not have scale=paper"):
        spec.edition((), "paper")
    with pytest.raises(ValidationError, match="unknown metric 'speed'"):
        figure_spec(axes, figure, figure_at={"real": {"y": "speed"}})


@pytest.mark.parametrize(("given", "name", "points"), EDITIONS)
def test_editions_keep_what_belongs_to_their_scale(given, name, points):
    edition = table_spec(**AXES).edition(**given)
    TableSpec.model_validate(edition.model_dump())
    found = [" ".join(point.coords) for point in edition.points()]
    assert (edition.name, found) == (name, points)


def test_editions_that_a_report_does_not_have():
    spec = table_spec(**AXES)
    with pytest.raises(ValueError, match="pair=other; it has alpha, laptop, big, huge, and"):
        spec.edition(["other"])
    with pytest.raises(ValueError, match=r"pairs=\[alpha,big\] are of two scales"):
        spec.edition(["alpha", "big"])
    no_pairs = table_spec(axes={name: [{"label": name}] for name in spec.axes})
    assert no_pairs == no_pairs.edition((), "paper") == no_pairs.edition(["big"])


@pytest.mark.parametrize("path", REPORTS, ids=lambda path: path.stem)
def test_shipped_reports_are_sound(path):
    """Their points, and the names of a paper's table that they give to entries."""
    spec = parse_report(yaml.safe_load(path.read_text(encoding="utf-8")))
    assert spec.name == path.stem
    editions = [spec.edition((), scale) for scale in SCALES if spec.has_edition((), scale)]
    points = [point for edition in editions for point in edition.points()]
    numbers_of = [sum(line.startswith("n=") for line in point.overrides) for point in points]
    assert {*numbers_of} == {1}
    named = {e.published for axis in spec.axes.values() for e in axis if e.published}
    if not isinstance(spec, TableSpec) or spec.published is None:
        assert not named
        return
    numbers = by_place(load_published(spec.published.file))
    assert named <= {part for place in numbers for part in (place.pair, *place.labels)}
    names = [value.published_name or value.metric.name for value in spec.values]
    whole = spec.edition((), "paper") if spec.has_edition((), "paper") else spec
    shown = {
        place_in_paper(whole, point.coords, f"{name}{end}", header)
        for point in whole.points()
        for name in names
        for end in ("", "_low", "_high")
        for header in ("", *([spec.mean] if spec.mean else []))
    }
    assert numbers.keys() <= shown, "numbers that would stand nowhere"


def test_names_of_conf_scale_stand_for_entries_of_each_edition():
    given, made = cases("scales")
    found = at_all_scales(given)
    assert {name: found[name] for name in made} == made
    with pytest.raises(
        ValueError, match=r"poetry: neither a pair nor a task of conf/scale; it has chat, .*, tiny"
    ):
        at_all_scales({"axes": {"Task": ["poetry"]}})
    with pytest.raises(
        ValueError, match="settings_of=eagle: unknown; one of mars, fsd, dropmatch, arc, own"
    ):
        at_all_scales({"settings_of": "eagle"})
