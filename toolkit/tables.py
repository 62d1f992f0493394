"""Tables on a terminal of any width, and in pipes: nothing is cut, and no line is padded beyond its words.

Where a table does not fit, its last column is wrapped; where that leaves too little, each row becomes a few lines.
"""

from __future__ import annotations

import os
import sys
import textwrap
from collections.abc import Collection, Sequence

import click

from toolkit.streams import columns
from validation.base.visible import visible

GAP = 2
LEAST = 28
"""Columns that the last column is wrapped to at least; below, rows are written one value a line."""


def lines(
    titles: Sequence[str], rows: Sequence[Sequence[str]], width: int | None, right: Collection[str] = ()
) -> list[str]:
    """The table in lines of at most `width` columns (None: as long as they are); `right`: columns of numbers."""
    rows = [[visible(cell) for cell in row] for row in rows]  # a line break in a name would make a row of its own
    cells = [list(titles), *rows]
    widths = [max(len(row[at]) for row in cells) for at in range(len(titles))]
    before = sum(widths[:-1]) + GAP * (len(widths) - 1)
    if width is None or before + widths[-1] <= width:
        return [_line(row, widths, titles, right) for row in cells]
    room = width - before
    if room < LEAST:
        return [line for row in rows for line in _record(titles, row, width)]
    found = []
    for row in cells:
        first, *more = textwrap.wrap(row[-1], room) or [""]
        found.append(_line([*row[:-1], first], widths, titles, right))
        found += [" " * before + one for one in more]
    return found


def _line(row: Sequence[str], widths: Sequence[int], titles: Sequence[str], right: Collection[str]) -> str:
    said = [
        cell.rjust(size) if title in right else cell.ljust(size)
        for cell, size, title in zip(row, widths, titles, strict=True)
    ]
    return (" " * GAP).join(said).rstrip()


def _record(titles: Sequence[str], row: Sequence[str], width: int) -> list[str]:
    """The first value, and below it each of the others with its title."""
    found = [row[0]]
    for title, value in zip(titles[1:], row[1:], strict=True):
        whole = f"{title}: {value}"
        # a name that is longer than the line stays whole: it is to be copied
        found += textwrap.wrap(
            whole, width, initial_indent="  ", subsequent_indent="    ", break_long_words=False, break_on_hyphens=False
        )
    return found


def show(titles: Sequence[str], rows: Sequence[Sequence[str]], right: Collection[str] = ()) -> None:
    """Print it: as wide as the terminal or COLUMNS; in a pipe each row is one line."""
    narrow = os.environ.get("COLUMNS") or (sys.stdout is not None and sys.stdout.isatty())
    for line in lines(titles, rows, columns() if narrow else None, right):
        click.echo(line)
