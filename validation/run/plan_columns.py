"""A plan as columns: what its measurements have in common is read once, not with each of them.

The measurements of a fleet are few kinds of one thing: beside its name, hardly anything of one is its own. A plan that
was read before is put together from the values that there are of each field, and from which of them each measurement
has.
"""

from __future__ import annotations

from array import array
from typing import Any

from pydantic import TypeAdapter

from validation.model import Measurement, Plan
from validation.model.base import built
from validation.run.frames import Frame

_OWN = "id"
_SHARED = tuple(name for name in Measurement.model_fields if name != _OWN)


def packed(plan: Plan) -> Frame:
    """A plan as a frame."""
    measurements = plan.measurements
    columns, values = {}, {}
    for name in _SHARED:
        found: dict[str, int] = {}  # by its text: 1, 1.0 and True are equal
        mine: list[Any] = []
        which = array("I")
        for m in measurements:
            value = getattr(m, name)
            at = found.setdefault(repr(value), len(found))
            if at == len(mine):
                mine.append(value)
            which.append(at)
        columns[name], values[name] = which, _adapter(name).dump_json(mine).decode()
    rest = plan.model_copy(update={"measurements": ()}).model_dump_json()
    return Frame({"rest": rest, "ids": [m.id for m in measurements], "values": values}, columns)


def unpacked(frame: Frame) -> Plan:
    """The plan that `packed` was given. ValueError, KeyError, TypeError, IndexError where the frame is none of it."""
    parts = []
    for name in _SHARED:
        values = _adapter(name).validate_json(frame.said["values"][name])
        parts.append(list(map(values.__getitem__, frame.columns[name])))
    names = (_OWN, *_SHARED)
    make = built(Measurement)
    rows = zip(frame.said["ids"], *parts, strict=True)
    measurements = tuple(make(dict(zip(names, row, strict=True))) for row in rows)
    return Plan.model_validate_json(frame.said["rest"]).model_copy(update={"measurements": measurements})


def _adapter(name: str) -> TypeAdapter[Any]:
    form: Any = Measurement.model_fields[name].annotation
    return TypeAdapter(list[form])
