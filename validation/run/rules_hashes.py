"""The rules of a run, known by a hash of what is read, and whether they are those of a release.

Rules are the criteria, the claims that their bounds point to, the fabric profile, the acceptance profile, a partner's
templates for the report, and the options by which less, or something else, was planned. What counts is what they say:
a file that is moved, folded anew or commented on has the same hash, a number that is another has another.

Each release carries the hashes of its own rules, and `releases.json` those of the earlier ones. Pure but for that file.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from typing import Any

from validation.model import RunInfo
from validation.model.base import Model
from validation.plan.offered import MINUTES
from validation.plan.suites import SUITES
from validation.rules.criterion import Criterion
from validation.rules.fabric import Fabric, fabric_names, no_fabric, read_fabric
from validation.rules.profile import Profile, profile_names, read_profile
from validation.rules.reference import Reference, packaged
from validation.rules.release import release
from validation.run.catalogue import load_criteria, read_criteria

REGISTER = "releases.json"
"""File of this package: release -> the hashes of its rules. tools/make_docs.py writes what this release's are."""
_NAMED = 8
_VERSION = 40  # characters of one in words
"""How many of a kind are named before they are counted."""

Hashes = Mapping[str, str]


@dataclass(frozen=True)
class ReleaseRules:
    """The rules of a release: the SHA-256 of each, by its id or name. `texts`: of its files, as a run keeps them."""

    criteria: Hashes
    claims: Hashes
    fabrics: Hashes
    profiles: Hashes
    texts: Hashes = field(default_factory=dict)


@dataclass(frozen=True)
class Rules:
    """The rules of a run. `release` is the one whose rules they are, None where they are of none that is known here.

    `other`: where they differ from those of the release that the run names, a few words for each kind; empty where
    `release` is known. `sha256` is of all of them together: who has agreed on rules of a site's own agreed on that.
    `odd`: each rule that differs, with its hash.
    """

    release: str | None
    sha256: str
    other: tuple[str, ...] = field(default=())
    odd: frozenset[str] = field(default=frozenset())

    @property
    def words(self) -> str:
        """What they are, on one line."""
        if not self.other:
            return f"those of toolkit {self.release}"
        return f"OTHER than those of a release: {'; '.join(self.other)}"

    def line(self) -> str:
        """The same with their hash, as statements, README.txt and reports have it."""
        return f"{self.words} (sha256 {self.sha256})"


def digest(said: object) -> str:
    """The SHA-256 of what something says: the same of the same content, however it was written."""
    text = json.dumps(said, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()


def said_by(thing: Model) -> str:
    """The hash of a document as it was read; a key that a later release adds, with its default, changes nothing."""
    return digest(thing.model_dump(mode="json", exclude_defaults=True))


def criteria_hashes(criteria: Iterable[Criterion]) -> dict[str, str]:
    """Of each criterion, with the figures that its bound takes from claims."""
    return {c.id: said_by(c) for c in criteria}


def claims_hashes(reference: Reference) -> dict[str, str]:
    """Of each claim, document and machine."""
    return {
        **{f"document {key}": said_by(one) for key, one in reference.documents.items()},
        **{f"machine {key}": said_by(one) for key, one in reference.machines.items()},
        **{key: said_by(one) for key, one in reference.claims.items()},
    }


def rules_of(
    info: RunInfo,
    criteria: Iterable[Criterion],
    reference: Reference,
    fabric: Fabric,
    profile: Profile | None,
    templates: Mapping[str, str],
) -> Rules:
    """The rules of a run, held against those of the release that it names.

    Where they were replaced by later ones (`toolkit validate --rejudge`), they may be those of any release.
    """
    mine = ReleaseRules(
        criteria_hashes(criteria),
        claims_hashes(reference),
        {fabric.name: said_by(fabric)},
        {} if profile is None else {profile.name: said_by(profile)},
    )
    asked = {key: value for key, value in info.options.items() if _other_than_usual(key, value)}
    parts: dict[str, Any] = {
        "criteria": mine.criteria,
        "claims": mine.claims,
        "fabric": mine.fabrics,
        "profile": mine.profiles,
        "templates": {name: hashlib.sha256(text.encode()).hexdigest() for name, text in templates.items()},
        "options": asked,
    }
    besides = [
        *([f"plan by options: {', '.join(f'{k}={v}' for k, v in sorted(asked.items()))}"] if asked else []),
        *([f"templates of the report: {', '.join(sorted(templates))}"] if templates else []),
    ]
    named = info.toolkit_version
    known = register()
    if named not in known and named != release():
        shown = named if len(named) <= _VERSION else f"{named[:_VERSION]}..."
        besides.append(f"toolkit {shown}, which the run names, is not known to toolkit {release()}")
    names = list(dict.fromkeys([named, release(), *(known if info.replaced is not None else ())]))
    whose = next((n for n in names if n in known and not _differences(mine, known[n])), None)
    if whose is None and not _differences(mine, own()):  # a checkout whose register is older than its rules
        whose = release()
    against = known[named] if named in known and named != release() else own() if whose is None else None
    other = (*(_differences(mine, against) if whose is None and against is not None else ()), *besides)
    odd = {*besides, *(f"template {name} {sha256}" for name, sha256 in parts["templates"].items())}
    if whose is None and against is not None:
        odd |= _odd(mine, against)
    return Rules(None if other else whose, digest(parts), other, frozenset(odd))


def _other_than_usual(key: str, value: object) -> bool:
    """Whether an option may have less, or something else, planned than no option does.

    A longer load is more, and so is every reboot: without that consent nothing is rebooted.
    """
    return value is not None and key != "reboots" and not (
        key == "minutes" and isinstance(value, int) and value >= MINUTES
    )  # fmt: skip


def _differences(mine: ReleaseRules, theirs: ReleaseRules) -> list[str]:
    found = []
    for what, here, there in (
        ("criteria", mine.criteria, theirs.criteria),
        ("claims", mine.claims, theirs.claims),
    ):
        ids = [
            *(id_ for id_ in sorted(here) if id_ in there and here[id_] != there[id_]),
            *(f"{id_} (added)" for id_ in sorted(here) if id_ not in there),
            *(f"{id_} (missing)" for id_ in sorted(there) if id_ not in here),
        ]
        if ids:
            found.append(f"{what} {', '.join(ids[:_NAMED])}" + (f" and {len(ids) - _NAMED} more" * (len(ids) > _NAMED)))
    for what, here, there in (
        ("fabric profile", mine.fabrics, theirs.fabrics),
        ("acceptance profile", mine.profiles, theirs.profiles),
    ):
        found += [
            f"{what} {name}" + (" (of the site's own)" if name not in there else "")
            for name, value in here.items()
            if there.get(name) != value
        ]
    return found


def _odd(mine: ReleaseRules, theirs: ReleaseRules) -> set[str]:
    """Each rule of one that the other has not, or otherwise, with its hash; and those that are missing."""
    found = set()
    for kind in ("criteria", "claims", "fabrics", "profiles"):
        here, there = getattr(mine, kind), getattr(theirs, kind)
        found |= {f"{kind} {name} {value}" for name, value in here.items() if there.get(name) != value}
        if kind in ("criteria", "claims"):
            found |= {f"{kind} {name} missing" for name in there if name not in here}
    return found


@cache
def own() -> ReleaseRules:
    """The rules of this release, read from its files, which takes seconds."""
    criteria = load_criteria()
    fabrics = [*(read_fabric(name) for name in fabric_names()), no_fabric()]
    profiles = {name: read_profile(name, criteria, SUITES) for name in profile_names()}
    return ReleaseRules(
        criteria_hashes(criteria),
        claims_hashes(packaged()),
        {one.fabric.name: said_by(one.fabric) for one in fabrics},
        {name: said_by(profile) for name, (profile, _) in profiles.items()},
        {
            **{f"criteria {source.path.name}": source.sha256 for source in read_criteria()},
            **{f"reference {source.path.name}": source.sha256 for source in packaged().sources},
            **{f"fabric {one.fabric.name}": one.source.sha256 for one in fabrics},
            **{f"profile {name}": source.sha256 for name, (_, source) in profiles.items()},
        },
    )


@cache
def register() -> Mapping[str, ReleaseRules]:
    """The rules of every release up to this one."""
    text = (resources.files("validation.rules") / REGISTER).read_text(encoding="utf-8")
    return {version: ReleaseRules(**rules) for version, rules in json.loads(text).items()}


def register_text() -> str:
    """The register with this release's rules as they stand; those of earlier releases stay as they are.

    So do the hashes of texts that have other names today: a run that keeps such a text keeps a release's.
    """
    path = resources.files("validation.rules") / REGISTER
    known: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    mine = own()
    known[release()] = {
        "criteria": dict(mine.criteria),
        "claims": dict(mine.claims),
        "fabrics": dict(mine.fabrics),
        "profiles": dict(mine.profiles),
        "texts": {**known.get(release(), {}).get("texts", {}), **mine.texts},
    }
    return json.dumps(known, indent=1, sort_keys=True) + "\n"
