"""What accepted runs reached, as a bound of the next: the documents. Made by validation/run/baseline.py."""

from __future__ import annotations

from pydantic import Field

from validation.model.base import Model


class Level(Model):
    """What one pair, port, node or job reached in `runs` runs: the mean of its values, and the bound that follows, both
    in the criterion's unit.
    """

    subject: str = Field(min_length=1)
    value: float = Field(gt=0, allow_inf_nan=False)
    bound: float = Field(gt=0, allow_inf_nan=False)
    runs: int = Field(ge=2)


class Since(Model):
    """`of`: the criterion whose values are held against what the same subject reached before. `spread`: what runs of
    the same subject differ by, one standard deviation as a share of the value.
    """

    of: str
    spread: float = Field(ge=0, allow_inf_nan=False)
    levels: tuple[Level, ...] = Field(min_length=1)


class BaselineOf(Model):
    """What a baseline was made of, and so what it may be held against: runs of this site over this fabric.

    `rehearsal`: of virtual nodes; its figures are a lab's, and are no acceptance. `lab_gbps`: rate of that lab's links.
    """

    site: str
    fabric: str
    rehearsal: bool
    lab_gbps: float | None = None
    runs: tuple[str, ...] = Field(min_length=2)
    toolkit_version: str
