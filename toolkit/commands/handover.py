"""`toolkit handover`: the papers of a handover."""

from __future__ import annotations

from datetime import date, datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from toolkit import answers
from toolkit.command_class import group
from toolkit.commands.handover_evidence import evidence
from toolkit.commands.handover_sum import check_sum, sum_
from toolkit.commands.handover_witness import witness
from toolkit.commands.options import inventory_option, json_option, kept_runs_option
from toolkit.errors import UsageFault
from toolkit.exits import Exit, epilogue
from toolkit.working import working
from validation.base.counting import number_of

if TYPE_CHECKING:  # pydantic is loaded when something is done, not for --help
    from toolkit.handover.points import Updated
    from validation.rules.punch import Point

DAY = click.DateTime(["%Y-%m-%d"])
GRADE = click.Choice(["A", "B", "C"])


@group()
def handover() -> None:
    """Keep the punch list and papers of a handover.

    The punch list is punch.yml beside the inventory. Every run takes it, closes or keeps each point, and has it in its
    report and certificate. docs/how-to/punch-list.md.

    \b
    toolkit handover update --owner "A. Example"     points from the newest run
    toolkit handover points -i inventories/SITE
    toolkit handover open "label" --class C --owner "B. Site" --due 2026-12-31
    toolkit handover close P3 --why "seen on site"
    toolkit handover witness
    toolkit handover sum RUN1 RUN2 --key KEY --as "A. Name, Firm" --out sum
    """


def _today() -> date:
    """In UTC, as the day of a run is: a run closes a point that was opened before it, wherever both were made."""
    return datetime.now(timezone.utc).date()


def _listed(inventory: Path) -> tuple[Path, tuple[Point, ...]]:
    from toolkit.handover import punch_file
    from validation.run.catalogue import load_criteria

    path = punch_file.file_of(inventory)
    return path, punch_file.points_of(path, [c.id for c in load_criteria()], punch_file.latest_day())


def _line(point: Point) -> str:
    state = "open" if point.open else "closed"
    marks = [f"class {point.grade}"] + ["blocking"] * point.blocking
    marks += ["LATE"] if point.open and _today() > point.due else []
    about = " of ".join(part for part in (point.criterion, point.node) if part)
    said = f"{point.id}  {state}, {', '.join(marks)}: {f'{about}: ' if about else ''}{point.text}"
    why = f"    closed {point.closed}{f' by {point.closed_by}' if point.closed_by else ''}: {point.closed_why}"
    return f"{said}\n" + (f"    {point.owner}, until {point.due}" if point.open else why)


def _say(path: Path, point: Point, as_json: bool) -> None:
    if as_json:
        answers.say("point", {"file": str(path), "point": point.model_dump(mode="json", by_alias=True)})
    else:
        click.echo(f"{_line(point)}\n{path}")


def _held(points: tuple[Point, ...]) -> Exit:
    return Exit.FAILED if any(point.open and point.blocking for point in points) else Exit.OK


@handover.command(epilog=epilogue("handover points"))
@inventory_option
@click.option("--all", "whole", is_flag=True, help="List closed points too.")
@json_option
def points(inventory: Path, whole: bool, as_json: bool) -> None:
    """List the open points of a site.

    \b
    toolkit handover points -i inventories/SITE
    toolkit handover points -i inventories/SITE --all
    """
    path, found = _listed(inventory)
    shown = [point for point in found if whole or point.open]
    if as_json:
        listed = [point.model_dump(mode="json", by_alias=True) for point in shown]
        answers.say("points", {"file": str(path), "points": listed})
    else:
        for point in shown:
            click.echo(_line(point))
        count = sum(point.open for point in found)
        click.echo(f"{path}: {number_of(count, 'open point')}, {len(found) - count} closed")
    raise SystemExit(_held(found))


@handover.command("open", epilog=epilogue("handover open"))
@click.argument("text")
@click.option("--class", "grade", type=GRADE, required=True,
              help="Say how bad it is (A: unusable as ordered, B: limited, C: untidy).")  # fmt: skip
@click.option("--owner", required=True, metavar="NAME", help="Name who is to do it.")
@click.option("--due", type=DAY, required=True, metavar="DAY", callback=lambda _ctx, _option, at: at.date(),
              help="Give its last day, as 2026-12-31.")  # fmt: skip
@click.option("--criterion", metavar="ID", help="Have later runs close it by this criterion.")
@click.option("--node", metavar="NODE", help="Name the node that it is about.")
@click.option("--blocking", is_flag=True, help="Accept no run while it is open.")
@inventory_option
@json_option
def open_(inventory: Path, as_json: bool, **given: Any) -> None:
    """Write a point into the punch list of a site.

    \b
    toolkit handover open "label of rack 3" --class C --owner "B. Site" --due 2026-12-31
    toolkit handover open "cable on order" --class B --owner A --due 2026-12-31 --criterion tr.tcpbw --node gpu2
    """
    from toolkit.handover import punch_file
    from toolkit.handover.made_point import made_point
    from toolkit.inventory import read_inventory

    path, found = _listed(inventory)
    nodes = [node.name for node in read_inventory(inventory).nodes] if given["node"] is not None else []
    point = made_point(found, _today(), nodes, **given)
    punch_file.write(path, (*found, point))
    _say(path, point, as_json)


@handover.command(epilog=epilogue("handover close"))
@click.argument("point", metavar="POINT")
@click.option("--why", required=True, metavar="TEXT", help="Write what shows that it is done, and who saw it.")
@inventory_option
@json_option
def close(point: str, why: str, inventory: Path, as_json: bool) -> None:
    """Close a point of the punch list by hand.

    A point with a criterion is opened again by a run in which that criterion fails.

    \b
    toolkit handover close P3 --why "label seen by C. Customer" -i inventories/SITE
    """
    from toolkit.handover import punch_file
    from toolkit.handover.made_point import closed

    path, found = _listed(inventory)
    old = punch_file.only(found, point, path)
    if not old.open:
        raise UsageFault(f"{path}: {old.id} was closed on {old.closed} already: {old.closed_why}")
    new = closed(old, why, _today())
    punch_file.write(path, [new if one.id == new.id else one for one in found])
    _say(path, new, as_json)


@handover.command(epilog=epilogue("handover update"))
@click.argument("run", required=False)
@click.option("-i", "--inventory", type=click.Path(path_type=Path), show_default="that of the run",
              help="Write into the punch list beside this inventory.")  # fmt: skip
@click.option("--owner", metavar="NAME", help="Name who is to do what the run found.")
@click.option("--due", type=DAY, metavar="DAY",
              help="Give new points this last day.  [default: a waiver's, else 30 days after the run]")  # fmt: skip
@json_option
@kept_runs_option
def update(run: str | None, inventory: Path | None, owner: str | None, due: datetime | None, as_json: bool,
           runs_dir: Path) -> None:  # fmt: skip
    """Close, keep and add points of the punch list by a run.

    A point is closed where all that its criterion judged of it passes in the run, and kept with the reason otherwise.
    What failed becomes a blocking point of class A, what was waived a point of class B. While nobody has signed the
    run, the list is then taken into it, and its verdict and report are written again: it is signed with the run.

    \b
    toolkit handover update --owner "A. Example, Integrator"
    toolkit handover update RUN -i inventories/SITE --due 2026-12-31
    """
    from toolkit.handover.updating import update_list

    with working("reading the run") as shown:
        done = update_list(runs_dir, run, inventory, owner, due.date() if due else None, shown.now)
    if as_json:
        names = {key: [p.id for p in getattr(done.made, key)] for key in ("closed", "reopened", "new")}
        listed = [point.model_dump(mode="json", by_alias=True) for point in done.made.points]
        answers.say("points-updated", {"file": str(done.path), "run": done.run, "taken": done.taken, **names,
                                       "points": listed})  # fmt: skip
    else:
        _print(done.made, done.kept)
        click.echo(f"{done.path}: {number_of(sum(p.open for p in done.made.points), 'open point')}")
        click.echo(done.words)
    raise SystemExit(_held(done.made.points))


def _print(made: Updated, kept: dict[str, str]) -> None:
    for word, some in (("closed", made.closed), ("open again", made.reopened), ("new", made.new)):
        for point in some:
            click.echo(f"{word}: {_line(point)}")
    for point in made.points:
        if point.open and point.id in kept and point not in made.new and point not in made.reopened:
            click.echo(f"kept: {point.id}: {kept[point.id]}")


handover.add_command(sum_)
handover.add_command(check_sum)
handover.add_command(evidence)
handover.add_command(witness)
