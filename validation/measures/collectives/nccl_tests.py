"""The table that a program of nccl-tests prints: releases with `#wrong` and older ones with `error`, MPI or not."""

from __future__ import annotations

import re
from dataclasses import dataclass

from validation.base.counting import number_of
from validation.kinds.parsing import ParseError, number, once, real

HEAD = re.compile(
    r"^#? ?nThread (?P<threads>\d+) nGpus (?P<gpus>\d+) minBytes (?P<least>\d+) maxBytes (?P<most>\d+) "
    r"step: (?P<step>\d+)\((?P<how>factor|bytes)\).*?\bvalidation: (?P<checked>\d+)",
    re.MULTILINE,
)
RANK = re.compile(
    r"^#? +Rank +(\d+)(?: Group +\d+)? Pid +\d+ on +(\S+) device +(\d+) \[(?:0x)?([0-9a-fA-F:.]+)\] (.+?) *$",
    re.MULTILINE,
)
REDUCED = re.compile(r"^#? ?Reducing maxBytes to (\d+) due to memory limitation", re.MULTILINE)
OUT = re.compile(r"^#? ?Out of bounds values : (\d+) (OK|FAILED)", re.MULTILINE)
AVERAGE = re.compile(r"^#? ?Avg bus bandwidth +: +(\S+)", re.MULTILINE)
VERSION = re.compile(r"^#? ?nccl-tests version .*?\bnccl-library=(\d+)", re.MULTILINE)
COLUMNS = 4  # time, algbw, busbw, wrong: out of place, then in place
PRINTED = 0.02
"""A rate is printed with two digits after the point and the time with at most five: how far they may be apart."""


@dataclass(frozen=True)
class TestRow:
    """One size: seconds, bus bandwidth in GB/s as printed, and wrong elements (0 where it was not counted)."""

    size: int
    seconds: float
    algbw: float
    busbw: float
    wrong: int


@dataclass(frozen=True)
class Table:
    """What one program printed. `ranks`: (host, number/PCI address, model). `rows`: out of place."""

    ranks: tuple[tuple[str, str, str], ...]
    rows: tuple[TestRow, ...]
    most: int  # largest size that it set out for, what its memory allowed
    reduced: bool
    nccl: str


def table(text: str, what: str) -> Table:
    """The one table in `text`; ParseError where it is cut, has none or several, or something in it was wrong.

    N jobs of one rank print N tables: that is none of N ranks.
    """
    head = once(HEAD, text, f"{what}: header of nccl-tests")
    if head["checked"] == "0":
        raise ParseError(f"{what}: the data were not checked (validation: 0)")
    # Older releases print the bus alone, which is the same for all GPUs of some virtual machines.
    ranks = [(int(m[1]), (m[2], f"{m[3]}/{m[4]}", m[5])) for m in RANK.finditer(text)]
    if [place for place, _ in ranks] != list(range(len(ranks))):
        raise ParseError(f"{what}: ranks {', '.join(str(place) for place, _ in ranks[:8])} are not 0 to {len(ranks)}")
    bounds = once(OUT, text, f"{what}: count of wrong values")
    if bounds[1] != "0" or bounds[2] != "OK":
        raise ParseError(f"{what}: {bounds[1]} values were wrong ({bounds[2]})")
    average = real(once(AVERAGE, text, f"{what}: average")[1], f"{what}: average")
    reduced = REDUCED.search(text)
    most = int(reduced[1]) if reduced else int(head["most"])
    rows = [_row(line, what) for line in text.splitlines() if re.match(r" *\d+ +\d+ +[a-z]", line)]
    if not rows:
        raise ParseError(f"{what}: no size was measured")
    wanted = _grid(int(head["least"]), most, int(head["step"]), head["how"])
    if len(rows) != len(wanted):
        raise ParseError(f"{what}: {len(rows)} of {len(wanted)} sizes are there; is the output cut?")
    if average <= 0:
        raise ParseError(f"{what}: an average of {average:g} GB/s: nothing was moved between ranks")
    version = VERSION.search(text)
    return Table(tuple(r for _, r in ranks), tuple(rows), most, reduced is not None, version[1] if version else "")


def _grid(least: int, most: int, step: int, how: str) -> list[int]:
    found: list[int] = []
    size = least
    while size <= most and len(found) < 1000:
        found.append(size)
        if how == "factor" and step < 2:
            break
        size = size * step if how == "factor" else size + max(step, 1)
    return found


def _row(line: str, what: str) -> TestRow:
    """`size count type redop [root] time algbw busbw wrong time algbw busbw wrong`."""
    words = line.split()
    figures = words[-2 * COLUMNS : -COLUMNS]
    if len(words) < 2 + 2 * COLUMNS + 1:
        raise ParseError(f"{what}: a row has {number_of(len(words), 'column')}")
    size = int(words[0])
    seconds = (
        number(real(figures[0], f"{what}: {number_of(size, 'byte')}: time"), f"{what}: {number_of(size, 'byte')}: time")
        / 1e6
    )
    rates = [real(word, f"{what}: {number_of(size, 'byte')}: a rate") for word in figures[1:3]]
    wrong = figures[3]
    if wrong == "N/A":
        raise ParseError(f"{what}: {number_of(size, 'byte')}: the data were not checked (N/A)")
    amount = real(wrong, f"{what}: {number_of(size, 'byte')}: wrong values")
    if amount < 0 or (amount > 0 and not _rounding(wrong)):
        raise ParseError(f"{what}: {number_of(size, 'byte')}: {wrong} values were wrong")
    if abs(rates[0] - size / seconds / 1e9) > PRINTED * rates[0] + 0.006:
        raise ParseError(f"{what}: {number_of(size, 'byte')} in {seconds * 1e6:g} us are not {rates[0]:g} GB/s")
    return TestRow(size, seconds, rates[0], rates[1], 0)


def _rounding(word: str) -> bool:
    """Older releases print the largest difference, as 4e-07, in place of a count."""
    return "e-" in word.lower()
