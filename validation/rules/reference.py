"""What the founding documents of the reference architecture claim, as data: `reference/*.yml`, one file for a document.

Each claim stands once, under an id such as `whitepaper.inter-k`, and whatever needs a published figure looks it up:

- a criterion's bound (`criteria/*.yml`): `bound: {kind: minimum, claim: whitepaper.inter-k, words: ">= {value}"}`. The
  claim's `limit` becomes the bound's value. In `words` of any bound `{claim:ID}` is what the document prints;
- a fabric profile (`fabrics/*.yml`): `claims: {remote_ratio: vmware.roce}` in place of a figure and its source. What a
  run keeps of the profile has the figure below it;
- Python: `packaged().claim("whitepaper.hours-k").value`, or `packaged().all(machine="c4140-k", model="resnet50")`.

A run keeps a copy of these files (`reference/`), so that it is judged and reported by the claims that it began with.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from types import MappingProxyType
from typing import Literal

from pydantic import Field, model_validator

from validation.model import Bom
from validation.model.base import Model
from validation.model.load import ConfigError, Source, line_of, load_yaml, read_source

_ID = r"^[a-z0-9]+\.[a-z0-9][a-z0-9-]*$"
_DIGITS = 4
"""Decimals of a figure that is computed of others: more than any document prints."""


class Document(Model):
    """Where claims come from. `key` begins the ids of its claims, `cite` is how tables name it.

    `founding` False: public figures of others, which are no part of the reference architecture.
    """

    key: str = Field(pattern=r"^[a-z0-9]+$")
    title: str = Field(min_length=1)
    cite: str = Field(min_length=1)
    founding: bool


class Machine(Model):
    """A system that a document measured. `match`: what the bill of materials of a node must say for it to be one of
    these, by key: a number that is equal, or a text that is part of it.
    """

    key: str = Field(pattern=r"^[a-z0-9][a-z0-9-]*$")
    title: str = Field(min_length=1)
    short: str = Field(min_length=1)
    match: dict[str, int | str] = Field(min_length=1)

    @model_validator(mode="after")
    def _materials(self) -> Machine:
        strange = [key for key in self.match if key not in Bom.model_fields]
        if strange:
            raise ValueError(f"match: {strange[0]} is no part of a bom; there are: {', '.join(Bom.model_fields)}")
        return self


def declared_as(match: Mapping[str, int | str], bom: Bom) -> bool:
    """True where a bill of materials says all of `match`: a number that is equal, or a text that is part of it."""
    declared = bom.model_dump()
    return all(
        declared.get(key) == wanted if isinstance(wanted, int) else wanted in str(declared.get(key) or "")
        for key, wanted in match.items()
    )


class Ratio(Model):
    """A figure that follows from two others: `of` / (`times` x `over`)."""

    of: str = Field(pattern=_ID)
    over: str = Field(pattern=_ID)
    times: int = Field(default=1, ge=1)


class Published(Model):
    """A published figure in `unit`; a share is a `ratio` of one.

    Either `value`, or `ratio` where it follows from other claims' figures. `to` is the other end of a range. `printed`
    is what the document prints, `rounding` half of the last place that it prints, in `unit`. `base` is what a ratio
    divides by; `printed_base` how the document states it, where it differs from ours. `sense`: which side a site has to
    reach; `reported` none.
    """

    unit: str = Field(min_length=1)
    sense: Literal["at-least", "at-most", "reported"]
    printed: str = Field(min_length=1)
    value: float | None = None
    ratio: Ratio | None = None
    to: float | None = None
    rounding: float = Field(default=0, ge=0)
    base: str = ""
    printed_base: str = ""

    @model_validator(mode="after")
    def _one_figure(self) -> Published:
        if (self.value is None) == (self.ratio is None):
            raise ValueError("either value or ratio, and not both")
        if self.ratio is not None and not self.base:
            raise ValueError("a ratio needs its base: what it divides by, in words")
        return self


class ConfirmedBy(Model):
    """The criterion that confirms a claim, and which of its judgements: those whose measurement (the last, where there
    are several) had the parameters `where`. `statistic` is what of it is compared, in words.

    `by`, what decides: the `value` against the published figure, and where the document has none the verdict; the
    `verdict`, where the criterion asks for what the figure follows from; that it was `done`, where the claim says only
    that something works, and the criterion reports how well. `over`: the claim whose published figure the value is
    divided by. `against`: the value is divided by that of the same subject whose measurement had these parameters.
    `gpus`: the servers of the measurement have as many GPUs at least, where the claim says how many took part. `every`:
    the claim is of each of these values of a parameter, and confirmed once each was measured; others do not belong.
    """

    criterion: str = Field(pattern=r"^[a-z]{2}\.[a-z0-9]+$")
    statistic: str = Field(min_length=1)
    where: dict[str, str | int] = Field(default={})
    by: Literal["value", "verdict", "done"] = "value"
    over: str | None = Field(default=None, pattern=_ID)
    against: dict[str, str | int] = Field(default={})
    gpus: int | None = Field(default=None, ge=1)
    every: dict[str, tuple[str | int, ...]] = Field(default={})

    @model_validator(mode="after")
    def _one_quotient(self) -> ConfirmedBy:
        if self.over is not None and self.against:
            raise ValueError("either over (a published figure) or against (another measurement), and not both")
        if self.by != "value" and self.divides:
            raise ValueError(f"by: {self.by} compares no value, so it is divided by nothing; remove over and against")
        return self

    @property
    def divides(self) -> bool:
        """True where a quotient is compared."""
        return self.over is not None or bool(self.against)


WhyKind = Literal["data-sheet", "others", "past", "several-sites", "not-offered", "own-command"]
"""Why no criterion confirms a claim, of which kind. data-sheet: a maker's figure, of which a criterion asks a share;
others: what other sites or programs reached; past: what was not possible then; several-sites: compares machines, of
which a run has one kind; not-offered: docs/explanation/scope.md says so; own-command: another command proves it.
"""


class Claim(Model):
    """One claim. `section` is where in the document it stands, `statement` says in our words what was measured.

    `machines` and `fabrics` are those that it was made on; none = it is made of every site. `conditions` are the rest
    of what was set, and `inferred` names those of them (or `value`, `fabrics`) that the document does not say. Without
    `published` the document has no figure, or it is lost: the criterion's own bound decides. `why_not`: why none
    confirms it, of the kind `why_kind`, and `measured_by` the criteria that measure what it is about all the same; both
    None in runs of before there were any.
    """

    id: str = Field(pattern=_ID)
    section: str = Field(min_length=1)
    statement: str = Field(min_length=1)
    machines: tuple[str, ...] = ()
    fabrics: tuple[str, ...] = ()
    conditions: dict[str, str | int] = Field(default={})
    inferred: tuple[str, ...] = ()
    published: Published | None = None
    confirmed_by: ConfirmedBy | None = None
    measured_by: tuple[str, ...] | None = None
    why_not: str | None = Field(default=None, min_length=1)
    why_kind: WhyKind | None = None

    @property
    def unconfirmed(self) -> str:
        """Why no criterion confirms it, and which measure what it is about; "" where one confirms it."""
        if self.why_not is None or self.measured_by is None:
            return self.why_not or ""
        by = f"measured by {', '.join(self.measured_by)}" if self.measured_by else "no criterion measures it"
        return f"{by}: {self.why_not}"

    @model_validator(mode="after")
    def _complete(self) -> Claim:
        if (self.confirmed_by is None) != (self.why_not is not None):
            raise ValueError("either confirmed_by (a criterion) or why_not (why none confirms it), and not both")
        if self.published is not None and self.published.sense == "reported" and self.confirmed_by is not None:
            raise ValueError("sense: reported has no side to reach, so no criterion confirms it; say why_not")
        for name in ("measured_by", "why_kind"):
            if getattr(self, name) is not None and self.confirmed_by is not None:
                raise ValueError(f"{name} is of a claim that no criterion confirms; keep confirmed_by alone")
        if self.published is None and self.confirmed_by is not None and self.confirmed_by.divides:
            raise ValueError("a value that is divided needs a published figure to reach")
        strange = [name for name in self.inferred if name not in self.conditions and name not in ("value", "fabrics")]
        if strange:
            raise ValueError(f"inferred: {', '.join(strange)} is neither one of the conditions nor value or fabrics")
        return self

    @property
    def by_verdict(self) -> bool:
        """True where a criterion's verdict decides, and not a figure or that something was done."""
        by = self.confirmed_by.by if self.confirmed_by is not None else "value"
        return by == "verdict" or (by == "value" and self.published is None)

    @property
    def value(self) -> float:
        """The published figure in its unit; ConfigError where the document has none."""
        if self.published is None or self.published.value is None:
            raise ConfigError(f"{self.id}: the document has no figure; nothing can be derived from it")
        return self.published.value

    @property
    def limit(self) -> float:
        """The figure that confirms the claim: `value`, less favourable by its rounding. ConfigError as `value`."""
        published, value = self.published, self.value
        assert published is not None
        worse = {"at-least": -1, "at-most": 1, "reported": 0}[published.sense]
        return round(value + worse * published.rounding, _DIGITS)

    @property
    def printed(self) -> str:
        """What the document prints; the statement where it has no figure."""
        return self.published.printed if self.published is not None else self.statement


class _File(Model):
    document: Document
    machines: tuple[Machine, ...] = ()
    claims: tuple[Claim, ...] = Field(min_length=1)


@dataclass(frozen=True)
class _Place:
    source: Source
    position: int

    def fault(self, words: str, *keys: int | str) -> ConfigError:
        path = ("claims", self.position, *keys)
        field = ".".join(str(part) for part in path)
        return ConfigError(f"{self.source.path}:{line_of(self.source, *path)}: {field}: {words}")


@dataclass(frozen=True)
class Reference:
    """All claims by id, in the order of their documents, with the texts that they were read from."""

    sources: tuple[Source, ...]
    documents: Mapping[str, Document]
    machines: Mapping[str, Machine]
    claims: Mapping[str, Claim]
    _places: Mapping[str, _Place]

    def claim(self, id_: str) -> Claim:
        """The claim with that id; ConfigError names the nearest known one."""
        if id_ not in self.claims:
            near = difflib.get_close_matches(id_, list(self.claims), n=1)
            hint = f"did you mean {near[0]}?" if near else "`toolkit claims` lists them"
            raise ConfigError(f"unknown claim {id_!r}; {hint}")
        return self.claims[id_]

    def document(self, claim: Claim) -> Document:
        """The document that makes a claim."""
        return self.documents[claim.id.partition(".")[0]]

    def source(self, claim: Claim) -> str:
        """Document and section, as a source is named."""
        return f"{self.document(claim).cite}, {claim.section}"

    def all(self, machine: str | None = None, **conditions: str | int) -> tuple[Claim, ...]:
        """The claims that were made on a machine (None: any) under these conditions, in their order."""
        return tuple(
            claim
            for claim in self.claims.values()
            if (machine is None or machine in claim.machines)
            and all(claim.conditions.get(key) == value for key, value in conditions.items())
        )

    def check(self, criteria: Collection[str], fabrics: Collection[str]) -> None:
        """ConfigError with file and line where a claim names a criterion or a fabric that does not exist."""
        for claim in self.claims.values():
            for position, fabric in enumerate(claim.fabrics):
                if fabric not in fabrics:
                    near = difflib.get_close_matches(fabric, list(fabrics), n=1)
                    hint = f"did you mean {near[0]}?" if near else f"there are: {', '.join(fabrics)}"
                    raise self._places[claim.id].fault(f"unknown fabric {fabric!r}; {hint}", "fabrics", position)
            by = claim.confirmed_by
            named: list[tuple[str, tuple[int | str, ...]]] = []
            if by is not None:
                named.append((by.criterion, ("confirmed_by", "criterion")))
            named += [(id_, ("measured_by", position)) for position, id_ in enumerate(claim.measured_by or ())]
            for id_, keys in named:
                if id_ not in criteria:
                    near = difflib.get_close_matches(id_, list(criteria), n=1)
                    hint = f"did you mean {near[0]}?" if near else "correct it, or say why_not instead"
                    raise self._places[claim.id].fault(f"unknown criterion {id_!r}; {hint}", *keys)


def _folder() -> Path:
    return Path(str(resources.files("validation.rules") / "reference"))


def reference_files(folder: Path) -> list[Path]:
    """The files of claims of a folder, in the order of their names. Hidden files are none: no manifest has them."""
    return sorted(path for path in folder.glob("*.yml") if not path.name.startswith("."))


def read_reference(folder: Path | None = None) -> tuple[Source, ...]:
    """The files of claims of a folder (None = the packaged ones), in the order of their names."""
    return tuple(read_source(path) for path in reference_files(_folder() if folder is None else folder))


@cache
def packaged() -> Reference:
    """The claims of this package, read once."""
    return load_reference()


def load_reference(source: Path | Sequence[Source] | None = None) -> Reference:
    """All claims of a folder (None = the packaged ones), or of files that were read.

    ConfigError with file and line: a malformed file, a document, machine or claim twice, a claim without a document
    (its id begins with another key), a machine, fabric or figure that does not exist.
    """
    files = read_reference(source) if source is None or isinstance(source, Path) else tuple(source)
    documents: dict[str, Document] = {}
    machines: dict[str, Machine] = {}
    claims: dict[str, Claim] = {}
    places: dict[str, _Place] = {}
    for file in files:
        read = load_yaml(file, _File)
        key = read.document.key
        if key in documents:
            raise _at(file, f"document {key} is in another file too; remove one", "document", "key")
        documents[key] = read.document
        own: set[str] = set()
        for position, machine in enumerate(read.machines):
            if machine.key in machines:
                raise _at(file, f"duplicate machine: {machine.key}; keep one", "machines", position, "key")
            machines[machine.key] = machine
            own.add(machine.key)
        for position, claim in enumerate(read.claims):
            place = _Place(file, position)
            if claim.id in claims:
                other = places[claim.id]
                line = line_of(other.source, "claims", other.position)
                raise place.fault(f"{claim.id} is in {other.source.path.name}:{line} too; keep one", "id")
            if claim.id.partition(".")[0] != key:
                raise place.fault(f"{claim.id} is in the file of document {key}: its id must begin with {key}.", "id")
            strange = [name for name in claim.machines if name not in own]
            if strange:
                raise place.fault(f"unknown machine {strange[0]!r}; there are: {', '.join(sorted(own))}", "machines")
            claims[claim.id], places[claim.id] = claim, place
    if not claims:
        where = source if isinstance(source, Path) else _folder()
        raise ConfigError(f"{where}: no files of claims (*.yml) here; restore them")
    computed = {id_: _computed(claim, claims, places[id_]) for id_, claim in claims.items()}
    for id_, claim in computed.items():
        over = claim.confirmed_by.over if claim.confirmed_by is not None else None
        figure = computed[over].published if over in computed else None
        if over is not None and (figure is None or not figure.value):
            raise places[id_].fault(f"{over} is no claim with a value; name one", "confirmed_by", "over")
    return Reference(
        files,
        MappingProxyType(documents),
        MappingProxyType(machines),
        MappingProxyType(computed),
        MappingProxyType(places),
    )


def _at(source: Source, words: str, *keys: int | str) -> ConfigError:
    return ConfigError(f"{source.path}:{line_of(source, *keys)}: {'.'.join(map(str, keys))}: {words}")


def _computed(claim: Claim, claims: Mapping[str, Claim], place: _Place) -> Claim:
    """The claim with the value of its ratio."""
    published = claim.published
    ratio = published.ratio if published is not None else None
    if published is None or ratio is None:
        return claim
    figures = []
    for key, id_ in (("of", ratio.of), ("over", ratio.over)):
        other = claims[id_].published if id_ in claims else None
        if other is None or other.value is None:
            raise place.fault(f"{id_} is no claim with a value of its own; name one", "published", "ratio", key)
        figures.append(other.value)
    value = round(figures[0] / (ratio.times * figures[1]), _DIGITS)
    # the ratio stays, so that a reader sees what the value follows from; model_copy does not ask for one of the two
    return claim.model_copy(update={"published": published.model_copy(update={"value": value})})
