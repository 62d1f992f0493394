"""Answers of the commands that look something up."""

from __future__ import annotations

from pydantic import Field

from toolkit.answer_forms.base import Form
from validation.model import Bound
from validation.rules.criterion import Criterion
from validation.rules.fabric import Fabric
from validation.rules.profile import Profile
from validation.rules.reference import Claim, Document, Machine


class Fabrics(Form):
    """`toolkit fabrics`: all profiles of networks."""

    fabrics: list[Fabric]


class OneFabric(Form):
    """`toolkit fabrics show NAME`: a profile, and every bound that follows from it."""

    fabric: Fabric
    bounds: dict[str, Bound]


class ListedProfile(Profile):
    """An acceptance profile."""

    without_measurement: list[str] = Field(description="ids of owed criteria that this release cannot measure")


class Profiles(Form):
    """`toolkit profiles`: all acceptance profiles."""

    profiles: list[ListedProfile]


class OneProfile(Form):
    """`toolkit profiles show NAME`."""

    profile: ListedProfile


class Criteria(Form):
    """`toolkit criteria`: what must hold."""

    criteria: list[Criterion]


class OneCriterion(Form):
    """`toolkit criteria show ID`."""

    criterion: Criterion


class ListedClaim(Claim):
    """A claim of the reference architecture, with the document that it stands in and the machines it is about."""

    document: Document  # as a whole
    machines: list[Machine]  # type: ignore[assignment]
    limit_: float | None = Field(alias="limit", description="the figure that a measurement is held against")
    used_by: list[str] = Field(description="criteria and fabric profiles that point to it, in words")


class Claims(Form):
    """`toolkit claims`: what the founding documents claim."""

    claims: list[ListedClaim]


class OneClaim(Form):
    """`toolkit claims show ID`."""

    claim: ListedClaim
