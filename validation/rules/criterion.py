"""Criteria: what must hold, as data (`criteria/*.yml`).

A criterion has a statement, a bound and a source. Criteria without a measurement in this release carry `no_probe` and
come out as not-measured in every report, so that nobody takes their absence for a pass.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field, ValidationInfo, model_validator

from validation.base.errors import ConfigError
from validation.model import Model
from validation.rules.fabric import FIGURES, Fabric
from validation.rules.floors import Floors
from validation.rules.platform import QUANTITIES
from validation.rules.reference import Reference
from validation.rules.since import Since

Suite = Literal[
    "preflight", "as-built", "transport", "compute", "burn-in", "training", "remoting", "operations", "storage",
    "recovery", "witness",
]  # fmt: skip


_FIGURES = (*FIGURES, "mtu")
_CLAIM = re.compile(r"\{claim:([^{}]*)\}")


def _filled(words: str, numbers: Mapping[str, float | None]) -> str:
    """`words` with the numbers in their places; ValueError where they name one that does not exist."""
    try:
        return words.format(**{k: "unknown" if number is None else f"{number:g}" for k, number in numbers.items()})
    except (KeyError, IndexError) as fault:
        raise ValueError(f"words: {fault} is not a number of this bound; there are: {', '.join(numbers)}") from None


def _looked_up(data: dict[str, Any], reference: Reference) -> dict[str, Any]:
    """A bound with what the claims say that it points to; ValueError where one does not exist or has no figure."""
    try:
        if isinstance(data.get("claim"), str):
            if data.get("value") is not None:
                raise ValueError("the value is the claim's; remove value, or claim")
            data = {**data, "value": reference.claim(data["claim"]).limit}
        if data.get("of_machines"):
            if data.get("value") is not None:
                raise ValueError("the values are those of the claims in of_machines; remove value and claim")
            found = _of_machines(data["of_machines"], reference)
            data = {**data, "value": min(each.value for each in found), "machines": found}
        if isinstance(data.get("words"), str):
            data = {**data, "words": _CLAIM.sub(lambda m: reference.claim(m[1]).printed, data["words"])}
    except ConfigError as fault:
        raise ValueError(str(fault)) from None
    return data


class OfMachine(Model):
    """The figure of a claim for the machine that it was made on, and what a bill of materials says of that one."""

    claim: str
    machine: str
    match: dict[str, int | str]
    value: float
    printed: str


def _of_machines(ids: Any, reference: Reference) -> tuple[OfMachine, ...]:
    claims = [reference.claim(str(id_)) for id_ in ids]
    silent = [claim.id for claim in claims if not claim.machines]
    if silent:
        raise ValueError(f"of_machines: {silent[0]} is of no machine in particular; give value or claim")
    return tuple(
        OfMachine(
            claim=claim.id,
            machine=reference.machines[key].short,
            match=reference.machines[key].match,
            value=claim.limit,
            printed=claim.printed,
        )
        for claim in claims
        for key in claim.machines
    )


class Limit(Model):
    """The bound of a criterion.

    `words` is how the report states it; its numbers are those of the bound: `{value}`, `{percent}` (100 x value), or a
    figure of the fabric profile by its key; `{claim:ID}` is what a document prints (reference.py). `claim` in place of
    `value`: that claim's figure, less favourable by its rounding. `of_machines`: claims of machines, of which the one
    holds that the inventory declares, and of other machines the least (`machines` is made of them).
    `kind`: `fabric` = derived from the fabric profile's key `fabric_key`, `minimum`/`maximum` = `value` in the
    criterion's unit, `exact` = equality with what is declared, `report` = no bound, the value is reported, `platform` =
    between `value` (a share) and the whole of what the node's declared platform can do of `platform_key`
    (platform.py), `floors` = no version below those of `floors` (floors.py), `baseline` = what
    each subject reached in earlier runs, `since` (since.py). `provisional` = our judgement, to be
    calibrated, not a published figure.
    """

    kind: Literal["fabric", "platform", "minimum", "maximum", "exact", "report", "floors", "baseline"]
    words: str = Field(min_length=1)
    value: float | None = None
    claim: str | None = None
    of_machines: tuple[str, ...] = ()
    machines: tuple[OfMachine, ...] = ()
    fabric_key: str | None = None
    platform_key: str | None = None
    floors: Floors | None = None
    since: Since | None = None
    provisional: bool = False

    @model_validator(mode="before")
    @classmethod
    def _with_value(cls, data: Any, info: ValidationInfo) -> Any:
        if isinstance(data, dict) and isinstance(info.context, Reference):
            data = _looked_up(data, info.context)
        if (
            isinstance(data, dict)
            and isinstance(data.get("value"), (int, float))
            and isinstance(data.get("words"), str)
        ):
            value = data["value"]
            return {**data, "words": _filled(data["words"], {"value": value, "percent": 100 * value})}
        return data

    def said(self, fabric: Fabric) -> str:
        """`words` with the figures of this fabric."""
        if self.fabric_key is None:
            return self.words
        figures = fabric.figures()
        if self.fabric_key not in figures:
            return f"no figure is known for {fabric.name}"
        return _filled(self.words, {key: figures.get(key) for key in _FIGURES}) + fabric.beside(self.fabric_key)

    @model_validator(mode="after")
    def _complete(self) -> Limit:
        if self.kind == "fabric":
            if self.fabric_key not in _FIGURES:
                raise ValueError(f"fabric_key {self.fabric_key!r} is no key of a fabric profile; see a packaged one")
            _filled(self.words, dict.fromkeys(_FIGURES, 0.0))
        elif self.fabric_key is not None:
            raise ValueError(f"fabric_key has no meaning with kind {self.kind}; remove it")
        if (self.kind == "platform") != (self.platform_key in QUANTITIES):
            raise ValueError(f"kind platform, and no other, has a platform_key: one of {', '.join(QUANTITIES)}")
        if (self.kind == "floors") != (self.floors is not None):
            raise ValueError("kind floors, and no other, has floors")
        if (self.kind == "baseline") != (self.since is not None):
            raise ValueError("kind baseline, and no other, has since: what was reached before")
        if self.kind == "platform" and not 0 < (self.value or 0) < 1:
            raise ValueError("value is the share of what the platform can do: between 0 and 1")
        return self


class Rehearsal(Model):
    """What becomes of the criterion on virtual nodes. `judge`: `same`, `lab-link` (bound from the lab's declared
    link), `limit` (`value` takes the bound's place), `not-judged` (the value is reported, nothing is judged).
    """

    judge: Literal["same", "lab-link", "limit", "not-judged"] = "same"
    value: float | None = None
    why: str = ""

    @model_validator(mode="after")
    def _complete(self) -> Rehearsal:
        if self.judge == "limit" and self.value is None:
            raise ValueError("judge: limit needs a value")
        if self.judge in ("limit", "not-judged") and not self.why:
            raise ValueError(f"judge: {self.judge} needs a why")
        return self


class Applies(Model):
    """Fabrics on which the criterion has a meaning; elsewhere it is not-applicable, with `why`."""

    link_layers: tuple[Literal["Ethernet", "InfiniBand"], ...] = ("Ethernet", "InfiniBand")
    transports: tuple[Literal["tcp", "roce", "ib", "pvrdma"], ...] = ("tcp", "roce", "ib", "pvrdma")
    why: str = Field(min_length=1)

    def to(self, fabric: Fabric) -> bool:
        """True where the criterion applies to this fabric."""
        return fabric.link_layer in self.link_layers and fabric.transport in self.transports


def family_of(id_: str) -> str:
    """`tr` of `tr.tcpbw`."""
    return id_.partition(".")[0]


class Criterion(Model):
    """One statement that must hold.

    `method` is one of validation/judging/methods.py, which says what each does.
    `min_samples` is the least number that a `value` is judged on; `samples_asked` names the parameter of a measurement
    that asks for a number of samples, of which none may be missing then.
    `kind` is the measurement that serves the criterion, None together with `no_probe`.
    """

    id: str = Field(pattern=r"^[a-z]{2}\.[a-z0-9]+$")
    statement: str = Field(min_length=1)
    suite: Suite
    scope: Literal["pair", "port", "node", "group", "cluster"]
    metric: str | None = None
    unit: str | None = None
    direction: Literal["higher", "lower", "equal", "report"]
    method: str = "value"
    kind: str | None = None
    min_samples: int = Field(default=1, ge=1)
    samples_asked: str | None = None
    bound: Limit
    source: str = Field(min_length=1)
    required: bool
    applies: Applies | None = None
    rehearsal: Rehearsal = Rehearsal()
    remedy: str = Field(default="", description="what an operator does when it fails")
    no_probe: str | None = None

    @property
    def heading(self) -> str:
        """What its statement is about: a statement is written as `HEADING: what must hold`, or is all heading."""
        return self.statement.partition(":")[0]

    @model_validator(mode="after")
    def _complete(self) -> Criterion:
        if (self.method == "baseline") != (self.bound.kind == "baseline"):
            raise ValueError("method baseline and a bound of kind baseline go together")
        if self.bound.since is not None and (self.required or self.direction not in ("higher", "lower")):
            raise ValueError("a baseline is never required, and of figures of which more, or less, is better")
        if (self.kind is None) != (self.no_probe is not None):
            raise ValueError("either kind (what measures it) or no_probe (why nothing does yet), and not both")
        if self.kind is not None and self.bound.kind in ("minimum", "maximum") and self.bound.value is None:
            raise ValueError("bound.value is missing; a measured criterion needs its number")
        if self.kind is not None and self.direction == "report":
            return self
        if (
            self.kind is not None
            and self.method in ("value", "spread", "scaling", "count")
            and not (self.metric and self.unit)
        ):
            raise ValueError("metric and unit are needed where a value is judged")
        return self
