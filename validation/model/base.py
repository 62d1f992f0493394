"""What the documents of a run have in common: their base, the words of verdicts, what a value can be."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache, lru_cache
from typing import Any, Generic, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

Scalar = str | int | float | bool | None
Param = Scalar | tuple[str, ...]

Origin = Literal["packaged", "site"]  # of a rule: from this package by its name, or from a file of the site
VerdictName = Literal["pass", "fail", "waived", "not-measured", "not-applicable"]
SignOff = Literal["ACCEPTED", "REJECTED", "INCOMPLETE", "REHEARSAL", "INSPECTION", "CONSTRUCTED EXAMPLE"]
NAMESPACES: dict[SignOff, str] = {
    "ACCEPTED": "elastic-ai-acceptance",
    "REJECTED": "elastic-ai-rejection",
    "INCOMPLETE": "elastic-ai-incomplete",
    "REHEARSAL": "elastic-ai-rehearsal",
    "INSPECTION": "elastic-ai-inspection",
    "CONSTRUCTED EXAMPLE": "elastic-ai-constructed-example",
}
"""Sign-off -> the namespace of a signature under it, so that none of a rehearsal passes for one of an acceptance."""
ResultStatus = Literal["ok", "failed", "timeout", "unparseable", "unreachable"]
ReasonCode = Literal[
    "within-bounds",  # pass
    "remarked",  # pass: within its bound, and worth a look
    "below-floor",  # fail: worse than the bound
    "above-maximum",  # fail: a lower-is-better metric over its bound
    "not-equal",  # fail: an exact criterion that does not match
    "not-working",  # fail: it does not do what it is for
    "above-ceiling",  # not-measured: better than physics allows; measurement rejected
    "too-noisy",  # not-measured: the interval includes the bound
    "missing-result",  # not-measured: planned, but no result exists
    "tool-failed",  # not-measured: the tool crashed, timed out, could not be parsed or the node was unreachable
    "missing-metric",  # not-measured: a result exists but lacks the metric
    "not-the-fabric",  # not-measured: between virtual machines of one host, or nobody says that it was not
    "no-bound",  # not-measured: no bound is known for this fabric or platform
    "no-probe",  # not-measured: this release has no measurement for the criterion yet
    "not-selected",  # not-measured: its suite was not selected for this run
    "virtual",  # not-measured: measured, but virtual hardware cannot prove it
    "not-applicable",  # not-applicable
    "reported",  # not-applicable: measured and shown; the criterion has no bound by intention
    "waived",
]


class Model(BaseModel):
    """Base of all documents: frozen, unknown keys refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    def written(self) -> Iterator[str]:
        """The text of its file, part by part: indented JSON."""
        yield self.model_dump_json(indent=2)
        yield "\n"


def lighten(things: Iterable[Model]) -> None:
    """Have models that were given all their fields share one set of their names.

    pydantic keeps a set with each, of up to 728 bytes: of a fleet's plan and results more than what they say.
    """
    for thing in things:
        every, given = all_of(type(thing)), thing.__pydantic_fields_set__
        if given is not every and len(given) == len(every):
            object.__setattr__(thing, "__pydantic_fields_set__", every)


@cache
def all_of(form: type[Model]) -> set[str]:
    """The names of all fields of a form, in one set for all that have them."""
    return set(form.model_fields)


M = TypeVar("M", bound=Model)


def built(form: type[M]) -> Callable[[dict[str, Any]], M]:
    """What makes models of a form out of all their fields, as they were checked before: nothing is looked at again."""
    new, put = form.__new__, object.__setattr__
    every = all_of(form)

    def make(fields: dict[str, Any]) -> M:
        made = new(form)
        put(made, "__dict__", fields)
        put(made, "__pydantic_fields_set__", every)
        put(made, "__pydantic_extra__", None)
        put(made, "__pydantic_private__", None)
        return made

    return make


class Same(Generic[M]):
    """A tuple as a key by which it is, not by what is in it: of a fleet that would take longer than any search."""

    __slots__ = ("things",)

    def __init__(self, things: tuple[M, ...]) -> None:
        """The key of a tuple."""
        self.things = things

    def __hash__(self) -> int:
        """By where the tuple stands in memory."""
        return id(self.things)

    def __eq__(self, other: object) -> bool:
        """The very same tuple."""
        return isinstance(other, Same) and self.things is other.things


@lru_cache(maxsize=8)
def _places(same: Same[Any], key: str) -> Mapping[str, Any]:
    return {getattr(thing, key): thing for thing in reversed(same.things)}


def by_name(things: tuple[M, ...], key: str) -> Mapping[str, M]:
    """The things by their field `key`, of equal ones the first; made once for a tuple of a document."""
    return _places(Same(things), key)


class Endpoint(Model):
    """One end of a transport measurement: a fabric port of a node. In a subject also a whole node, with `port` ""."""

    node: str
    port: str = ""

    def __str__(self) -> str:
        """`node/port`, as verdicts name it."""
        return f"{self.node}/{self.port}" if self.port else self.node

    def __lt__(self, other: Endpoint) -> bool:
        """In the order of their names."""
        return str(self) < str(other)


_OURS = {
    "tuple_type": "a list is expected",
    "list_type": "a list is expected",
    "model_type": "a mapping of keys is expected",
    "dict_type": "a mapping of keys is expected",
    "date_from_datetime_parsing": "a day is expected, such as 2026-12-31",
    "date_parsing": "a day is expected, such as 2026-12-31",
    "date_type": "a day is expected, such as 2026-12-31",
    "bool_type": "true or false is expected",
}
"""Where pydantic's own words name types of Python: ours."""


def explain(error: ValidationError) -> tuple[tuple[int | str, ...], str]:
    """Location and words of the fault to correct first, and how many more there are.

    A misspelt key is both unknown and missing: the unknown one stands in the file, so it is the one that is told.
    """
    faults = error.errors(include_url=False)
    first = next((f for f in faults if f["type"] == "extra_forbidden"), faults[0])
    location = first["loc"]
    if first["type"] == "extra_forbidden":
        missing = [str(f["loc"][-1]) for f in faults if f["type"] == "missing" and f["loc"][:-1] == location[:-1]]
        near = difflib.get_close_matches(str(location[-1]), missing, n=1)
        words = f"unknown key; did you mean {near[0]}?" if near else "unknown key; remove it or correct its spelling"
    elif first["type"] == "missing":
        words = "is missing; add it"
    else:
        message = _OURS.get(first["type"]) or first["msg"].removeprefix("Value error, ")
        words = f"{message[:1].lower()}{message[1:]}"
    more = len(faults) - 1
    return location, words + (f" (and {more} more)" if more else "")
