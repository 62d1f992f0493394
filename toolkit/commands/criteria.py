"""`toolkit criteria`: what must hold, with bound and source of each."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import click

from toolkit import answers
from toolkit.command_class import group
from toolkit.commands.options import json_option
from toolkit.errors import UsageFault, or_nearest
from validation.base.counting import number_of
from validation.plan.offered import SUITE_NAMES

if TYPE_CHECKING:  # loaded when criteria are listed, not for --help
    from validation.rules.criterion import Criterion

suite_option = click.option(
    "--suite", metavar="NAME", help=f"List the criteria of one suite: {', '.join(SUITE_NAMES)}."
)


@group(invoke_without_command=True)
@suite_option
@json_option
@click.pass_context
def criteria(context: click.Context, suite: str | None, as_json: bool) -> None:
    """List what must hold, with bound and source.

    These are the criteria of this release. A run is judged by the criteria that were copied into it; toolkit judge
    judges it by others. Bounds that follow from a network are shown with their derivation by toolkit fabrics show NAME.

    \b
    toolkit criteria                     all of them
    toolkit criteria --suite transport   of one suite
    toolkit criteria show tr.tcpbw       one, with bound, source and what to do when it fails
    """
    if context.invoked_subcommand is None:
        _list(suite, as_json)


@criteria.command("list")
@suite_option
@json_option
def list_criteria(suite: str | None, as_json: bool) -> None:
    """List the criteria, each with its bound.

    \b
    toolkit criteria list --suite compute
    """
    _list(suite, as_json)


def _list(suite: str | None, as_json: bool) -> None:
    from rich.text import Text

    from toolkit import tables
    from toolkit.progress import make_console
    from validation.run.catalogue import load_criteria

    if suite is not None and suite not in SUITE_NAMES:
        raise UsageFault(f"unknown suite {suite!r}; {or_nearest(suite, SUITE_NAMES)}")
    found = [c for c in load_criteria() if suite is None or c.suite == suite]
    if as_json:
        answers.say("criteria", {"criteria": [_document(c) for c in found]})
        return
    tables.show(
        ("criterion", "suite", "what must hold", "bound"), [(c.id, c.suite, c.statement, _bound(c)) for c in found]
    )
    console = make_console()
    measured = sum(c.no_probe is None for c in found)
    console.print(
        Text(f"{number_of(len(found), 'criterion')}; this release measures {measured} of them"), soft_wrap=True
    )


@criteria.command()
@click.argument("criterion_id", metavar="ID")
@json_option
def show(criterion_id: str, as_json: bool) -> None:
    """Explain one criterion: bound, source, what measures it, and what to do when it fails.

    \b
    toolkit criteria show tr.tcpbw
    """
    from rich.text import Text

    from toolkit.progress import make_console
    from validation.run.catalogue import load_criteria

    known = load_criteria()
    found = next((c for c in known if c.id == criterion_id), None)
    if found is None:
        there = or_nearest(criterion_id, [c.id for c in known], "toolkit criteria lists them")
        raise UsageFault(f"unknown criterion {criterion_id!r}; {there}")
    if as_json:
        answers.say("criterion", {"criterion": _document(found)})
        return
    console = make_console()
    console.print(Text(f"{found.id}: {found.statement}", style="bold"), soft_wrap=True)
    for name, words in _lines(found):
        console.print(Text(f"{name + ':':<16}{words}"), soft_wrap=True)


def _bound(c: Criterion) -> str:
    """The bound in words, of any fabric: its figures are named by their keys, as toolkit fabrics show has them."""
    return re.sub(r"\{(\w+)\}", r"(the fabric's \1)", c.bound.words)


def _lines(c: Criterion) -> list[tuple[str, str]]:
    lines = [("suite", c.suite), ("bound", _bound(c)), ("source", c.source)]
    lines += [("provisional", "our judgement, to be calibrated; no published figure")] if c.bound.provisional else []
    lines += [("of each", c.scope), ("required", "yes" if c.required else "no")]
    lines.append(("measured by", c.kind) if c.kind is not None else ("not measured", str(c.no_probe)))
    if c.rehearsal.judge != "same":
        lines.append(("in a lab", f"{c.rehearsal.judge}{': ' + c.rehearsal.why if c.rehearsal.why else ''}"))
    lines += [("elsewhere", f"not applicable: {c.applies.why}")] if c.applies is not None else []
    return lines + ([("when it fails", c.remedy)] if c.remedy else [])


def _document(c: Criterion) -> dict[str, object]:
    return c.model_dump(mode="json")
