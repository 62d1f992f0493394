"""What `toolkit upgrade` and `toolkit rollback` have in common: their options, and how they are carried out."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import click

from toolkit import answers
from toolkit.commands.lease_shared import grace_type
from toolkit.commands.options import inventory_option, json_option, runs_dir_option
from toolkit.exits import Exit
from toolkit.loudness import progress
from validation.base.errors import ToolkitError

if TYPE_CHECKING:  # loaded when nodes are changed, not for --help
    from toolkit.upgrade.plan import Verb
    from toolkit.upgrade.rolling import Rolling
    from toolkit.upgrade.state import State

F = TypeVar("F", bound=Callable[..., object])


def upgrade_options(command: F) -> F:
    """Which nodes, held against what, and for how long."""
    options = (
        inventory_option,
        click.option("--limit", metavar="NODES", help="Change these nodes alone, as ansible-playbook takes them."),
        click.option("--dry-run", is_flag=True, help="Print the plan, or where an unfinished one is; change nothing."),
        click.option(
            "--accepted",
            metavar="RUN",
            help="Hold each batch against this accepted run.  [default: the newest that was accepted]",
        ),
        click.option(
            "--grace",
            "grace_s",
            type=grace_type,
            metavar="TIME",
            help="Take leases back, after this notice to their programs, such as 10m; without it they are waited for.",
        ),
        click.option(
            "--budget",
            "budget_s",
            type=grace_type,
            metavar="TIME",
            help="Begin no further batch after this time, such as 4h.",
        ),
        click.option(
            "--without",
            multiple=True,
            metavar="NODE",
            help="Leave this node out of an unfinished one; it stays drained. May be given several times.",
        ),
        runs_dir_option,
        json_option,
    )
    for option in reversed(options):
        command = option(command)
    return command


def carried_out(verb: Verb, dry_run: bool, as_json: bool, **given: Any) -> NoReturn:
    """The plan, and then all batches; ends with its exit code."""
    from toolkit.upgrade import words
    from toolkit.upgrade.rolling import Asked, Rolling

    rolling = Rolling(Asked(verb=verb, **given), progress)
    if dry_run:
        _dry(rolling, as_json)
    with rolling.kept.locked():
        state = rolling.open()
        if (idle := rolling.untouched()) is not None:
            with _stopped(rolling, as_json):
                rolling.drop(idle)
            _dropped(idle, "done", as_json)
        if (back := rolling.taken_back()) is not None:
            last = rolling.kept.read_last()
            if last is not None:
                rolling.kept.told()
            _taken_back(back, last, as_json)
        rolling.accepted()  # refused before anything is changed
        plan = rolling.plan() if state is None else None
        if plan is not None:
            _said([*words.plan_lines(plan), *words.lost_lines(rolling.lost(plan))], as_json)
            if not plan.batches and rolling.replaced() is None:
                if as_json:
                    answers.say("upgrade", words.plan_document(plan))
                raise SystemExit(Exit.OK)
        with _stopped(rolling, as_json):
            if plan is not None:
                state = rolling.begin(plan)
            elif state is not None:
                state = rolling.leave_out(state)
                _said(words.state_lines(state, rolling.kept.read_last()), as_json)
                progress(f"going on with {state.where()}")
            assert state is not None
            state, code = rolling.go(state)
    _end(rolling, state, code, as_json)
    raise SystemExit(code)


@contextlib.contextmanager
def _stopped(rolling: Rolling, as_json: bool) -> Iterator[None]:
    """Whatever ends it in between: where it is, who is drained, and how to go on."""
    from toolkit.upgrade import words
    from toolkit.upgrade.rolling import Halted

    try:
        yield
    except (Exception, KeyboardInterrupt, SystemExit) as fault:
        found = None
        with contextlib.suppress(ToolkitError):  # a state that cannot be read says so by itself
            found = rolling.kept.read_open()
        if found is not None:
            who = f"; {names}" if (names := words.drained(found)) else ""
            click.echo(f"stopped at {found.where()}{who}; {_again(rolling, found)}", err=True)
            if as_json and isinstance(fault, Halted):
                answers.say("upgrade", words.state_document(found, "stopped"))
        raise


def _dry(rolling: Rolling, as_json: bool) -> NoReturn:
    from toolkit.upgrade import words

    state = rolling.open()
    if (idle := rolling.untouched()) is not None:
        _dropped(idle, "planned", as_json)
    if (back := rolling.taken_back()) is not None:
        _taken_back(back, rolling.kept.read_last(), as_json)
    if state is not None:
        _said(words.state_lines(state, rolling.kept.read_last()), as_json)
        document = words.state_document(state, "open")
    else:
        plan = rolling.plan()
        _said([*words.plan_lines(plan), *words.lost_lines(rolling.lost(plan))], as_json)
        document = words.plan_document(plan)
    if as_json:
        answers.say("upgrade", document)
    raise SystemExit(Exit.OK)


def _dropped(state: State, how: str, as_json: bool) -> NoReturn:
    """An upgrade that had changed no node was given up, or would be."""
    from toolkit.upgrade import words

    _said(words.dropped_lines(state, how == "done"), as_json)
    if as_json:
        empty = state.model_copy(update={"verb": "rollback", "to": state.nodes[0].release, "batches": ()})
        answers.say("upgrade", words.state_document(empty, how))
    raise SystemExit(Exit.OK)


def _taken_back(state: State, last: State | None, as_json: bool) -> NoReturn:
    """A rollback was finished before."""
    from toolkit.upgrade import words

    _said(words.taken_back_lines(state, last), as_json)
    if as_json:
        answers.say("upgrade", words.state_document(state, "nothing to do"))
    raise SystemExit(Exit.OK)


def _said(lines: list[str], as_json: bool) -> None:
    for line in lines:
        click.echo(line, err=as_json)


def _end(rolling: Rolling, state: State, code: Exit, as_json: bool) -> None:
    from toolkit.upgrade import words

    how = {Exit.OK: "done", Exit.FAILED: "failed"}.get(code, "stopped")
    _said(words.state_lines(state, rolling.kept.read_last()), as_json)
    if as_json:
        answers.say("upgrade", words.state_document(state, how))
    if code == Exit.OK:
        progress(words.afterwards(state, rolling.asked.inventory))
    else:
        who = f"{names}; " if (names := words.drained(state)) else ""
        click.echo(f"{who}{_again(rolling, state)}", err=True)


def _again(rolling: Rolling, state: State) -> str:
    where = f"-i {rolling.asked.inventory}"
    to = f" --to {state.to}" if state.verb == "upgrade" else ""
    back = f"take it back: toolkit rollback {where}"
    if state.verb == "rollback":
        releases = sorted({one.to for one in state.nodes})
        back = f"go on to the new release instead: toolkit upgrade --to {releases[0]} {where}"
    return (
        f"continue with: toolkit {state.verb}{to} {where}; or {back}; a node that does not come back is left out by "
        "--without NODE"
    )
