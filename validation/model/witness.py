"""A witnessed test: what a person does to a site while somebody watches, as data. Part of a topology."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from validation.model.base import Model

Sense = Literal["bmc", "link", "node", "slurm"]
"""By what a fault is seen: a BMC's sensors, a fabric port's link, the node's own answer by ssh, Slurm's state of it."""
MOST_TESTS = 100
"""Of a site, at most. Project default: nobody stands at the racks for more."""


def _said(text: str) -> str:
    words = " ".join(text.split())
    if not any(letter.isalnum() for letter in words):
        raise ValueError("is blank; write it out")
    if len(words) > 400:
        raise ValueError(f"has {len(words)} characters; 400 are the most")
    if not words.isprintable():
        raise ValueError("has a character that cannot be seen; remove it")
    return words


_BRACES = re.compile(r"\{[^}]*\}?|\}")


def _filled(text: str) -> str:
    odd = next((found for found in _BRACES.findall(text) if found != "{node}"), None)
    if odd is not None:
        raise ValueError(f"has {odd!r}; {{node}} is all that is filled in")
    return text


Words = Annotated[str, AfterValidator(_said)]
Done = Annotated[str, AfterValidator(_said), AfterValidator(_filled)]
Seconds = Annotated[float, Field(ge=1, le=86400, allow_inf_nan=False)]


class WitnessTest(Model):
    """One test. `do` is what the person does, `undo` takes it back; `{node}` in them is the node's name.

    `node`: None is the first GPU server. `of`: the node, or the site as a whole, as a leaf switch is. `loses`: what may
    be away meanwhile: nothing, fabric links (of the node, or of the site), or the node. `seen_by`: what has to show it.
    """

    id: Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]{0,39}$")]
    title: Done
    of: Literal["node", "site"] = "node"
    node: str | None = None
    do: Done
    undo: Done
    loses: Literal["nothing", "links", "node"]
    seen_by: Annotated[tuple[Sense, ...], Field(min_length=1, max_length=4)]
    seen_within_s: Seconds = 60.0
    back_within_s: Seconds = 3600.0
