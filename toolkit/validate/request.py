"""What was asked of `toolkit validate`, checked as a whole before anything is read or touched."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from toolkit.errors import UsageFault, or_nearest
from toolkit.validate.training import TrainingRequest
from validation.plan.offered import SOAK_HOURS, SUITE_NAMES

if TYPE_CHECKING:  # loaded when a run is made, not for --help
    from toolkit.slurm_job import SlurmJob
    from validation.model import Scalar

BURN_IN, RECOVERY = "burn-in", "recovery"
DECLARED = ("fabric", "inventory", "profile", "waivers", "branding", "baseline", "resume", "rejudge")
"""What is said of a site or of a run that is there, and so makes no sense of one machine by itself."""


@dataclass(frozen=True)
class Output:
    """How the end is told: the report's formats, one JSON document or lines, the table of all criteria or none."""

    formats: tuple[str, ...]
    as_json: bool = False
    details: bool = False


@dataclass(frozen=True)
class Terms:
    """What was agreed with the customer, as it was given: a profile's name or file, and the file of waivers."""

    profile: str | None = None
    waivers: Path | None = None


@dataclass(frozen=True)
class Rejudging:
    """A run that is judged again by today's rules."""

    run: str
    terms: Terms
    runs_dir: Path
    output: Output


@dataclass(frozen=True)
class Resuming:
    """A run that goes on. `job`: the Slurm job to measure in, None for ssh."""

    run: str
    job: SlurmJob | None
    runs_dir: Path
    output: Output


@dataclass(frozen=True)
class ThisMachine:
    """A new run of this machine by itself. `minutes`: of suite burn-in, `segment`: of a segment of it."""

    suites: tuple[str, ...]
    quick: bool
    anyway: bool
    minutes: int | None
    dry_run: bool
    summary: bool
    runs_dir: Path
    output: Output
    segment: int | None = None


@dataclass(frozen=True)
class NewRuns:
    """A new run of a site over each fabric. `fabric`: as it was given, None for the inventory's; `suites`: none for
    those of the profile; `options`: the plan's; `unit`: the group whose nodes alone are measured.
    """

    fabric: str | None
    inventory: Path
    suites: tuple[str, ...]
    terms: Terms
    branding: Path | None
    baseline: Path | None
    without: tuple[str, ...]
    options: dict[str, Scalar]
    job: SlurmJob | None
    dry_run: bool
    summary: bool
    runs_dir: Path
    output: Output
    unit: str | None = None


@dataclass(frozen=True)
class ValidateRequest:
    """The options as they were given. `inventory_given`: it was named, and is not the lab's by default."""

    inventory: Path
    runs_dir: Path
    output: Output
    training: TrainingRequest
    inventory_given: bool = False
    fabric: str | None = None
    here: bool = False
    quick: bool = False
    anyway: bool = False
    minutes: int | None = None
    hours: int | None = None
    reboots: int | None = None
    power_cycles: int | None = None
    soak: str | None = None
    segment: int | None = None
    suites: tuple[str, ...] = ()
    profile: str | None = None
    waivers: Path | None = None
    branding: Path | None = None
    baseline: Path | None = None
    without: tuple[str, ...] = ()
    launcher: str = "ssh"
    slurm: str = ""
    slurm_wait: int | None = None
    resume: str | None = None
    rejudge: str | None = None
    dry_run: bool = False
    summary: bool = False
    unit: str | None = None

    @property
    def of_old_run(self) -> str:
        """The option that names a run that is there; "" of a new one."""
        return "--resume" if self.resume else "--rejudge" if self.rejudge else ""

    def checked(self) -> Rejudging | Resuming | ThisMachine | NewRuns:
        """What it comes to. UsageFault for options that do not go together."""
        from toolkit import slurm_job

        self._refuse_of_here()
        if self.unit and (self.here or self.of_old_run):
            raise UsageFault(f"--unit is of a new run of a site; {self.of_old_run or '--here'} has its nodes already")
        job = slurm_job.chosen(self.launcher, self.slurm, self.slurm_wait)
        if job is not None and (self.here or self.rejudge):
            raise UsageFault("--launcher slurm reaches nodes; --here is this machine, and --rejudge touches none")
        self._refuse_two_runs()
        if self.summary and not self.dry_run:
            raise UsageFault("--summary is of a plan that is only printed; give --dry-run --summary")
        self.training.refuse_of_old_run(bool(self.of_old_run or self.here))
        self._refuse_of_old_run()
        suites, minutes = self._suites_and_minutes()
        reboots = self._consent(suites)
        terms = Terms(self.profile, self.waivers)
        if self.rejudge:
            return Rejudging(self.rejudge, terms, self.runs_dir, self.output)
        if self.resume:
            if self.profile or self.waivers:
                raise UsageFault("--profile and --waivers are for a new run or for --rejudge")
            return Resuming(self.resume, job, self.runs_dir, self.output)
        if self.here:
            known_suites(suites)
            return ThisMachine(
                suites, self.quick, self.anyway, minutes, self.dry_run, self.summary, self.runs_dir, self.output,
                self.segment,
            )  # fmt: skip
        return NewRuns(
            fabric=self.fabric,
            inventory=self.inventory,
            suites=suites,
            terms=terms,
            branding=self.branding,
            baseline=self.baseline,
            without=self.without,
            options={**self.training.plan_options(), **self._lengths(minutes), **reboots},
            job=job,
            dry_run=self.dry_run,
            summary=self.summary,
            runs_dir=self.runs_dir,
            output=self.output,
            unit=self.unit,
        )

    def _refuse_of_here(self) -> None:
        if not self.here:
            if self.quick:
                raise UsageFault("--quick goes with --here; of a site, profiles have a quick test: toolkit profiles")
            if self.anyway:
                raise UsageFault(
                    "--anyway goes with --here; on a site's nodes nobody else may work while they are measured"
                )
            return
        for name in DECLARED:
            if self.inventory_given if name == "inventory" else getattr(self, name) is not None:
                raise UsageFault(f"--here is this machine by itself, of which nothing is declared; omit --{name}")

    def _refuse_two_runs(self) -> None:
        named = (("--fabric", self.fabric), ("--resume", self.resume), ("--rejudge", self.rejudge))
        chosen = [name for name, given in named if given]
        if len(chosen) > 1:
            raise UsageFault(f"{' and '.join(chosen)} exclude each other; give one of them")

    def _refuse_of_old_run(self) -> None:
        """What only a new run can be asked for."""
        old = self.of_old_run
        if old and (self.suites or self.soak or self.dry_run):
            raise UsageFault(f"{old} uses the suites and plan of the run; omit --suite, --soak and --dry-run")
        if self.without and (old or self.here or self.summary):
            raise UsageFault("--without is for a new run of a site, or its --dry-run without --summary")
        if self.baseline and old:
            raise UsageFault(
                "--baseline is for a new run; a run that has one keeps it; of an old one: toolkit judge --criteria"
            )
        if self.branding and old:
            raise UsageFault("--branding is for a new run; for an old one: toolkit report RUN --branding FILE")

    def _consent(self, suites: tuple[str, ...]) -> dict[str, int]:
        """The plan's option by which nodes may be rebooted. UsageFault for the suite without it, and the reverse."""
        asked = RECOVERY in suites and not self.of_old_run
        given = {"reboots": self.reboots, "power_cycles": self.power_cycles}
        consent = {name: count for name, count in given.items() if count is not None}
        if asked and not consent:
            raise UsageFault(
                "suite recovery reboots every GPU server and the head, and lets a server die under a job; "
                "allow it with --reboots 3, and power cycles by BMCs with --power-cycles 1"
            )
        if consent and not asked:
            named = " and ".join(f"--{name.replace('_', '-')}" for name in consent)
            verb = "allow" if len(consent) > 1 else "allows"
            raise UsageFault(f"{named} {verb} what suite recovery does; give --suite recovery, of a new run")
        return consent

    def _suites_and_minutes(self) -> tuple[tuple[str, ...], int | None]:
        """The suites, and how many minutes burn-in loads, by --minutes, --hours or --soak; None for its default."""
        if sum(given is not None for given in (self.minutes, self.hours, self.soak)) > 1:
            raise UsageFault("--minutes, --hours and --soak exclude each other; give one of them")
        suites, hours, minutes = self.training.suites(self.suites), self.hours, self.minutes
        if self.soak is not None:
            hours, suites = SOAK_HOURS[self.soak], tuple(dict.fromkeys((*suites, BURN_IN)))
        if hours is not None:
            minutes = 60 * hours
        if minutes is not None and (self.of_old_run or BURN_IN not in suites):
            raise UsageFault(
                "--minutes and --hours are how long the suite burn-in loads; give --suite burn-in, of a new run"
            )
        if self.segment is not None and (self.of_old_run or BURN_IN not in suites):
            raise UsageFault("--segment is how long a segment of the suite burn-in is; give --soak, of a new run")
        return suites, minutes

    def _lengths(self, minutes: int | None) -> dict[str, int]:
        given = {"minutes": minutes, "segment_s": None if self.segment is None else 60 * self.segment}
        return {name: value for name, value in given.items() if value is not None}


def known_suites(suites: tuple[str, ...]) -> None:
    """UsageFault for one that there is not."""
    for suite in suites:
        if suite not in SUITE_NAMES:
            raise UsageFault(f"unknown suite {suite!r}; {or_nearest(suite, SUITE_NAMES)}")
