"""What NVIDIA DCGM's diagnostic said (kind dcgm-diag)."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from validation.model.base import Model
from validation.model.facts import Count, Facts, Name

DcgmStatus = Literal["pass", "fail", "warn", "skip", "not run"]


class DcgmResult(Model):
    """A test on a GPU, or on another thing (`CPU 0`), "" for all. errors: what DCGM reported beside the status, which
    may be a pass all the same."""

    of: str
    status: DcgmStatus
    errors: tuple[str, ...] = ()
    info: tuple[str, ...] = ()


class DcgmTest(Model):
    """A test with its results."""

    category: Name
    name: Name
    results: Annotated[tuple[DcgmResult, ...], Field(min_length=1)]


class DcgmFacts(Facts):
    """A whole run. form: version of the report, 3 or 4 as DCGM's, 0 without one, for which
    `trouble` has the reason. gpus: numbers that results name."""

    type: Literal["dcgm"] = "dcgm"
    form: Literal[0, 3, 4]
    level: Count
    returncode: int
    version: str
    driver: str
    trouble: str
    gpus: tuple[Count, ...]
    tests: tuple[DcgmTest, ...]
