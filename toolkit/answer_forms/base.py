"""What the forms of all answers have in common."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

Time = str
"""RFC 3339 in UTC, as 2026-11-26T04:00:00Z."""
FORMAT = Field(json_schema_extra={"format": "date-time"}, description="RFC 3339 in UTC")


class Form(BaseModel):
    """What an answer has beside its first key. What is not known is null."""

    model_config = ConfigDict(extra="forbid")
