"""`--format` of the commands that write reports."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

from toolkit.errors import or_nearest
from toolkit.report_request import FORMATS

NONE = "none"

F = TypeVar("F", bound=Callable[..., Any])


def format_option() -> Callable[[F], F]:
    """`--format`, repeatable, each a name or a comma-separated list; hands over `formats` in the order of FORMATS.

    "none" writes nothing.
    """
    known = (*FORMATS, NONE)

    def chosen(_: click.Context, __: click.Parameter, texts: Sequence[str]) -> tuple[str, ...]:
        if not texts:
            return FORMATS
        asked = [name.strip() for text in texts for name in text.split(",") if name.strip()]
        unknown = [name for name in asked if name not in known]
        if unknown or not asked:
            there = or_nearest(unknown[0] if unknown else "", known)
            words = f"{', '.join(unknown) or 'nothing'}: no such format; {there}"
            raise click.BadParameter(words)
        if NONE in asked and len(set(asked)) > 1:
            raise click.BadParameter(f"{NONE} cannot go with others")
        return tuple(name for name in FORMATS if name in asked)

    return click.option(
        "--format",
        "formats",
        metavar="NAME",
        multiple=True,
        callback=chosen,
        help=f"Write these formats: {', '.join(known)}; repeatable, or comma-separated.  [default: all]",
    )
