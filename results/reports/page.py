"""One self-contained page: the reports asked for, their answers token by token, missing cells,
metrics, environment."""

from __future__ import annotations

import base64
import gzip
import json
import mimetypes
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, groupby
from pathlib import Path
from typing import Any

from markupsafe import Markup

from results.metrics.catalog import METRICS
from results.metrics.metric import Metric
from results.reports import formats
from results.reports.answers import KINDS, SHOWN, Group, parts_of
from results.reports.frame import Table, lay_out_all
from results.reports.grid import Grid, Outcome, unmeasured
from results.reports.published import Key, doubts_of, load_published
from results.reports.spec import FigureSpec, TableSpec
from results.store.errors import printable

LARGE = 1_000_000
"""Bytes of a file, or of a drawing as SVG, that the page does not hold; a larger drawing is shown
as PNG."""
OUTSIDE = re.compile(r"(?<![\w/.~:])/(?:[^\s/'\",]+/)+(?=[^\s/'\",])")
"""The folders of an absolute path, which tell who ran a command."""
ABSENT = ("accelerator",)
"""Parts of an environment that a machine may be without."""
FOUND = 4
"""Findings of a report that stand above its table; all stand below it."""
OFFERED = (".md", ".tex", ".csv", ".pdf")
"""Endings of the files of a report that travel with the page."""


@dataclass(frozen=True)
class Item:
    """A report on the page.

    spec     the report.
    grid     the outcomes of its points.
    paths    the files rendered from it.
    command  the command that makes it; `python -m bench report=NAME` if empty.
    """

    spec: TableSpec | FigureSpec
    grid: Grid
    paths: Sequence[Path] = ()
    command: str = ""

    @cached_property
    def tables(self) -> list[Table]:
        """The tables of the report; none of a figure."""
        return lay_out_all(self.spec, self.grid) if isinstance(self.spec, TableSpec) else []

    @property
    def findings(self) -> list[str]:
        """What the first table that judges rules says of them, all rules together first."""
        judging = (table.findings for table in self.tables if table.findings)
        return list(next(judging, ()))[:FOUND]

    @property
    def shown_command(self) -> str:
        return without_folders(self.command or f"python -m bench report={self.spec.name}")

    @property
    def content(self) -> Markup:
        """The first table, the paper's beside it, the figure, and further tables behind a click;
        empty for a figure that was not drawn."""
        drawn = figure_of(self.paths, self.spec.name, self.spec.title)
        groups = [[*group] for _, group in groupby(self.tables, lambda table: table.spec.title)]
        first, *others = groups or [[]]
        table = f'<div class="own">{formats.html(first)}</div>' if first else ""
        more = ""
        if others:
            html = formats.html([*chain(*others)], titled=True)
            more = f'<details class="more"><summary>Further tables</summary>{html}</details>'
        return Markup("{}{}{}{}").format(Markup(table), self.printed, drawn, Markup(more))

    @property
    def printed(self) -> Markup:
        """The paper's own table, where none of its numbers stands in ours; its doubtful numbers
        marked."""
        published = self.spec.published if isinstance(self.spec, TableSpec) else None
        inside = any((table.frame["printed"] != "").any() for table in self.tables)
        if published is None or inside:
            return Markup("")
        numbers, doubts = load_published(published.file), doubts_of(published.file)
        notes = list(dict.fromkeys(text for texts in doubts.values() for text in texts))
        names = list(dict.fromkeys(key.value_name for key in numbers))
        return Markup(
            formats.TEMPLATES.get_template("printed.html.j2").render(
                title=self.spec.title.partition(":")[0],
                columns=list(dict.fromkeys(key.column for key in numbers)),
                rows=list(dict.fromkeys((key.pair, key.row) for key in numbers)),
                names=names,
                labels=map(_label, names),
                numbers=numbers,
                key=Key,
                notes=notes,
                marks={
                    key: [notes.index(text) + 1 for text in doubts.get(key, ())] for key in numbers
                },
            )
        )

    @property
    def unmeasured(self) -> list[tuple[str, Outcome]]:
        return unmeasured(self.spec, self.grid)

    @property
    def downloads(self) -> list[tuple[str, str]]:
        """(ending, address) of the files that the page holds."""
        return [
            (path.suffix[1:], data_address(path))
            for path in self.paths
            if path.suffix in OFFERED and path.stat().st_size <= LARGE
        ]


def write_index(
    out_dir: str | Path,
    items: Sequence[Item],
    environment: Mapping[str, Any],
    *,
    title: str = "",
    groups: Sequence[Group] = (),
) -> Path:
    """Write <out_dir>/index.html and return its path: one file, which needs no network. It opens
    with `items`; the answers of `groups` follow. `environment` is plain data. Without a title, the
    page has that of its reports, if all have one."""
    path = Path(out_dir) / "index.html"
    path.parent.mkdir(parents=True, exist_ok=True)
    titles = {item.spec.title for item in items}
    title = without_folders(title) or (titles.pop() if len(titles) == 1 else "Leeway")
    page = formats.TEMPLATES.get_template("page.html.j2").render(
        title=title,
        items=items,
        environment=list(_flat(environment)),
        metrics=_used_metrics(items),
        groups=groups,
        most=SHOWN,
        kinds=KINDS,
        parts=[(name, packed(data)) for name, data in parts_of(groups)] if groups else [],
    )
    path.write_text(printable(page), encoding="utf-8")
    return path


def without_folders(text: str) -> str:
    """A text with … in place of the folders of its absolute paths."""
    return OUTSIDE.sub("…/", text)


def packed(data: Any) -> str:
    """Plain data as JSON, compressed, in base64: what no browser takes for markup."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    return base64.b64encode(gzip.compress(text.encode(), mtime=0)).decode()


def data_address(path: Path) -> str:
    """The file itself as an address."""
    kind = mimetypes.guess_type(path.name)[0] or "text/plain"
    return f"data:{kind};base64,{base64.b64encode(path.read_bytes()).decode()}"


def figure_of(paths: Sequence[Path], name: str, title: str) -> Markup:
    """The drawing among these files: as SVG, a large one as PNG; empty without one. Its ids are
    prefixed with the report's name, so that they are unique on the page, and its colours become
    variables with themselves as default, so that the dark theme can lighten them."""
    files = {path.suffix: path for path in paths}
    if ".svg" not in files:
        return Markup("")
    if files[".svg"].stat().st_size > LARGE and ".png" in files:
        return Markup('<div class="drawing"><img class="plot" src="{}" alt="{}"></div>').format(
            data_address(files[".png"]), title
        )
    svg = files[".svg"].read_text(encoding="utf-8")
    svg = svg[svg.index("<svg") :]
    for pattern in (r'(\bid=")', r"(url\(#)", r'(href="#)'):
        svg = re.sub(pattern, rf"\g<1>{name}-", svg)
    svg = re.sub(r": #([0-9a-f]{6})\b", r": var(--c-\1, #\1)", svg)
    wide = re.search(r'\bwidth="([\d.]+pt)"', svg)
    limit = f' style="--wide: calc(1.4 * {wide[1]})"' if wide else ""
    svg = svg.replace(
        "<svg", f'<svg role="img" aria-label="{Markup.escape(title)}" class="plot"{limit}', 1
    )
    return Markup(f'<div class="drawing">{svg}</div>')


def _label(name: str) -> str:
    return METRICS[name].label if name in METRICS else name.replace("_", " ")


def _used_metrics(items: Sequence[Item]) -> list[Metric]:
    """The metrics that these reports show, and always speedup and τ."""
    used = {"speedup", "tau"}.union(*(item.spec.metrics() for item in items))
    return [metric for name, metric in METRICS.items() if name in used]


def _flat(data: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    for name, value in data.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name} · ")
        elif isinstance(value, list | tuple):
            yield f"{prefix}{name}", without_folders(" ".join(map(str, value))) or "none"
        else:
            absent = "none" if name in ABSENT else "unknown"
            yield f"{prefix}{name}", absent if value is None else without_folders(str(value))
