"""What was agreed with the customer: acceptance profile and waivers, from command line or inventory; the punch list."""

from __future__ import annotations

import contextlib
import datetime
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from toolkit.errors import UsageFault
from toolkit.inventory_lines import locate
from validation.base.counting import be, number_of
from validation.model import Origin
from validation.model.load import ConfigError, read_source
from validation.plan.suites import SUITES
from validation.rules.criterion import Criterion
from validation.rules.fabric import Fabric
from validation.rules.profile import Profile, load_profile, profile_names, profile_origin, profile_path, read_profile
from validation.rules.punch import load_points
from validation.rules.waiver import Waiver, load_waivers
from validation.run.names import PROFILE, PUNCH, WAIVERS


@dataclass(frozen=True)
class Agreement:
    """Acceptance profile and waivers of a run. `files`: name in the run directory -> text, of the punch list beside
    the inventory too.

    `origin` is the profile's. `chosen` says by what the profile was chosen ("--profile", "the inventory"), "" where
    there is none.
    """

    profile: Profile | None
    chosen: str
    waivers: tuple[Waiver, ...]
    files: dict[str, str]
    origin: Origin | None = None


def find_agreement(
    profile: str | None,
    waivers: Path | None,
    criteria: Sequence[Criterion],
    inventory: Path | None = None,
    declared: str | None = None,
    created: str = "",
) -> Agreement:
    """The agreement by `--profile` and `--waivers`; where they are None, by the inventory (`declared`, `waivers.yml`).

    `created` is the run that is judged again: a decision may be as young as this day or that run, no younger. Raises
    ConfigError, one line with file and line, before anything is measured or judged.
    """
    folder = None if inventory is None else inventory if inventory.is_dir() else inventory.parent
    chosen, name = "--profile", profile
    if name is None and declared is not None and inventory is not None and folder is not None:
        chosen, name = "the inventory", _declared(inventory, folder, declared)
    if waivers is None and folder is not None and os.path.lexists(folder / WAIVERS):
        waivers = folder / WAIVERS
    files: dict[str, str] = {}
    agreed: Profile | None = None
    origin: Origin | None = None
    if name is not None:
        agreed, source = read_profile(name, criteria, SUITES)
        origin = profile_origin(source.path)
        files[PROFILE] = source.text
    granted: tuple[Waiver, ...] = ()
    today = datetime.datetime.now().astimezone().date()
    with contextlib.suppress(ValueError):
        today = max(today, datetime.date.fromisoformat(created[:10]))
    if waivers is not None:
        source = read_source(waivers)
        granted = load_waivers(source, [c.id for c in criteria], today)
        files[WAIVERS] = source.text
    if folder is not None and os.path.lexists(folder / PUNCH):
        source = read_source(folder / PUNCH)
        load_points(source, [c.id for c in criteria], today)
        files[PUNCH] = source.text
    return Agreement(agreed, chosen if agreed else "", granted, files, origin)


def _declared(inventory: Path, folder: Path, declared: str) -> str:
    """The inventory's profile: a packaged name, or the path of a file as seen from the inventory's folder."""
    try:
        found = profile_path(declared)
    except ConfigError as fault:
        where = locate(inventory, None, ("acceptance_profile",)) or str(inventory)
        raise ConfigError(f"{where}: acceptance_profile: {fault}") from None
    return str(folder / declared) if found == Path(declared) else declared


def up_front(
    agreement: Agreement, criteria: Sequence[Criterion], fabric: Fabric, suites: Sequence[str], virtual: bool
) -> list[str]:
    """What has to be known before anything is measured: what is owed, and why this run could not end ACCEPTED.

    UsageFault where the profile owes nothing on this fabric.
    """
    profile = agreement.profile
    if profile is None and virtual:
        return []  # a rehearsal accepts nothing anyway
    if profile is None:
        owed = tuple(c for c in criteria if c.required and (c.applies is None or c.applies.to(fabric)))
        said = [
            f"no acceptance profile was chosen, so everything required is owed: "
            f"{number_of(len(owed), 'criterion')}; what was agreed "
            "with the customer is chosen by --profile or the inventory (toolkit profiles)"
        ]
    else:
        owed = profile.owed_on(criteria, fabric)
        if not owed:
            raise UsageFault(f"profile {profile.name} owes nothing on fabric {fabric.name}; choose another")
        said = [
            f"acceptance profile {profile.name}, chosen by {agreement.chosen}: "
            f"{number_of(len(owed), 'criterion')} {be(len(owed))} owed"
        ]
    waived = {w.criterion for w in agreement.waivers if w.subject is None}
    unpaid = [c for c in owed if c.id not in waived]
    unmeasured = [c.id for c in unpaid if c.no_probe is not None]
    holes = {
        "no measurement in this release": unmeasured,
        f"no bound on {fabric.name}": [c.id for c in unpaid if c.no_probe is None and _no_figure(c, fabric)],
        "suite not selected": [c.id for c in unpaid if c.no_probe is None and c.suite not in suites],
    }
    if any(holes.values()):
        told = "; ".join(f"{why}: {', '.join(ids)}" for why, ids in holes.items() if ids)
        said.append(f"this run cannot end ACCEPTED without a waiver for each of these: {told}")
        if profile is not None and unmeasured:
            said.append(f"profiles that this release measures as a whole: {', '.join(reachable(criteria))}")
    return said


def reachable(criteria: Sequence[Criterion]) -> list[str]:
    """Packaged profiles that owe nothing without a measurement."""
    bare = {c.id for c in criteria if c.no_probe is not None}
    return [n for n in profile_names() if not bare & set(load_profile(n, criteria, SUITES).owed)]


def _no_figure(criterion: Criterion, fabric: Fabric) -> bool:
    key = criterion.bound.fabric_key
    return key is not None and getattr(fabric, key) is None
