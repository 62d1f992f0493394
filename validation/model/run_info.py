"""run.json: what was asked of a run, and when."""

from __future__ import annotations

import datetime
import shlex

from pydantic import Field

from validation.model.base import Model, Origin, Scalar
from validation.model.times import begun, day_of, moment

REACHED_BY = ("--launcher", "--slurm", "--slurm-wait")
"""Options of `toolkit validate` that say how nodes are reached; who goes on with a run goes the same way."""


class UnitPart(Model):
    """What a unit's run is of its site, by the inventory as it was. `elsewhere`: nodes that are not of the unit. Groups
    whose nodes all are of the unit are `within` it, itself among them; those that have none of its nodes are `apart`.
    """

    elsewhere: tuple[str, ...]
    within: tuple[str, ...]
    apart: tuple[str, ...]


class RunInfo(Model):
    """run.json: what was asked, by which release, when.

    `documents`: name -> SHA-256 of what the run began with (plan, topology, fabric profile, criteria, ...). `origins`:
    where the fabric profile and the acceptance profile came from, by name; what it does not name is the site's own.
    `replaced` says that rules were replaced by later ones, which `toolkit validate --rejudge` does.
    """

    run: str
    created: str
    toolkit_version: str
    site: str
    inventory: str
    fabric: str
    suites: tuple[str, ...]
    command: tuple[str, ...]
    profile: str | None = None  # name of the acceptance profile, which stands in profile.yml
    options: dict[str, Scalar] = Field(default={})
    documents: dict[str, str]
    origins: dict[str, Origin] = Field(default={})
    replaced: str | None = None
    unit: str | None = None  # the group of the inventory whose nodes alone were measured
    part: UnitPart | None = None  # of a unit; None of a whole site, and of a run from before this was kept

    @property
    def created_at(self) -> datetime.datetime | None:
        """When it was begun, by `created`; None where that is no time in UTC."""
        return moment(self.created)

    @property
    def begun_at(self) -> datetime.datetime | None:
        """When it was begun, by its name; None where the name does not tell."""
        return begun(self.run)

    @property
    def day(self) -> datetime.date | None:
        """The day of the run in UTC: waivers are looked at as of it, so that judging again changes nothing."""
        return day_of(self.run, self.created)

    def resume(self, run: str) -> str:
        """The command that goes on with the run that stands at `run`, and reaches its nodes in the same way."""
        ways, words = [], iter(self.command)
        for word in words:
            name, equals, _ = word.partition("=")
            if name in REACHED_BY:
                ways += [word] if equals else [word, next(words, "")]
        return shlex.join(["toolkit", "validate", "--resume", run, *ways])
