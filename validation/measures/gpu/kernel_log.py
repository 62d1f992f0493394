"""What the kernel log of a node says of its GPUs (kind gpu-health)."""

from __future__ import annotations

from typing import Literal

from validation.model.base import Model
from validation.model.facts import Count


class XidLine(Model):
    """A line: of a GPU (`xid`), an NVSwitch (`sxid`), a GPU that is `lost`; microseconds since the node's start.

    code: None where the line has no number that can be read. address: "" where it names no device.
    """

    at_us: Count
    kind: Literal["xid", "sxid", "lost"]
    code: Count | None
    address: str
    words: str


class KernelLog(Model):
    """The Xid lines that stand in the log, the newest of them where there are very many (`dropped` are left out).

    boot: by which two readings are known to be of one start of the node. oldest_us, newest_us: of any line. unread: why
    nothing is known, "" where the log was read.
    """

    boot: str
    oldest_us: Count | None
    newest_us: Count | None
    lines: tuple[XidLine, ...]
    dropped: Count
    unread: str
