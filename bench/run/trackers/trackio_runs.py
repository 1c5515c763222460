"""Runs in trackio's database on this machine (TRACKIO_DIR).

Rows are written by trackio's storage, not by trackio.init: that prints to stdout, asks the hub who is logged in, and
only warns where a row could not be written."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from bench.run.trackers.base import OpenRun

if TYPE_CHECKING:
    from bench.config.tracking import Trackio
    from bench.run.trackers.base import About, Results


class TrackioRun(OpenRun):
    """One run. Every row has an id, so that a row that is written twice is there once."""

    def __init__(self, about: About, options: Trackio) -> None:
        import trackio
        from trackio.sqlite_storage import SQLiteStorage

        SQLiteStorage.validate_project_name(options.project)
        self._trackio, self._storage = trackio, SQLiteStorage
        self._about, self._project = about, options.project
        self._before = SQLiteStorage.get_run_config(options.project, about.id, run_id=about.id) or {}
        self._step = 0

    def live(self, values: Mapping[str, float]) -> None:
        """As described in the base class; prompts are the steps."""
        self._step = int(values["prompts"])
        self._write(f"live-{self._step}", {f"live/{name}": value for name, value in values.items()}, {})

    def holds(self, digest: str) -> bool:
        """As described in the base class."""
        return bool(self._before.get("digest") == digest)

    def log(self, results: Results) -> None:
        """As described in the base class."""
        self._step = int(results.summary.get("n", self._step))
        logged: dict[str, Any] = {name: value for name, value in results.summary.items()
                                  if isinstance(value, int | float)}
        logged |= {name: self._trackio.Table(dataframe=frame)._to_dict(self._project, self._about.id, self._step)
                   for name, frame in results.frames().items()}
        logged |= {name: self._media(self._trackio.Image(str(file))) for name, file in results.images.items()}
        if results.page is not None:
            logged["coloured"] = self._media(self._trackio.Html(results.page))
        self._write(f"results-{results.digest}", logged, {"digest": results.digest, "summary": dict(results.summary)})

    def finish(self) -> None:
        """As described in the base class: rows are on disk when they are written."""

    def _media(self, media: Any) -> dict[str, Any]:
        media._save(self._project, self._about.id, self._step)
        return dict(media._to_dict())

    def _write(self, name: str, values: Mapping[str, Any], more: Mapping[str, Any]) -> None:
        config = {**self._before, **self._about.config, "kind": self._about.kind, **more}
        self._before = config
        self._storage.bulk_log(
            project=self._project, run=self._about.id, run_id=self._about.id, metrics_list=[dict(values)],
            steps=[self._step], log_ids=[f"{self._about.id}-{name}"],
            config={**config, "_Group": self._about.group or self._before.get("_Group")})
