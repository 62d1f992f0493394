"""`toolkit incidents`: GPU servers that fail their health are taken out, mended and accepted again."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import click

from toolkit import answers
from toolkit.command_class import command
from toolkit.commands.lease_shared import grace_type
from toolkit.commands.options import inventory_option, json_option, runs_dir_option
from toolkit.errors import UsageFault
from toolkit.exits import Exit, epilogue
from toolkit.incident.steps import OPTIONAL, Step
from toolkit.interruption import term_as_ctrl_c
from toolkit.loudness import progress

if TYPE_CHECKING:  # loaded when nodes are read, not for --help
    from toolkit.incident.state import Incident

EVERY_S = 15


@command(epilog=epilogue("incidents"))
@inventory_option
@click.option("--do", "steps", metavar="STEPS", default="", callback=lambda _ctx, _param, text: _steps(text),
              help="Do these, of drain,support,reset,reboot,accept, or all.  [default: none, a dry run]")  # fmt: skip
@click.option("--most", "most_percent", type=click.FloatRange(1, 100), default=10.0, show_default=True,
              metavar="PERCENT", callback=lambda _ctx, _param, percent: _finite(percent),
              help="Never have more of the pool's servers out of service.")  # fmt: skip
@click.option("--once", is_flag=True, help="Look once, mend what is found, and end.  [default: until Ctrl-C]")
@click.option("--every", "every_s", type=click.IntRange(5, 15), default=EVERY_S, show_default=True, metavar="S",
              help="Seconds between two looks.")  # fmt: skip
@click.option("--node", metavar="NODE", help="Go on with the incident of this node alone.")
@click.option("--accepted", metavar="RUN", help="Hold a node against this run.  [default: the newest accepted]")
@click.option("--grace", "grace_s", type=grace_type, metavar="TIME",
              help="Take leases back after this notice, such as 10m; without it they are waited for.")  # fmt: skip
@runs_dir_option
@json_option
def incidents(node: str | None, as_json: bool, **given: Any) -> None:
    """Take out and mend GPU servers that fail.

    Reads GPUs and kernel log of each GPU server again and again. One that fails is drained by Slurm with the reason
    within a minute; what runs there is waited for. Its file for support is made before anything is restarted. Then its
    GPUs are reset where NVIDIA's Xid policy asks for that, and the server is restarted where a reset did not help. It
    takes work again only after its short acceptance. A part that is to be replaced stays drained, and so does all that
    somebody else has drained. Each step is printed and logged. Without --do nothing is done.

    \b
    toolkit incidents -i inventories/site                        a dry run: what would be done
    toolkit incidents -i inventories/site --do drain,support
    toolkit incidents -i inventories/site --do all --most 5
    """
    from toolkit.incident.mending import Mending
    from toolkit.incident.watching import Asked, Watch

    asked = Asked(**given)
    try:
        with term_as_ctrl_c():
            if node is not None:
                if not asked.steps:
                    raise UsageFault(f"--node {node}: name what may be done with --do; nothing was changed")
                mending = Mending(asked, node, progress)
                with mending.kept.locked(node):
                    raise SystemExit(mending.go())
            watch = Watch(asked, progress)
            watch.refuse_unaccepted()
            with watch.kept.locked("all"):
                found = watch.run()
    except KeyboardInterrupt:
        click.echo("interrupted; the same command goes on where each node is", err=True)
        raise SystemExit(Exit.INTERRUPTED) from None
    found = [watch.kept.read(one.node) or one for one in found]
    if as_json:
        answers.say("incidents", {"incidents": [_document(one) for one in found]})
    for one in found:
        if not as_json:
            click.echo(f"{one.node}  {one.step}: {one.why or one.faults[0].words}")
    raise SystemExit(Exit.FAILED if any(one.step != "done" for one in found) else Exit.OK)


def _finite(percent: float) -> float:
    """UsageFault for what is no number."""
    if not math.isfinite(percent):
        raise UsageFault(f"--most {percent}: give a number from 1 to 100")
    return percent


def _steps(text: str) -> tuple[Step, ...]:
    """UsageFault for a word that is no step, and for steps without the drain that they need."""
    if not text:
        return ()
    names = list(OPTIONAL) if text.strip() == "all" else [word.strip() for word in text.split(",") if word.strip()]
    if strange := [name for name in names if name not in OPTIONAL]:
        raise UsageFault(f"--do {strange[0]}: no such step; there are {', '.join(OPTIONAL)}, and all")
    if "drain" not in names:
        raise UsageFault("--do: drain is needed by all others; name it too")
    return tuple(step for step in OPTIONAL if step in names)


def _document(one: Incident) -> dict[str, object]:
    return {
        "node": one.node, "began": one.began, "faults": [fault.words for fault in one.faults], "step": one.step,
        "why": one.why, "file": one.file, "mended_by": one.mended_by,
    }  # fmt: skip
