"""What each Xid of NVIDIA's driver means for an acceptance: data, one row for each number.

The numbers stand in NVIDIA's buckets of what has to be done ("Xid errors", Xid catalogue, as of 2026); which of them
fails an acceptance is this project's rule: what asks for a reset, a restart or a part fails, what a program can cause
is told, what NVIDIA's catalogue ignores is ignored. What stands in no row is not known, and never fine.
"""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

Class = Literal["replace", "reset", "application", "ignore", "unknown"]
SOURCE = "NVIDIA, Xid errors and Xid catalogue (buckets of recovery actions)"
BURST_GAP_S = 180.0
"""Lines of one device and number that come closer after each other are one event (NVIDIA Fleet Intelligence)."""


class Xid(NamedTuple):
    """replace: a part or its seat is suspected; reset: it is of no use before a reset or restart; application: a
    program can have caused it; ignore: no fault. Fails an acceptance: the first two."""

    meaning: Class
    words: str


def _rows(meaning: Class, words: str, *numbers: int) -> dict[int, Xid]:
    return dict.fromkeys(numbers, Xid(meaning, words))


POLICY: dict[int, Xid] = {
    **_rows("replace", "the GPU has fallen off the bus", 79),
    **_rows("replace", "an uncorrectable memory error", 48),
    **_rows("replace", "NVIDIA's support is to be asked", 142),
    **_rows("replace", "auxiliary power is not connected", 54),
    **_rows("replace", "an NVLink error", 74),
    **_rows("replace", "a contained uncorrectable memory error", 94),
    **_rows("reset", "the GPU needs a reset", 46, 62, 109, 110, 136, 143, 155, 156, 158),
    **_rows("reset", "a memory repair could not be recorded", 64),
    **_rows("reset", "an uncontained memory error", 95),
    **_rows("reset", "the GPU's system processor does not answer", 119, 120),
    **_rows("reset", "an unrecovered memory error", 140),
    **_rows("reset", "driver and firmware do not fit together", 78),
    **_rows("reset", "the virtual machine needs a restart", 151),
    **_rows("application", "a program's own fault, or a memory error's consequence", 8, 11, 13, 25, 31, 32, 39, 40, 41),
    **_rows("application", "a program was ended", 45),
    **_rows("application", "a program's work was ended", 60, 68, 69, 70, 71, 72, 75, 76, 77, 80),
    **_rows(
        "application", "a program's work was ended", *range(82, 87), 88, 89, *range(96, 106), *range(126, 136), 139
    ),
    **_rows("ignore", "no fault", 37, 38, 43, 44, 66, 67, 93, 106, 107, 121, 137, 141, 152, 153, 157, 160, 161),
    **_rows("ignore", "a memory repair was recorded, which pf.gpuhealth judges", 63),
    **_rows("ignore", "many corrected memory errors", 92),
}
NVLINK5 = range(144, 151)
"""Of Blackwell's NVLinks: the line says whether it was fatal."""
RECOVERY = 154
"""The driver's own word on what has to be done."""
_NOTHING_TO_DO = re.compile(r"\bto 0x0\b|\(None\)\s*$", re.IGNORECASE)
_NONFATAL = re.compile(r"\bnon-?fatal\b", re.IGNORECASE)


#: What a sort of meaning counts for where the lines of one event differ in it, the gravest first.
GRAVEST: tuple[Class, ...] = ("replace", "reset", "unknown", "application", "ignore")


def meaning(kind: str, code: int | None, words: str) -> Xid:
    """The row of a line: kind `xid` of a GPU, `sxid` of an NVSwitch, `lost` of a GPU that is lost."""
    if kind == "lost":
        return POLICY[79]
    if code is None:
        return Xid("unknown", "the line cannot be read")
    if kind == "sxid":
        if _NONFATAL.search(words):
            return Xid("ignore", "an NVSwitch's error that was not fatal")
        return Xid("reset", "a fatal error of an NVSwitch") if "fatal" in words.lower() else _unknown(kind, code)
    if code in NVLINK5:
        nonfatal = _NONFATAL.search(words) is not None
        return Xid("ignore", "an NVLink's error that was not fatal") if nonfatal else Xid("replace", "an NVLink error")
    if code == RECOVERY:
        done = _NOTHING_TO_DO.search(words) is not None
        return Xid("ignore", "the driver asks for nothing") if done else Xid("reset", f"the driver asks: {words}")
    return POLICY.get(code) or _unknown(kind, code)


def _unknown(kind: str, code: int) -> Xid:
    return Xid("unknown", "this release has no rule for it")
