"""Names of many series stand beside their points, where they cover nothing; few series have a legend."""

from __future__ import annotations

from itertools import combinations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.text import Annotation, Text

from plots.names import MOST, name_series
from plots.style import look, panel_grid, style


def drawn(places: dict[str, tuple[float, float]], panels: int = 1) -> tuple[Figure, list[Axes]]:
    """A figure with a series of two points at each place."""
    with style():
        figure, axes = panel_grid(panels)
        for ax in axes:
            ax.set(xlim=(0, 1), ylim=(0, 1))
            for i, (name, (x, y)) in enumerate(places.items()):
                ax.errorbar([x, x + 0.02], [y, y], yerr=0.02, color=look(i).colour, marker="o", label=name)
        name_series(figure, axes, loc="outside right upper")
        figure.draw_without_rendering()
    return figure, axes


def legend(figure: Figure) -> list[str]:
    return [text.get_text() for one in figure.legends for text in one.get_texts()]


def test_few_series_have_a_legend() -> None:
    names = {f"series {i}": (0.1 * i, 0.5) for i in range(MOST)}
    figure, [ax] = drawn(names)
    assert legend(figure) == list(names) and not ax.texts


def test_many_series_with_room_are_named_in_every_panel() -> None:
    names = {f"series {i}": (0.05 + 0.3 * (i % 3), 0.1 + 0.25 * (i // 3)) for i in range(9)}
    figure, axes = drawn(names, panels=2)
    assert not figure.legends
    for ax in axes:
        assert {text.get_text(): text.get_color() for text in ax.texts} == {
            name: look(i).colour for i, name in enumerate(names)}
        boxes = [Text.get_window_extent(text) for text in ax.texts]
        assert not any(one.overlaps(other) for one, other in combinations(boxes, 2))
        panel = ax.get_window_extent()
        assert all(panel.x0 <= box.x0 and box.x1 <= panel.x1 for box in boxes)
        for x, y in ax.transData.transform(list(names.values())):
            assert not any(box.contains(x, y) for box in boxes), "no name on a marker"


def test_a_name_is_near_a_point_of_its_series() -> None:
    names = {f"series {i}": (0.05 + 0.3 * (i % 3), 0.1 + 0.25 * (i // 3)) for i in range(9)}
    _, [ax] = drawn(names)
    for text in ax.texts:
        assert isinstance(text, Annotation)
        x, y = names[text.get_text()]
        assert np.allclose(text.xy, (x, y)) or np.allclose(text.xy, (x + 0.02, y))


def test_a_series_without_room_in_one_panel_stays_in_the_legend() -> None:
    crowd = {f"a long name of series {i}": (0.5, 0.5) for i in range(40)} | {"free": (0.05, 0.1)}
    figure, [ax] = drawn(crowd)
    named = {text.get_text() for text in ax.texts}
    assert "free" in named and set(legend(figure)) == set(crowd) - named and len(legend(figure)) > 20
