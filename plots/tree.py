"""Draw one draft tree from left to right: each node's token, its draft and target probability, and its outcome.

A node's best child is on the same line as the node, so the draft's best path is straight; each leaf has its line."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import wrap
from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch, PathPatch
from matplotlib.path import Path as Curve

from plots.style import BLUE, GREEN, GRID, INK, ORANGE, SOFT, VERMILLION
from results.store.traces import EMITTED, Clause, Cycle, Node

POINTS = 8.5
LETTER = 0.602 * POINTS / 72  # inches; DejaVu Sans Mono is 0.602 em wide
# inches: line height, box padding, gap between columns, margin, distance from the trunk of siblings to their boxes
LINE, PAD, GAP, MARGIN, TRUNK = 0.262, 0.06, 0.4, 0.16, 0.13
LONGEST = 16
SHOWN = {" ": "␣", "\n": "⏎", "\t": "⇥", "\r": "␍"}


class Paint(NamedTuple):
    """How a clause is drawn.

    fill    colour of the box.
    edge    colour of its edge.
    text    colour of the token.
    weight  font weight of the token.
    dash    line style of the edge.
    width   line width of the edge, points.
    mark    sign before the token.
    words   entry of the legend.
    """

    fill: str
    edge: str
    text: str
    weight: str
    dash: str | tuple
    width: float
    mark: str
    words: str


PAINT: dict[Clause, Paint] = {
    Clause.ROOT: Paint(INK, INK, "white", "bold", "-", 1.0, "", "root: last committed token"),
    Clause.STRICT: Paint(BLUE, BLUE, "white", "bold", "-", 1.0, "✓", "accepted, as by the lossless test"),
    Clause.ARGMAX: Paint("#D3E6F3", BLUE, INK, "bold", "-", 1.8, "=", "accepted as the target's argmax"),
    Clause.RELAXED: Paint("#FBE3B4", ORANGE, INK, "bold", "-", 1.8, "≈", "accepted by relaxation alone"),
    Clause.REJECTED: Paint("white", VERMILLION, INK, "normal", (0, (2.4, 1.6)), 1.1, "×", "tested and rejected"),
    Clause.UNREACHED: Paint("white", GRID, SOFT, "normal", "-", 0.6, "", "not reached"),
    Clause.DRAWN: Paint("#D9F0E7", GREEN, INK, "bold", "-", 1.8, "+", "drawn from the target"),
}
ON_PATH = (Clause.ROOT, *EMITTED)


class Place(NamedTuple):
    """A box in inches, y pointing down.

    x, y   left edge and vertical centre.
    width  of the box.
    end    right end of the numbers, where the edges to its children start.
    """

    x: float
    y: float
    width: float
    end: float


def draw(cycle: Cycle) -> Figure:
    """Draw the cycle's tree; the figure grows with the tree."""
    nodes = [*cycle.nodes, cycle.follow]
    places, width, height = layout(nodes)
    heading = _heading(cycle, width)
    legend = _legend_lines(nodes, width)
    top, bottom = 0.32 + 0.2 * len(heading), 0.14 + 0.21 * (len(legend) + 1)
    figure = Figure(figsize=(width + 2 * MARGIN, height + top + bottom + MARGIN))
    ax = figure.add_axes((0, 0, 1, 1))
    ax.set_xlim(-MARGIN, width + MARGIN)
    ax.set_ylim(height + bottom, -top - MARGIN)
    ax.axis("off")
    _draw_heading(ax, cycle, heading, -top)
    _draw_edges(ax, nodes, places)
    for node, place in zip(nodes, places, strict=True):
        _draw_node(ax, node, place)
    _draw_legend(ax, legend, height + 0.16)
    return figure


def layout(nodes: Sequence[Node]) -> tuple[list[Place], float, float]:
    """The place of every node, and the tree's width and height in inches. A column is as wide as its widest node."""
    depth, lines = _depths(nodes), _lines(nodes)
    columns = max(depth) + 1
    boxes = [len(label(node)) * LETTER + 2 * PAD for node in nodes]
    spans = [box + (0.05 + len(numbers(node)) * LETTER if numbers(node) else 0.0)
             for node, box in zip(nodes, boxes, strict=True)]
    starts = [0.0]
    for column in range(columns - 1):
        widest = max(span for span, d in zip(spans, depth, strict=True) if d == column)
        starts.append(starts[-1] + widest + GAP)
    places = [Place(starts[d], (line + 0.5) * LINE, box, starts[d] + span)
              for d, line, box, span in zip(depth, lines, boxes, spans, strict=True)]
    return places, max(place.end for place in places), (max(lines) + 1) * LINE


def _depths(nodes: Sequence[Node]) -> list[int]:
    depth: list[int] = []
    for node in nodes:
        depth.append(0 if node.parent < 0 else depth[node.parent] + 1)
    return depth


def _lines(nodes: Sequence[Node]) -> list[int]:
    """The line of each node: that of its first child, or for a leaf the next free one. The drawn token is the last
    node, so it follows its siblings."""
    children: list[list[int]] = [[] for _ in nodes]
    for i, node in enumerate(nodes[1:], start=1):
        children[node.parent].append(i)
    lines, free, stack = [0] * len(nodes), 0, [0]
    while stack:  # depth first
        i = stack.pop()
        lines[i] = free
        if not children[i]:
            free += 1
        stack += reversed(children[i])
    return lines


def label(node: Node) -> str:
    """The token as printed: visible whitespace, ids for partial characters, long tokens truncated."""
    if not node.text or "\ufffd" in node.text:
        shown = f"#{node.token}"
    else:
        shown = "".join(SHOWN.get(letter, letter if letter.isprintable() else "·") for letter in node.text)
    shown = shown if len(shown) <= LONGEST else shown[:LONGEST - 1] + "…"
    mark = PAINT[node.clause].mark
    return f"{mark} {shown}" if mark else shown


def numbers(node: Node) -> str:
    """`.42→.61`: draft and target probability, in hundredths."""
    if node.target is None:
        return ""
    target = _hundredths(node.target)
    return target if node.draft is None else f"{_hundredths(node.draft)}→{target}"


def _hundredths(p: float) -> str:
    return "0" if p < 0.005 else "1" if p >= 0.995 else f"{p:.2f}".removeprefix("0")


def _draw_edges(ax: Axes, nodes: Sequence[Node], places: Sequence[Place]) -> None:
    """Siblings share one trunk before their column; edges to kept nodes are drawn on top."""
    for node, place in zip(nodes[1:], places[1:], strict=True):
        kept = node.clause in ON_PATH
        ax.add_patch(PathPatch(_edge(places[node.parent], place), fill=False, lw=1.9 if kept else 0.8, capstyle="round",
                               edgecolor=PAINT[node.clause].edge if kept else GRID, zorder=2 if kept else 1))


def _edge(parent: Place, child: Place) -> Curve:
    start, end = (parent.end + 0.05, parent.y), (child.x, child.y)
    if parent.y == child.y:
        return Curve([start, end])
    trunk, round_ = child.x - TRUNK, TRUNK * 0.7
    points = [start, (trunk - round_, parent.y), (trunk, parent.y), (trunk, parent.y + round_),
              (trunk, child.y - round_), (trunk, child.y), (trunk + round_, child.y), end]
    turn = [Curve.CURVE3, Curve.CURVE3]
    return Curve(points, [Curve.MOVETO, Curve.LINETO, *turn, Curve.LINETO, *turn, Curve.LINETO])


def _draw_node(ax: Axes, node: Node, place: Place) -> None:
    paint = PAINT[node.clause]
    _box(ax, place.x, place.y, place.width, LINE * 0.74, paint)
    ax.text(place.x + PAD, place.y, label(node), color=paint.text, weight=paint.weight, va="center_baseline", zorder=4,
            family="DejaVu Sans Mono", fontsize=POINTS, parse_math=False)
    ax.text(place.x + place.width + 0.05, place.y, numbers(node), color=INK if node.clause in ON_PATH else SOFT,
            zorder=4, va="center_baseline", family="DejaVu Sans Mono", fontsize=POINTS, parse_math=False)


def _box(ax: Axes, x: float, y: float, width: float, height: float, paint: Paint) -> None:
    ax.add_patch(FancyBboxPatch((x, y - height / 2), width, height, boxstyle="round,pad=0,rounding_size=0.05",
                                facecolor=paint.fill, edgecolor=paint.edge, lw=paint.width, ls=paint.dash, zorder=3))


def _heading(cycle: Cycle, width: float) -> list[str]:
    """Lines above the tree: the settings, and the text before the root."""
    s, letters = cycle.settings, max(40, int(width / LETTER))
    options = f" ({s['options']})" if s["options"] else ""
    ran = (f"{s['rule']}{options} on {s['drafter']}, temperature {s['temperature']}, pair {s['pair']}; "
           f"cycle {cycle.number} of {s['task']} {s['prompt']}")
    before = "".join(SHOWN.get(c, c) if c != " " else c for c in cycle.before)
    room = letters - 2
    return [*wrap(ran, int(letters * 1.1)), before if len(before) <= room else "…" + before[-room + 1:]]


def _draw_heading(ax: Axes, cycle: Cycle, heading: list[str], top: float) -> None:
    drafted, relaxed = len(cycle.nodes) - 1, f", {cycle.relaxed} by relaxation alone" if cycle.relaxed else ""
    ending = "a bonus" if cycle.complete else "a correction"
    ax.text(0, top, f"{cycle.accepted} of {drafted} draft tokens accepted{relaxed}, then {ending}", fontsize=10.5,
            weight="bold", va="center")
    for i, line in enumerate(heading):
        last = i == len(heading) - 1
        ax.text(0, top + 0.22 + 0.2 * i, line, va="center", parse_math=False, fontsize=POINTS,
                color=INK if last else SOFT, family="DejaVu Sans Mono" if last else "DejaVu Sans")


def _legend_lines(nodes: Sequence[Node], width: float) -> list[list[Clause]]:
    """The clauses that occur, broken into lines of at most `width` inches."""
    lines: list[list[Clause]] = [[]]
    used = 0.0
    for clause in PAINT:
        if any(node.clause == clause for node in nodes):
            size = _legend_width(clause)
            if used and used + size > width:
                lines.append([])
                used = 0.0
            lines[-1].append(clause)
            used += size
    return lines


def _legend_width(clause: Clause) -> float:
    return 0.3 + len(PAINT[clause].words) * LETTER + 0.25


def _draw_legend(ax: Axes, lines: list[list[Clause]], y: float) -> None:
    for line in lines:
        x = 0.0
        for clause in line:
            paint = PAINT[clause]
            _box(ax, x, y, 0.22, LINE * 0.6, paint)
            ax.text(x + 0.11, y, paint.mark, color=paint.text, ha="center", va="center_baseline", fontsize=POINTS,
                    family="DejaVu Sans Mono", weight="bold")
            ax.text(x + 0.3, y, paint.words, va="center_baseline", fontsize=POINTS)
            x += _legend_width(clause)
        y += 0.21
    ax.text(0, y, "after a token: its probability under the draft → under the target, given its parent, in hundredths",
            va="center_baseline", fontsize=POINTS, color=SOFT)
