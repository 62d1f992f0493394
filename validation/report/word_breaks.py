"""Where a word of a table may break on paper: only where it is longer than its column, so that no table is cut off.

A column of a table is as wide as its longest word at least. Where these together are wider than the page, the last
columns would lie beyond the margin; and were each word allowed to break anywhere, short ones would break for long ones.
"""

from __future__ import annotations

import html
import re

PAGE_MM, PADDING_MM, DIGIT_MM = 184.0, 2.7, 1.9
"""Width of an A4 page between its margins, what a cell adds, and a digit of a table's 8 pt type."""
LEAST = 4
"""Digits that a column has in any case."""

_TABLE = re.compile(r"<table\b([^>]*)>(.*?)</table>", re.DOTALL)
_ROW = re.compile(r"<tr\b[^>]*>(.*?)</tr>", re.DOTALL)
_CELL = re.compile(r"<(t[hd])\b([^>]*)>(.*?)(?=<t[hd]\b|</tr>|</t[hd]>)", re.DOTALL)
_TAG = re.compile(r"<[^>]*>")
_WORD = re.compile(r"[ \t\r\n]+|(?<=-)(?=[^\W\d])")
"""Where a line may end: at a space that is none of those that hold together, and behind a hyphen before a letter."""
_WIDE, _BROAD = 1.6, 1.2
"""Of an M, or a sign of a full em; of other capitals and letters beyond ASCII: over that of a digit."""
_SPAN = re.compile(r"""colspan=["']?(\d+)""")


def with_breaks(page: str) -> str:
    """The HTML of a report for paper: cells with a word longer than their column's share may break it anywhere."""
    return _TABLE.sub(_table, page)


def _table(found: re.Match[str]) -> str:
    if "fixed" in found[1]:  # its columns have their widths, whatever stands in them
        return found[0]
    rows = [_CELL.findall(row) for row in _ROW.findall(found[2])]
    columns = max((sum(_columns(attributes) for _, attributes, _ in row) for row in rows), default=0)
    if not columns:
        return found[0]
    most = max(int((PAGE_MM - PADDING_MM * columns) / DIGIT_MM / columns), LEAST)

    def cell(one: re.Match[str]) -> str:
        name, attributes, inside = one.groups()
        share = most * _columns(attributes)
        if "style=" in attributes or longest(inside) <= share:
            return one[0]
        return f'<{name}{attributes} style="overflow-wrap: anywhere; min-width: {most}ch">{inside}'

    return f"<table{found[1]}>{_CELL.sub(cell, found[2])}</table>"


def _columns(attributes: str) -> int:
    span = _SPAN.search(attributes)
    return int(span[1]) if span else 1


def longest(inside: str) -> float:
    """The longest word of a cell's HTML, in digits."""
    text = html.unescape(_TAG.sub(" " if "<p" in inside or "<br" in inside else "", inside))
    return max((_digits(word) for word in _WORD.split(text)), default=0.0)


def _digits(word: str) -> float:
    if word.isascii() and word.islower() and not set(word) & set("mw@%"):
        return float(len(word))
    return sum(
        _WIDE if c in "MWmw@%" or ord(c) >= 0x2E80 else _BROAD if c.isupper() or ord(c) > 126 else 1.0 for c in word
    )
