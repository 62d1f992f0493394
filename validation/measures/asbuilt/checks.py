"""Which as-built checks there have to be, of which nodes: `checks.yml`, apart from the checks themselves.

The plan holds their names, so that a check which is gone, or was left out, is missing and not silently fewer.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import cache
from pathlib import Path
from typing import Annotated, Literal, get_args

from pydantic import Field, model_validator

from validation.model import Model
from validation.model.load import load_yaml

FOLDER = Path(__file__).resolve().parents[2] / "asbuilt"
LIST = FOLDER / "checks.yml"
Group = Literal["heads", "clients", "gpu_servers"]
GROUPS: tuple[str, ...] = get_args(Group)


class CheckFile(Model):
    """Checks of a file. `tag` is what `toolkit deploy -- --tags` runs to put right what they find; `groups` are those
    whose nodes they concern.
    """

    file: Annotated[str, Field(pattern=r"^test_[a-z_]+\.py$")]
    tag: str
    groups: tuple[Group, ...] = Field(min_length=1)
    checks: tuple[Annotated[str, Field(pattern=r"^test_[a-z0-9_]+$")], ...] = Field(min_length=1)


class CheckList(Model):
    """checks.yml."""

    files: tuple[CheckFile, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _each_once(self) -> CheckList:
        names = [name for entry in self.files for name in names_of(entry)]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"duplicate check: {', '.join(twice)}; name each once")
        return self


def names_of(entry: CheckFile) -> tuple[str, ...]:
    """`test_base.py::test_clock_service_runs` of each check."""
    return tuple(f"{entry.file}::{check}" for check in entry.checks)


@cache
def check_list(path: Path = LIST) -> CheckList:
    """The checks that there have to be; ConfigError with file and line where the list cannot be used."""
    return load_yaml(path, CheckList)


def checks_of(groups: Collection[str]) -> tuple[str, ...]:
    """Names of the checks that concern a node of these groups, in the order of the list."""
    return tuple(name for entry in check_list().files if set(entry.groups) & set(groups) for name in names_of(entry))


def tag_of(check: str) -> str:
    """The tag of site.yml that puts right what a check found; "" for a check that is not in the list."""
    return next((entry.tag for entry in check_list().files if check in names_of(entry)), "")
