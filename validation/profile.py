"""Acceptance profiles: which criteria are owed for which delivery, as data (`profiles/*.yml`).

A profile is what supplier and customer agree on before anything is measured. Every criterion that the catalogue
requires is either owed, or left out with a reason: silence is no agreement. Without a profile all of them are owed.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Sequence
from importlib import resources
from pathlib import Path
from typing import Literal

from pydantic import Field, field_validator

from validation.criterion import Criterion
from validation.fabric import Fabric
from validation.load import ConfigError, Source, line_of, load_yaml, read_source
from validation.model import AgreedProfile, Model, Origin
from validation.waiver import Words

Delivery = Literal["network", "training", "elastic"]
Test = Literal["quick", "full", "long"]


class LeftOut(Model):
    """Criteria that are not owed, and why. `when: no-bound`: only on fabrics whose profile has no figure for them."""

    criteria: tuple[str, ...] = Field(min_length=1)
    why: Words
    when: Literal["always", "no-bound"] = "always"


class Profile(Model):
    """What is owed for a delivery. `suites` are measured unless others are named on the command line.

    `owed` and `left_out` hold ids of criteria.
    """

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9-]*$")
    title: Words
    delivery: Delivery
    test: Test
    suites: tuple[str, ...] = Field(min_length=1)
    owed: tuple[str, ...]
    left_out: tuple[LeftOut, ...] = ()

    @field_validator("owed", mode="before")
    @classmethod
    def _something(cls, owed: object) -> object:
        if not owed:
            raise ValueError("a profile that owes nothing would accept anything; name what is owed")
        return owed

    def not_owed(self, criteria: Iterable[Criterion], fabric: Fabric) -> dict[str, str]:
        """Criteria that are left out on this fabric -> why."""
        known = {c.id: c for c in criteria}
        return {
            id_: entry.why
            for entry in self.left_out
            for id_ in entry.criteria
            if entry.when == "always" or (id_ in known and not _has_figure(known[id_], fabric))
        }

    def owed_on(self, criteria: Iterable[Criterion], fabric: Fabric) -> tuple[Criterion, ...]:
        """What is owed on this fabric: of `owed` what applies to it and is not left out there."""
        criteria = list(criteria)
        without = self.not_owed(criteria, fabric)
        mine = [c for c in criteria if c.id in self.owed and c.id not in without]
        return tuple(c for c in mine if c.applies is None or c.applies.to(fabric))

    def agreed(self) -> AgreedProfile:
        """The profile as verdict and report name it."""
        return AgreedProfile(name=self.name, title=self.title, delivery=self.delivery, test=self.test)


def _has_figure(criterion: Criterion, fabric: Fabric) -> bool:
    return criterion.bound.fabric_key is None or getattr(fabric, criterion.bound.fabric_key) is not None


def _folder() -> Path:
    return Path(str(resources.files("validation") / "profiles"))


def profile_names() -> list[str]:
    """Names of the packaged profiles: by delivery, quick before full before long."""
    order = {name: n for n, name in enumerate((*Delivery.__args__, *Test.__args__))}  # type: ignore[attr-defined]
    found = [load_yaml(path, Profile) for path in _folder().glob("*.yml")]
    return [p.name for p in sorted(found, key=lambda p: (order[p.delivery], order[p.test]))]


def profile_path(name_or_path: str) -> Path:
    """The file of a packaged profile by name, or the path itself. ConfigError names the nearest known name."""
    if "/" in name_or_path or name_or_path.endswith((".yml", ".yaml")):
        return Path(name_or_path)
    path = _folder() / f"{name_or_path}.yml"
    if path.is_file():
        return path
    known = profile_names()
    near = difflib.get_close_matches(name_or_path.lower(), known, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]}?" if near else f"there are: {', '.join(known)}"
    raise ConfigError(f"unknown acceptance profile {name_or_path!r}; {hint} See `toolkit profiles`")


def profile_origin(path: Path) -> Origin:
    """Whether a profile's file is one of this package."""
    return "packaged" if path.parent == _folder() else "site"


def load_profile(source: str | Source, criteria: Sequence[Criterion], suites: Iterable[str]) -> Profile:
    """A packaged profile by name, or one from a file by path, or as it was read; `criteria` and `suites` are those
    that exist.

    ConfigError with file and line: an unknown or contradictory criterion, one that is required and not spoken of, a
    profile that owes nothing that could fail.
    """
    source = source if isinstance(source, Source) else read_source(profile_path(source))
    profile, path = load_yaml(source, Profile), source.path

    def fault(location: tuple[int | str, ...], words: str) -> ConfigError:
        field = ".".join(str(part) for part in location)
        return ConfigError(f"{path}:{line_of(source, *location)}: {field}: {words}")

    known_suites = list(suites)
    for position, suite in enumerate(profile.suites):
        if suite not in known_suites:
            raise fault(("suites", position), f"unknown suite {suite!r}; there are: {', '.join(known_suites)}")
    if profile_origin(path) == "packaged" and profile.name != path.stem:
        raise fault(("name",), f"{profile.name!r} does not fit the file's name; make them equal")
    _check_ids(profile, {c.id: c for c in criteria}, fault)
    return profile


_Fault = Callable[[tuple[int | str, ...], str], ConfigError]


def _check_ids(profile: Profile, known: dict[str, Criterion], fault: _Fault) -> None:
    owed: set[str] = set()
    for position, id_ in enumerate(profile.owed):
        _known(("owed", position), id_, known, fault)
        if id_ in owed:
            raise fault(("owed", position), f"duplicate criterion: {id_}; remove one")
        owed.add(id_)
    without: set[str] = set()
    for number, entry in enumerate(profile.left_out):
        for position, id_ in enumerate(entry.criteria):
            place: tuple[int | str, ...] = ("left_out", number, "criteria", position)
            _known(place, id_, known, fault)
            if id_ in without:
                raise fault(place, f"{id_} is left out twice; remove one")
            without.add(id_)
            if entry.when == "always" and id_ in owed:
                raise fault(place, f"{id_} is owed too; keep one of the two")
            if entry.when == "no-bound" and (id_ not in owed or known[id_].bound.fabric_key is None):
                raise fault(
                    place, f"{id_}: when: no-bound is for what is owed and has its bound from the fabric profile"
                )
    silent = [id_ for id_, c in known.items() if c.required and id_ not in owed | without]
    if silent:
        raise fault(("owed",), f"neither owed nor left out: {', '.join(silent)}; put each into owed or into left_out")
    if all(known[id_].direction == "report" for id_ in owed):
        raise fault(("owed",), "nothing of it has a bound, so nothing could fail; name what is owed")


def _known(place: tuple[int | str, ...], id_: str, known: Iterable[str], fault: _Fault) -> None:
    if id_ not in known:
        near = difflib.get_close_matches(id_, list(known), n=1)
        hint = f"did you mean {near[0]}?" if near else "toolkit profiles show elastic lists them"
        raise fault(place, f"unknown criterion {id_!r}; {hint}")
