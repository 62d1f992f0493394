"""Acceptance profiles: which criteria are owed for which delivery, as data (`profiles/*.yml`).

A profile is what supplier and customer agree on before anything is measured. Every criterion that the catalogue
requires is either owed, or left out with a reason: silence is no agreement. Without a profile all of them are owed.

A file may say what is other than in a packaged profile (`extends`). A run keeps the whole: it names all that is owed.
"""

from __future__ import annotations

import contextlib
import difflib
from collections.abc import Callable, Iterable, Sequence
from importlib import resources
from pathlib import Path
from typing import Literal

import yaml
from pydantic import Field, field_validator

from validation.base.yaml_text import parse_yaml, plain
from validation.model import AgreedProfile, Model, Origin
from validation.model.load import ConfigError, Source, line_of, load_yaml, read_source
from validation.rules.criterion import Criterion
from validation.rules.fabric import Fabric
from validation.rules.waiver import Words

Delivery = Literal["network", "training", "elastic"]
Test = Literal["quick", "full", "long"]
_NAME = r"^[a-z0-9][a-z0-9-]*$"


class LeftOut(Model):
    """Criteria that are not owed, and why. `when: no-bound`: only on fabrics whose profile has no figure for them."""

    criteria: tuple[str, ...] = Field(min_length=1)
    why: Words
    when: Literal["always", "no-bound"] = "always"


class Profile(Model):
    """What is owed for a delivery. `suites` are measured unless others are named on the command line.

    `owed` and `left_out` hold ids of criteria.
    """

    name: str = Field(pattern=_NAME)
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


class Extension(Model):
    """A profile by what is other than in the packaged one that it `extends`.

    What it owes is no longer left out, and what it leaves out is no longer owed; in both lists the rest stays. Keys
    that are None are those of the other.
    """

    name: str = Field(pattern=_NAME)
    title: Words
    extends: str
    delivery: Delivery | None = None
    test: Test | None = None
    suites: tuple[str, ...] | None = Field(None, min_length=1)
    owed: tuple[str, ...] = ()
    left_out: tuple[LeftOut, ...] = ()

    def on(self, base: Profile, place: Callable[[str], int]) -> Profile:
        """The whole profile. `place`: of a criterion's suite among all suites; what is added precedes later ones."""
        without = {id_ for entry in self.left_out if entry.when == "always" for id_ in entry.criteria}
        owed = [id_ for id_ in base.owed if id_ not in without]
        for id_ in self.owed:
            later = (n for n, other in enumerate(owed) if place(other) > place(id_))
            owed.insert(next(later, len(owed)), id_)
        spoken = {*self.owed, *(id_ for entry in self.left_out for id_ in entry.criteria)}
        entries = list(self.left_out)
        for entry in base.left_out:
            if rest := tuple(id_ for id_ in entry.criteria if id_ not in spoken):
                entries.append(entry.model_copy(update={"criteria": rest}))
        return Profile(
            name=self.name,
            title=self.title,
            delivery=self.delivery or base.delivery,
            test=self.test or base.test,
            suites=self.suites or base.suites,
            owed=tuple(owed),
            left_out=tuple(sorted(entries, key=lambda e: (e.when == "always", place(e.criteria[0])))),
        )


def _has_figure(criterion: Criterion, fabric: Fabric) -> bool:
    return criterion.bound.fabric_key is None or getattr(fabric, criterion.bound.fabric_key) is not None


def _folder() -> Path:
    return Path(str(resources.files("validation.rules") / "profiles"))


def profile_names() -> list[str]:
    """Names of the packaged profiles: by delivery, quick before full before long."""
    order = {name: n for n, name in enumerate((*Delivery.__args__, *Test.__args__))}  # type: ignore[attr-defined]
    return sorted((path.stem for path in _folder().glob("*.yml")), key=lambda n: [order[one] for one in _kind(n)])


def _kind(name: str) -> tuple[Delivery, Test]:
    given = _given(read_source(profile_path(name)))
    if isinstance(given, Profile):
        return given.delivery, given.test
    delivery, test = _kind(given.extends)
    return given.delivery or delivery, given.test or test


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


def read_profile(name_or_path: str, criteria: Sequence[Criterion], suites: Iterable[str]) -> tuple[Profile, Source]:
    """A packaged profile by name, or one from a file by path, and its text, in which nothing is taken from another:
    the file's own, or the whole of what extends another. `criteria` and `suites` are those that exist.

    ConfigError with file and line: an unknown or contradictory criterion, one that is required and not spoken of, a
    profile that owes nothing that could fail.
    """
    source = read_source(profile_path(name_or_path))
    given = _given(source)
    if isinstance(given, Profile):
        return load_profile(source, criteria, suites), source
    fault = _faults(source)
    if "/" in given.extends or given.extends.endswith((".yml", ".yaml")):
        raise fault(("extends",), f"{given.extends!r} is a file; only a packaged profile can be extended")
    try:
        base, _ = read_profile(given.extends, criteria, suites)
    except ConfigError as unknown:
        raise fault(("extends",), str(unknown)) from None
    known, order = {c.id: c for c in criteria}, list(suites)
    _check_head(given, source, order, fault)
    _check_ids(given, known, fault)
    for position, id_ in enumerate(given.owed):
        if id_ in base.owed:
            raise fault(("owed", position), f"{id_} is owed by {base.name} already; remove it here")
    if set(base.owed) <= {id_ for entry in given.left_out for id_ in entry.criteria} and not given.owed:
        raise fault(("left_out",), "a profile that owes nothing would accept anything; leave less out")
    profile = given.on(base, lambda id_: order.index(known[id_].suite))
    _check_whole(profile, given.left_out, known, fault)
    text = f"# The whole of {source.path.name}, which extends {base.name}.\n"
    return profile, Source(source.path, text + plain(profile.model_dump(mode="json", exclude_defaults=True)))


def load_profile(source: str | Source, criteria: Sequence[Criterion], suites: Iterable[str]) -> Profile:
    """The same without its text; of a run's copy as it was read, which is the whole and extends nothing."""
    if isinstance(source, str):
        return read_profile(source, criteria, suites)[0]
    profile, known, fault = load_yaml(source, Profile), {c.id: c for c in criteria}, _faults(source)
    _check_head(profile, source, list(suites), fault)
    _check_ids(profile, known, fault)
    _check_whole(profile, profile.left_out, known, fault)
    return profile


_Fault = Callable[[tuple[int | str, ...], str], ConfigError]


def _given(source: Source) -> Profile | Extension:
    """What a file says, whole or not."""
    with contextlib.suppress(yaml.YAMLError):  # which load_yaml tells
        data = parse_yaml(source.text)
        if isinstance(data, dict) and "extends" in data:
            return load_yaml(source, Extension)
    return load_yaml(source, Profile)


def _faults(source: Source) -> _Fault:
    def fault(location: tuple[int | str, ...], words: str) -> ConfigError:
        field = ".".join(str(part) for part in location)
        return ConfigError(f"{source.path}:{line_of(source, *location)}: {field}: {words}")

    return fault


def _check_head(given: Profile | Extension, source: Source, suites: Sequence[str], fault: _Fault) -> None:
    for position, suite in enumerate(given.suites or ()):
        if suite not in suites:
            raise fault(("suites", position), f"unknown suite {suite!r}; there are: {', '.join(suites)}")
    if profile_origin(source.path) == "packaged" and given.name != source.path.stem:
        raise fault(("name",), f"{given.name!r} does not fit the file's name; make them equal")


def _check_ids(given: Profile | Extension, known: dict[str, Criterion], fault: _Fault) -> None:
    """That a file names criteria that exist, and each in one place."""
    owed: set[str] = set()
    for position, id_ in enumerate(given.owed):
        _known(("owed", position), id_, known, fault)
        if id_ in owed:
            raise fault(("owed", position), f"duplicate criterion: {id_}; remove one")
        owed.add(id_)
    without: set[str] = set()
    for number, entry in enumerate(given.left_out):
        for position, id_ in enumerate(entry.criteria):
            place: tuple[int | str, ...] = ("left_out", number, "criteria", position)
            _known(place, id_, known, fault)
            if id_ in without:
                raise fault(place, f"{id_} is left out twice; remove one")
            without.add(id_)
            if entry.when == "always" and id_ in owed:
                raise fault(place, f"{id_} is owed too; keep one of the two")


def _check_whole(profile: Profile, entries: Sequence[LeftOut], known: dict[str, Criterion], fault: _Fault) -> None:
    """That a whole profile leaves nothing unsaid and could fail; `entries`: what its file leaves out itself."""
    owed = set(profile.owed)
    for number, entry in enumerate(entries):
        for position, id_ in enumerate(entry.criteria):
            if entry.when == "no-bound" and (id_ not in owed or known[id_].bound.fabric_key is None):
                raise fault(
                    ("left_out", number, "criteria", position),
                    f"{id_}: when: no-bound is for what is owed and has its bound from the fabric profile",
                )
    spoken = owed.union(*(entry.criteria for entry in profile.left_out))
    silent = [id_ for id_, c in known.items() if c.required and id_ not in spoken]
    if silent:
        raise fault(("owed",), f"neither owed nor left out: {', '.join(silent)}; put each into owed or into left_out")
    if all(known[id_].direction == "report" for id_ in owed):
        raise fault(("owed",), "nothing of it has a bound, so nothing could fail; name what is owed")


def _known(place: tuple[int | str, ...], id_: str, known: Iterable[str], fault: _Fault) -> None:
    if id_ not in known:
        near = difflib.get_close_matches(id_, list(known), n=1)
        hint = f"did you mean {near[0]}?" if near else "toolkit profiles show elastic lists them"
        raise fault(place, f"unknown criterion {id_!r}; {hint}")
