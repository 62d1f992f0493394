"""`toolkit profiles`: the acceptance profiles, and what each of them owes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from toolkit import answers
from toolkit.command_class import group
from toolkit.commands.options import json_option
from validation.plan.offered import SUITE_NAMES

if TYPE_CHECKING:  # loaded when profiles are read, not for --help
    from validation.rules.criterion import Criterion
    from validation.rules.profile import Profile


@group(invoke_without_command=True)
@json_option
@click.pass_context
def profiles(context: click.Context, as_json: bool) -> None:
    """List what is owed for which delivery.

    An acceptance profile names the criteria of a delivery. It is agreed on with the customer, and chosen by toolkit
    validate --profile or by the inventory (acceptance_profile).

    \b
    toolkit profiles                       all of them
    toolkit profiles show network          what is owed, what is left out, and why
    toolkit profiles show network --text > ours.yml    as a file, to be changed and agreed on
    """
    if context.invoked_subcommand is None:
        _list(as_json)


@profiles.command("list")
@json_option
def list_profiles(as_json: bool) -> None:
    """List all profiles, with how much of each this release can measure.

    \b
    toolkit profiles list --json
    """
    _list(as_json)


def _unmeasured(profile: Profile, criteria: Sequence[Criterion]) -> list[str]:
    return [c.id for c in criteria if c.id in profile.owed and c.no_probe is not None]


def _list(as_json: bool) -> None:
    from toolkit import tables
    from validation.rules.profile import load_profile, profile_names
    from validation.run.catalogue import load_criteria

    criteria = load_criteria()
    found = [load_profile(name, criteria, SUITE_NAMES) for name in profile_names()]
    if as_json:
        answers.say("profiles", {"profiles": [_document(profile, criteria) for profile in found]})
        return
    rows = []
    for profile in found:
        bare = len(_unmeasured(profile, criteria))
        row = (profile.name, profile.delivery, profile.test, str(len(profile.owed)), str(bare) if bare else "none")
        rows.append((*row, profile.title))
    tables.show(("profile", "delivery", "test", "owed", "without measurement", "title"), rows, right=("owed",))


def _document(profile: Profile, criteria: Sequence[Criterion]) -> dict[str, object]:
    return {**profile.model_dump(mode="json"), "without_measurement": _unmeasured(profile, criteria)}


@profiles.command()
@click.argument("name", metavar="NAME|FILE")
@click.option("--text", "as_text", is_flag=True, help="Print the whole as a file.")
@json_option
def show(name: str, as_text: bool, as_json: bool) -> None:
    """Show what a profile owes and leaves out.

    A file of your own is checked at the same time.

    \b
    toolkit profiles show elastic
    toolkit profiles show inventories/site/ours.yml
    """
    from rich.text import Text

    from toolkit import tables
    from toolkit.progress import make_console
    from validation.rules.profile import read_profile
    from validation.run.catalogue import load_criteria

    criteria = load_criteria()
    profile, source = read_profile(name, criteria, SUITE_NAMES)
    if as_text:
        click.echo(source.text, nl=False)
        return
    if as_json:
        answers.say("profile", {"profile": _document(profile, criteria)})
        return
    console = make_console()
    console.print(Text(f"{profile.name}: {profile.title}", style="bold"))
    console.print(Text(f"delivery {profile.delivery}, {profile.test} test, suites {', '.join(profile.suites)}"))
    owed = [c for c in criteria if c.id in profile.owed]
    rows = [(c.id, "yes" if c.no_probe is None else "no", c.statement) for c in owed]
    console.print()
    tables.show(("owed", "measured", "statement"), rows)
    console.print()
    for entry in profile.left_out:
        when = " (where the fabric has no bound)" if entry.when == "no-bound" else ""
        console.print(Text(f"left out{when}: {', '.join(entry.criteria)}: {entry.why}"), soft_wrap=True)
    bare = _unmeasured(profile, criteria)
    if bare:
        console.print(
            Text(
                f"{len(bare)} of {len(profile.owed)} that are owed have no measurement in this release; each needs a "
                "waiver before a run can end ACCEPTED",
                style="yellow",
            ),
            soft_wrap=True,
        )
