"""Facts of tenants that train on parts of one GPU at the same time (kind remoting-shares)."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, field_validator

from validation.measures.remoting.facts import Remoting
from validation.model.base import Model
from validation.model.facts import Count, Name, Positive, once


class TenantRate(Model):
    """A tenant's images/s while all of its turn trained."""

    part: Name
    images_per_s: Positive


class ShareTurn(Model):
    """One turn: the whole GPU alone, then its parts together, or the other way round. together_s: how long all tenants
    trained at the same time.
    """

    turn: Count
    whole_images_per_s: Positive
    together_s: Positive
    tenants: tuple[TenantRate, ...] = Field(min_length=1)

    @property
    def together_images_per_s(self) -> float:
        """Of all tenants."""
        return sum(tenant.images_per_s for tenant in self.tenants)


class SharesFacts(Remoting):
    """Parts of a GPU, and what their tenants did together. differing: those that computed something else than the first
    who had the whole GPU.
    """

    type: Literal["shares"] = "shares"
    server: str
    device: Name
    parts: tuple[Name, ...]
    batch: Count
    inputs: Count
    hidden: Count
    steps: Count
    turns: tuple[ShareTurn, ...] = Field(min_length=1)
    differing: tuple[Name, ...]

    @field_validator("turns")
    @classmethod
    def _turns_once(cls, turns: tuple[ShareTurn, ...]) -> tuple[ShareTurn, ...]:
        return once(turns, "turn")
