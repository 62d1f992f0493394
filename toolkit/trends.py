"""The trend of a site: which of its runs make it, and where it is written."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from toolkit import acceptance, rundir
from toolkit.errors import UsageFault
from toolkit.report_request import refuse_of_one_run
from toolkit.working import working
from validation.base.errors import ToolkitError
from validation.base.files import replace
from validation.run.names import VERDICT
from validation.run.read import Run, read
from validation.trend import Trend, as_text, trend_of, write_formats
from validation.trend.gather import Pair
from validation.trend.metrics import metrics_text
from validation.trend.soaks import soaks_of

FORMATS = ("html", "pdf", "json")
"""Of the formats of a report, those that a trend has."""
OVERDUE_HOURS = 192


@dataclass(frozen=True)
class Made:
    """What was written: format -> file, format -> one line why it could not be made; and the trend itself."""

    paths: dict[str, Path]
    left_out: dict[str, str]
    trend: Trend

    @property
    def text(self) -> str:
        """For a terminal."""
        return as_text(self.trend).rstrip("\n")

    def document(self) -> dict[str, Any]:
        """For --json."""
        paths = {name: str(path) for name, path in self.paths.items()}
        return {
            "report": paths.get("html"),
            "files": paths,
            "left_out": self.left_out,
            **self.trend.model_dump(mode="json", by_alias=True),
        }


@dataclass(frozen=True)
class Metrics:
    """A file for node-exporter's textfile collector, and the age from which the newest validation is overdue."""

    path: Path
    overdue_s: float


@dataclass(frozen=True)
class TrendRequest:
    """The options of `toolkit trend` as they were given."""

    names: tuple[str, ...]
    formats: tuple[str, ...]
    out: Path | None
    metrics: Path | None
    overdue_hours: int | None
    runs_dir: Path

    def checked(self) -> Metrics | None:
        """The metrics that are asked for. UsageFault for options that do not go together."""
        refuse_of_one_run(self.formats, FORMATS, "a trend")
        if self.overdue_hours is not None and self.metrics is None:
            raise UsageFault("--overdue-hours is for the alert in --metrics FILE; give that too")
        return None if self.metrics is None else Metrics(self.metrics, 3600.0 * (self.overdue_hours or OVERDUE_HOURS))

    def make(self) -> Made:
        """The trend, written."""
        metrics = self.checked()
        folders = [rundir.find(self.runs_dir, name) for name in self.names]
        with working("reading the runs"):
            return make(folders, self.formats, self.out, self.runs_dir, metrics)


def make(
    folders: Sequence[Path],
    formats: Collection[str],
    out: Path | None,
    runs_dir: Path,
    metrics: Metrics | None = None,
) -> Made:
    """Write the trend of the runs in `folders` (none: all of the newest run's site and fabric), into `out` (None: a
    folder of `runs_dir` named by the newest run), and its `metrics`: for these a first run alone is a trend, too.

    ConfigError for a damaged run that was named, or one whose verdict does not follow from its files; a run that was
    not named is left out then, and a note says so. NotOneSeries for runs that are none.
    """
    pairs, notes = ([_pair(folder) for folder in folders], []) if folders else _all(runs_dir)
    trend = trend_of(pairs, notes, least=1 if metrics else 2)
    if metrics is not None:
        replace(metrics.path, metrics_text(trend, metrics.overdue_s, soaks_of(pairs)), "give another file: --metrics")
    where = out or runs_dir / f"{trend.runs[-1].run}-trend"
    written = write_formats(trend, [name for name in FORMATS if name in formats], where)
    return Made(written.paths, written.left_out, trend)


def _pair(folder: Path) -> Pair:
    if not (folder / VERDICT).is_file():
        raise UsageFault(f"{folder}: was not judged; toolkit report judges it")
    return read(folder), acceptance.standing(folder)


def _all(runs_dir: Path) -> tuple[list[Pair], list[str]]:
    """The judged runs of the newest judged one's site, fabric and lab, and notes on those that cannot be used."""
    found: list[Pair] = []
    notes = []
    for folder in reversed(rundir.runs(runs_dir)):
        try:
            if found and not _alike(read(folder), found[0][0]):
                continue
            found.append(_pair(folder))
        except ToolkitError as fault:
            notes.append(f"Left out: {fault}.")
    if not found:
        raise UsageFault(
            f"{runs_dir}: no judged run here{f' ({notes[0]})' if notes else ''}; toolkit validate makes one"
        )
    return found, notes


def _alike(run: Run, newest: Run) -> bool:
    """Whether a run is one of the same series."""
    mine, other = (
        (r.info.site, r.fabric.name, r.topology.virtual, r.topology.lab_link, r.topology.here) for r in (run, newest)
    )
    return mine == other
