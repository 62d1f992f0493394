"""Storage that the inventory declares for a node: where it is, whether other nodes share it, and what was ordered."""

from __future__ import annotations

from pathlib import PurePosixPath

from pydantic import Field, field_validator, model_validator

from validation.base.visible import hidden
from validation.model.base import Model

_NEVER = ("/dev", "/proc", "/sys", "/boot", "/run")
"""Folders of a running system, in which nothing is ever written."""
_PER_GBPS = 1 / 8  # GB/s of a Gbit/s


class Storage(Model):
    """A folder to be measured. `shared`: the same on every node that declares it by this name.

    What was ordered, None where nothing was: of each node by itself `read_gb_s`, `write_gb_s` (10^9 bytes a second),
    `gds_read_gb_s`, `gds_write_gb_s` (by GPUDirect Storage), `read_iops`, `write_iops` (4 KiB each), `creates_per_s`
    and `images_per_s`; of all nodes at the same time `all_read_gb_s` and `all_write_gb_s`, and of storage and network
    where both are used `beside_share`. `link_gbps`: the link of a node to it, `all_link_gbps`: of the storage itself.
    `filesystem`: what must be mounted there, as Linux names it. `size_gib`: what each node may write there.
    """

    name: str = Field(pattern=r"^[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?$")
    path: str
    shared: bool = False
    filesystem: str | None = Field(default=None, pattern=r"^[a-z0-9][a-z0-9._-]{0,30}$")
    size_gib: float | None = Field(default=None, ge=0.0625, le=4096)
    read_gb_s: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    write_gb_s: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    read_iops: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    write_iops: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    gds_read_gb_s: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    gds_write_gb_s: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    creates_per_s: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    images_per_s: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    all_read_gb_s: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    all_write_gb_s: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    beside_share: float | None = Field(default=None, gt=0, le=1, allow_inf_nan=False)
    link_gbps: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    all_link_gbps: float | None = Field(default=None, gt=0, allow_inf_nan=False)

    @field_validator("path")
    @classmethod
    def _a_folder(cls, value: str) -> str:
        if hidden(value):
            raise ValueError("has a character that cannot be seen; remove it")
        if ":" in value or "\\" in value:
            raise ValueError(
                f"{value!r} has a character (: or \\) that fio takes for its own; give the folder another name"
            )
        path = PurePosixPath(value)
        if not path.is_absolute() or ".." in path.parts or "\0" in value or value.startswith("//"):
            raise ValueError(f"{value!r} is no absolute path without ..; write it like /mnt/shared")
        if len(path.parts) < 2:
            raise ValueError("is the root of the system; name a folder of the storage")
        if any(path.is_relative_to(folder) for folder in _NEVER):
            raise ValueError(f"{value} is a folder of the system, in which nothing is written; name one of the storage")
        return str(path)

    @model_validator(mode="after")
    def _possible(self) -> Storage:
        together = ("all_read_gb_s", "all_write_gb_s", "all_link_gbps", "beside_share")
        if not self.shared:
            for name in together:
                if getattr(self, name) is not None:
                    raise ValueError(f"{name} is of storage that nodes share; set shared: true, or leave it out")
        for names, link in (
            (("read_gb_s", "write_gb_s", "gds_read_gb_s", "gds_write_gb_s"), "link_gbps"),
            (together[:2], "all_link_gbps"),
        ):
            rate = getattr(self, link)
            for name in names:
                ordered = getattr(self, name)
                if rate is not None and ordered is not None and ordered > rate * _PER_GBPS:
                    raise ValueError(
                        f"{name} {ordered:g} is more than {link} {rate:g} can carry, {rate * _PER_GBPS:g} GB/s"
                    )
        return self
