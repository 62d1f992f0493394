"""What was asked of `toolkit report`, checked as a whole; and the formats that a report has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from toolkit.errors import UsageFault
from validation.base.counting import number_of

FORMATS = ("html", "pdf", "json", "junit", "prom")
"""Of a run; all of them where none was asked for by its name."""
FORMATS_OF_SEVERAL = ("html", "pdf", "json")
"""Of these, those that a campaign has."""
ALL_JOBS = ""
"""`--trace` without the name of a job."""


@dataclass(frozen=True)
class TraceOf:
    """The trace of a job of a run, or, by ALL_JOBS, the jobs that have one. `run` is None for the newest."""

    run: str | None
    job: str
    out: Path | None
    runs_dir: Path


@dataclass(frozen=True)
class CampaignOf:
    """One page of several runs."""

    runs: tuple[str, ...]
    formats: tuple[str, ...]
    out: Path | None
    runs_dir: Path


@dataclass(frozen=True)
class ReportOf:
    """The report of a run, None for the newest. `branding`: the report.yml to copy into it first."""

    run: str | None
    formats: tuple[str, ...]
    out: Path | None
    branding: Path | None
    runs_dir: Path


@dataclass(frozen=True)
class ReportRequest:
    """The options as they were given."""

    names: tuple[str, ...]
    campaign: bool
    formats: tuple[str, ...]
    out: Path | None
    branding: Path | None
    trace: str | None
    runs_dir: Path

    def checked(self) -> TraceOf | CampaignOf | ReportOf:
        """What it comes to. UsageFault for options that do not go together."""
        newest_or_named = self.names[0] if self.names else None
        if self.trace is not None:
            if self.campaign or self.branding is not None or by_name(self.formats) or len(self.names) > 1:
                raise UsageFault("--trace JOB is of one run, and takes no --campaign, --branding or --format")
            return TraceOf(newest_or_named, self.trace, self.out, self.runs_dir)
        if self.out is not None and self.out.is_file():
            raise UsageFault(f"--out {self.out}: is a file; name a folder")
        if self.campaign:
            if self.branding is not None:
                raise UsageFault("--branding is of one run, not of a campaign")
            refuse_of_one_run(self.formats, FORMATS_OF_SEVERAL, "a campaign")
            return CampaignOf(self.names, self.formats, self.out, self.runs_dir)
        if len(self.names) > 1:
            count = number_of(len(self.names), "run")
            raise UsageFault(f"{count} are named; one page of them all: toolkit report --campaign RUN RUN ...")
        return ReportOf(newest_or_named, self.formats, self.out, self.branding, self.runs_dir)


def by_name(formats: Sequence[str]) -> bool:
    """Whether the formats were asked for by their names, so that one that cannot be made is an error."""
    return tuple(formats) != FORMATS


def refuse_of_one_run(formats: Sequence[str], known: Sequence[str], what: str) -> None:
    """UsageFault for a format that was asked for and that only the report of one run has."""
    others = [name for name in formats if name not in known]
    if others and by_name(formats):
        raise UsageFault(f"{', '.join(others)}: is of one run; {what} is {', '.join(known)}")
