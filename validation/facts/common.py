"""What the forms of facts share."""

from __future__ import annotations

from typing import Annotated, TypeVar

from pydantic import Field

from validation.model_base import Model

Count = Annotated[int, Field(ge=0, le=2**64)]
"""A counter or size: none is larger."""
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Name = Annotated[str, Field(min_length=1)]
M = TypeVar("M", bound=Model)


def once(things: tuple[M, ...], *keys: str) -> tuple[M, ...]:
    """The things; ValueError where two have the same keys."""
    seen = set()
    for thing in things:
        name = tuple(getattr(thing, key) for key in keys)
        if name in seen:
            raise ValueError(f"duplicate {' '.join(map(str, filter(None, name)))}")
        seen.add(name)
    return things
