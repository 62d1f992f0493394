"""The state that a node was in while it was looked at: addresses, time, name servers, disks, other programs."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from validation.model.base import Model
from validation.model.facts import Count, Name

Least = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class Address(Model):
    """An address of the node, and the interface that has it. `over`: interfaces that it is made of, a bond's ports."""

    interface: Name
    address: Name
    over: tuple[Name, ...] = ()


class NameServer(Model):
    """A name server that the node asks, and whether anything came back."""

    address: Name
    answers: bool


class FileSystem(Model):
    """A file system that programs write to. `inodes_free` None: it does not count them."""

    folder: Name
    size_bytes: Count
    free_bytes: Count  # for ordinary users
    inodes_free: Count | None = None
    read_only: bool


class Busy(Model):
    """A program that computes, in processors, over the time of the look."""

    name: Name
    pid: Count
    processors: Least

    def __str__(self) -> str:
        """`sh (42) 1.9`."""
        return f"{self.name} ({self.pid}) {self.processors:.2g}"


class NodeState(Model):
    """What was found. None: it could not be read, and `unread` says why."""

    addresses: tuple[Address, ...] | None = None
    utc_s: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None  # its clock, since 1970
    utc_offset_s: Annotated[int, Field(ge=-86400, le=86400)] | None = None  # ahead of UTC
    name_servers: tuple[NameServer, ...] | None = None
    file_systems: tuple[FileSystem, ...] | None = None
    others_busy_processors: Least | None = None  # of programs other than the look: the least of several windows
    busiest: tuple[Busy, ...] = ()
    unread: str = ""
