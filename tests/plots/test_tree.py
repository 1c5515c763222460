"""The picture of a draft tree: where nodes stand, what is written on them, and how a wrong file is refused."""

from __future__ import annotations

import dataclasses
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plots import tree
from plots.__main__ import main
from results.store.traces import Cycle, CycleError, Node, read_cycle

SETTINGS = {"pair": "tiny", "drafter": "medusa", "rule": "mars", "options": "theta 0.9", "temperature": "1",
            "task": "mini_gsm", "prompt": "p-1"}


def cycle() -> Cycle:
    nodes = (Node(5, " the", -1, None, None, None, "root"), Node(6, " cat", 0, 0.5, 0.004, 3, "rejected"),
             Node(7, "\n$x$", 0, 0.25, 0.996, 0, "strict"), Node(8, "", 1, 0.1, 0.1, 2, "unreached"),
             Node(9, " sat\ufffd", 2, None, 0.42, 1, "relaxed"))
    return Cycle(SETTINGS, 3, "the story of the", nodes, Node(4, "!", 4, None, 0.7, 0, "drawn"))


@st.composite
def trees(draw: st.DrawFn) -> list[Node]:
    parents = [-1] + [draw(st.integers(0, i)) for i in range(draw(st.integers(0, 60)))]
    return [Node(i, draw(st.sampled_from([" a", "longer word", "x"])), parent, 0.1, 0.2, 0,
                 "unreached" if i else "root") for i, parent in enumerate(parents)]


@settings(deadline=None)
@given(trees())
def test_nothing_overlaps_and_children_stand_to_the_right(nodes):
    places, width, height = tree.layout(nodes)
    seen: dict[float, list[tree.Place]] = {}
    for node, place in zip(nodes, places, strict=True):
        assert 0 <= place.x < place.end <= width and 0 < place.y < height
        if node.parent >= 0:
            above = places[node.parent]
            assert place.x > above.end and place.y >= above.y
        for other in seen.setdefault(round(place.y, 6), []):  # no two on one line share any of it
            assert place.x > other.end or other.x > place.end
        seen[round(place.y, 6)].append(place)
    leaves = len(nodes) - len({node.parent for node in nodes if node.parent >= 0})
    assert len(seen) == leaves and height == pytest.approx(leaves * tree.LINE)


def test_tokens_are_shown_as_they_are():
    labels = [tree.label(node) for node in cycle().nodes]
    assert labels == ["␣the", "× ␣cat", "✓ ⏎$x$", "#8", "≈ #9"]
    assert [tree.numbers(node) for node in cycle().nodes] == ["", ".50→0", ".25→1", ".10→.10", ".42"]
    assert tree.label(dataclasses.replace(cycle().nodes[0], text="x" * 40)) == "x" * 15 + "…"


def test_counts():
    assert (cycle().accepted, cycle().relaxed, cycle().complete) == (2, 1, True)
    shorter = dataclasses.replace(cycle(), follow=dataclasses.replace(cycle().follow, parent=2))
    assert not shorter.complete


def test_the_command_draws_what_the_file_says(tmp_path, capsys):
    file = cycle().write(tmp_path / "cycle.json")
    assert read_cycle(file) == cycle()
    assert main(["tree", str(file), "--output", str(tmp_path / "out")]) == 0
    made = capsys.readouterr().out.split()
    assert [path.rpartition(".")[2] for path in made] == ["png", "pdf", "svg"]
    first = (tmp_path / "out" / "tree.svg").read_bytes()
    assert main(["tree", str(file), "--output", str(tmp_path / "again")]) == 0
    assert (tmp_path / "again" / "tree.svg").read_bytes() == first  # the same bytes for the same cycle


@pytest.mark.parametrize("change,said", [
    (lambda raw: raw.pop("nodes"), "holds no cycle (nodes: Field required)"),
    (lambda raw: raw["nodes"][1].update(parent=1), "node 1 has parent 1"),
    (lambda raw: raw["nodes"][2].update(clause="kept"), "nodes.2.clause: Input should be 'root', 'strict'"),
])
def test_a_wrong_file_is_one_line(tmp_path, capsys, change, said):
    file = cycle().write(tmp_path / "cycle.json")
    raw = json.loads(file.read_text())
    change(raw)
    file.write_text(json.dumps(raw))
    with pytest.raises(CycleError) as error:
        read_cycle(file)
    assert said in str(error.value) and "\n" not in str(error.value)
    assert main(["tree", str(file)]) == 2 and main(["tree", str(tmp_path / "absent.json")]) == 2
    assert capsys.readouterr().err.count("error: ") == 2
