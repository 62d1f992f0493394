"""What the HTML pages of a report, a comparison and a campaign have in common: how templates are found and filled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from validation.base.visible import visible_lines
from validation.report import criteria, numbers


def _seen(value: object) -> object:
    """What a template prints, without anything that could not be seen: whatever it says came from a run."""
    if isinstance(value, Markup):
        return Markup(visible_lines(value))  # noqa: S704 - it was one
    return visible_lines(value) if isinstance(value, str) else value


def environment(package: str, **filters: Callable[..., Any]) -> Environment:
    """Templates of `package`, then those of the report (page.html, macros, styles), with the filters of all pages and
    these beside them."""
    folders = dict.fromkeys((package, "validation.report"))
    found = Environment(
        loader=ChoiceLoader([PackageLoader(folder, "templates") for folder in folders]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_seen,
    )
    found.filters.update(
        slug=criteria.slug,
        quantity=numbers.quantity,
        interval=numbers.interval,
        moment=numbers.moment,
        unit=numbers.unit_text,
        typeset=numbers.typeset,
        **filters,
    )
    found.globals.update(plural=numbers.plural)
    return found
