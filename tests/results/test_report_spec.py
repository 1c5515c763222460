"""Reports as data: their points, their mistakes, and the shipped ones."""

from pathlib import Path

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


def value_of(metric: str = "tau", **columns: dict) -> dict:
    """The change of a table to this column alone."""
    return {"values": [{"metric": metric, **columns}]}


def test_points_are_the_product_with_the_overrides_in_axis_order():
    points = table_spec().points()
    assert len(points) == 2 * 3 * 2 and len({point.coords for point in points}) == 12
    assert points[0].coords == ("Alpha", "AR", "GSM8K")
    assert points[3].coords == ("Alpha", "SpS", "mini_code")
    assert points[3].overrides == (
        "n=4",
        "pair=alpha",
        "method=sps",
        "draft.length=7",
        "task=mini_code",
    )


def test_an_entry_of_another_drafter_takes_no_option_of_the_one_in_base():
    entries = [
        {"label": "same", "overrides": ["drafter.depth=3"]},
        {"label": "other", "overrides": ["drafter=none"]},
        {"label": "also", "settings": ["drafter=model"], "overrides": ["drafter.branching=[2]"]},
    ]
    report = table_spec(
        base=["n=4", "drafter=eagle3", "drafter.total=8"],
        rows=["Method"],
        columns=[],
        axes={"Method": entries},
    )
    assert [point.overrides for point in report.points()] == [
        ("n=4", "drafter=eagle3", "drafter.total=8", "drafter.depth=3"),
        ("n=4", "drafter=none"),
        ("n=4", "drafter=model", "drafter.branching=[2]"),
    ]


def test_the_frontier_has_the_settings_that_it_names():
    best = {
        "label": "best",
        "variants": [{"label": "tree"}, {"label": "chain", "overrides": ["drafter.tree=chain"]}],
    }
    given = {
        "base": ["decoding.temperature=1"],
        "rows": ["Method"],
        "columns": [],
        "axes": {"Method": [best]},
    }
    points = table_spec(**given, choice={"lossless": "best", "frontier": ["chain"]}).points()
    assert [point.coords for point in points[:2]] == [("best", "tree"), ("best", "chain")]
    assert {point.coords[1] for point in points[2:]} == {"chain"} and len(points) == 2 + len(
        TEMPERATURES
    ) - 1
    with pytest.raises(ValidationError, match=r"choice\.frontier: bush: 'best' has tree, chain"):
        table_spec(**given, choice={"lossless": "best", "frontier": ["bush"]})


def test_only_keeps_an_entry_to_some_entries_of_another_axis():
    axes = table_spec().model_dump()["axes"]
    axes["Model"] = [{"label": "Alpha"}, {"label": "Beta", "only": {"Method": ["AR"]}}]
    coords = [point.coords for point in table_spec(axes=axes).points()]
    assert len(coords) == 6 + 2
    assert {coord[1] for coord in coords if coord[0] == "Beta"} == {"AR"}


def test_a_numeric_axis_is_spelled_out():
    theta = {"override": "rule.theta={}", "values": [0.8, 0.9], "label": "θ = {}"}
    spec = figure_spec({"theta": theta}, {"kind": "sweep", "x": "theta", "left": "accuracy"})
    assert [(e.label, e.value, e.overrides) for e in spec.axes["theta"]] == [
        ("θ = 0.8", 0.8, ("rule.theta=0.8",)),
        ("θ = 0.9", 0.9, ("rule.theta=0.9",)),
    ]


def test_a_value_is_a_name_or_more():
    values = table_spec(
        values=["accuracy", {"metric": "tau", "label": "length", "digits": 1}]
    ).values
    assert [(v.header, v.decimals) for v in values] == [("Accuracy (%)", 1), ("length", 1)]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"rows": ["Model"]}, "use each once"),
        ({"values": ["speed"]}, "unknown metric 'speed'; one of: speedup"),
        ({"values": ["cap_hit_share"]}, "'cap_hit_share' is now 'truncated_share'"),
        (
            {"published": {"file": "mars_table1.csv", "pair": "Task"}},
            "must be one of the rows' axes",
        ),
        ({"axes": {"A": [{"label": "x"}, {"label": "x"}]}}, "entries of one label"),
        ({"axes": {"A": [{"label": "x", "only": {"B": ["y"]}}]}}, "no such axis"),
        ({"axes": {"A": {"values": [1]}}}, "an axis is a list of entries, or"),
        ({"nonsense": 1}, "Extra inputs are not permitted"),
        (value_of(only={"Task": ["nowhere"]}), "values: τ names Task"),
        (value_of(over={"Rule": "SpS"}), "no such axis"),
        (value_of(over={"Method": "SpS"}, minus={"Method": "AR"}), "not both"),
        (value_of(over={"Method": "SpS"}), "mean: needs columns without"),
        (value_of("head_share", over={"Method": "SpS"}), "cannot be compared prompt by prompt"),
    ],
)
def test_mistakes_are_named(change, said):
    with pytest.raises(ValidationError, match=said):
        table_spec(**change)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"kind": "sweep", "x": "Z", "left": "tau"}, "use each once"),
        ({"kind": "sweep", "x": "name", "left": "tau"}, "give each of its entries a number"),
        ({"connect": ["c"]}, r"allowed: \['a', 'b'\]"),
        ({"allocation": ["a", "d"]}, "names name"),
    ],
)
def test_a_figure_whose_axes_cannot_play_their_part(change, said):
    pareto = {"kind": "pareto", "x": "tau", "y": "speedup", "series": "name"}
    with pytest.raises(ValidationError, match=said):
        figure = change if "kind" in change else pareto | change
        figure_spec({"name": [{"label": "a"}, {"label": "b"}]}, figure)


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


def test_editions_keep_what_belongs_to_their_scale():
    scales = {"Alpha": "embedded", "Big": "paper", "Huge": "paper", "Laptop": "real"}
    axes = {
        "Model": [
            {"label": label, "overrides": [f"pair={label.lower()}"], "scale": scale}
            for label, scale in scales.items()
        ],
        "Method": [
            {"label": "AR"},
            {"label": "SpS", "only": {"Model": ["Alpha", "Big", "Laptop"]}},
        ],
        "Task": [
            {"label": "mini", "scale": "embedded"},
            {"label": "GSM8K", "scale": ["real", "paper"]},
            {"label": "MMLU", "scale": "paper", "only": {"Model": ["Huge"]}},
        ],
    }
    spec = table_spec(axes=axes)

    def edition(*pairs, scale=None):
        made = spec.edition(list(pairs), scale) if scale else spec.edition(list(pairs))
        TableSpec.model_validate(made.model_dump())
        return made.name, [" ".join(point.coords) for point in made.points()]

    embedded = ("demo", ["Alpha AR mini", "Alpha SpS mini"])
    assert edition() == edition("alpha") == edition("local") == embedded
    big, huge = ["Big AR GSM8K", "Big SpS GSM8K"], ["Huge AR GSM8K", "Huge AR MMLU"]
    laptop = ["Laptop AR GSM8K", "Laptop SpS GSM8K"]
    assert edition("big") == ("demo_big", big) and edition("huge") == ("demo_huge", huge)
    assert edition("huge", "big") == ("demo_huge_big", big + huge)
    assert edition(scale="paper") == ("demo_paper", big + huge)
    assert edition("laptop") == ("demo_laptop", laptop) and edition(scale="real")[1] == laptop
    for pairs, said in (
        (["other"], "does not have pair=other; it has alpha, laptop, big, huge, and"),
        (["alpha", "big"], r"pairs=\[alpha,big\] are of two scales"),
    ):
        with pytest.raises(ValueError, match=said):
            edition(*pairs)
    without_pairs = table_spec(axes={name: [{"label": name}] for name in axes})
    assert without_pairs == without_pairs.edition((), "paper") == without_pairs.edition(["big"])


@pytest.mark.parametrize("path", REPORTS, ids=lambda path: path.stem)
def test_shipped_reports_are_sound(path):
    text = path.read_text(encoding="utf-8")
    assert text.split("\n")[0].split()[:5] == f"# python -m bench report={path.stem}".split()
    spec = parse_report(yaml.safe_load(text))
    assert spec.name == path.stem
    editions = [spec.edition((), scale) for scale in SCALES if spec.has_edition((), scale)]
    points = [point for edition in editions for point in edition.points()]
    assert points and all(
        sum(line.startswith("n=") for line in point.overrides) == 1 for point in points
    )


@pytest.mark.parametrize("path", REPORTS, ids=lambda path: path.stem)
def test_published_names_exist_in_the_paper(path):
    spec = parse_report(yaml.safe_load(path.read_text(encoding="utf-8")))
    named = {e.published for axis in spec.axes.values() for e in axis if e.published}
    if not isinstance(spec, TableSpec) or spec.published is None:
        assert not named
        return
    numbers = by_place(load_published(spec.published.file))
    assert named <= {part for place in numbers for part in (place.pair, *place.labels)}
    names = [value.published_name or value.metric.name for value in spec.values]
    names += [f"{name}_{end}" for name in names for end in ("low", "high")]
    shown = {
        place_in_paper(spec, point.coords, name, header)
        for point in spec.points()
        for name in names
        for header in ("", *([spec.mean] if spec.mean else []))
    }
    assert numbers.keys() <= shown, "numbers that would stand nowhere"


def test_names_of_conf_scale_stand_for_entries_of_each_edition():
    section = {
        "settings_of": "mars",
        "base": ["n=8"],
        "base_at": {"paper": ["pair.nodes=9"]},
        "axes": {
            "Model": ["tiny", {"use": "qwen3_8b", "label": "Q3"}],
            "Task": {
                "embedded": ["maths"],
                "paper": [{"use": "maths", "settings": ["n=3"], "overrides": ["seed=1"]}],
            },
            "T": {
                "real": {"override": "decoding.temperature={}", "values": [1]},
                "paper": [{"label": "as it is"}],
            },
        },
    }
    made = at_all_scales(section)
    assert made["axes"] == {
        "Model": [
            {"label": "Tiny", "overrides": ["pair=tiny"], "scale": "embedded"},
            {
                "label": "Q3",
                "settings": ["decoding.max_new_tokens=4096"],
                "overrides": ["pair=qwen3_8b"],
                "scale": "paper",
            },
        ],
        "Task": [
            {"label": "mini_gsm", "overrides": ["task=mini_gsm"], "scale": "embedded"},
            {
                "label": "GSM8K",
                "settings": ["n=3"],
                "overrides": ["task=gsm8k_mars_release", "seed=1"],
                "scale": "paper",
            },
        ],
        "T": [
            {"label": "1", "overrides": ["decoding.temperature=1"], "value": 1, "scale": ["real"]},
            {"label": "as it is", "scale": ["paper"]},
        ],
    }
    assert made["base_at"] == {
        "embedded": [],
        "real": ["decoding.max_new_tokens=512"],
        "paper": [
            "pair.nodes=9",
            "timed=null",
            "decoding.max_new_tokens=512",
            "engine.dtype=float16",
        ],
    }
    with pytest.raises(
        ValueError, match=r"poetry: neither a pair nor a task of conf/scale; it has chat, .*, tiny"
    ):
        at_all_scales({"axes": {"Task": ["poetry"]}})
    with pytest.raises(
        ValueError, match="settings_of=eagle: unknown; one of mars, fsd, dropmatch, arc, own"
    ):
        at_all_scales({"settings_of": "eagle"})
