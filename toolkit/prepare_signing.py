"""What `toolkit sign` and `toolkit bundle` do first: a run with a verdict and a report in every format."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from toolkit import acceptance
from toolkit.errors import UsageFault
from validation.model.load import ConfigError
from validation.run.names import INVENTORY, VERDICT
from validation.run.read import read
from validation.signing import is_signed


def complete(run_dir: Path, say: Callable[[str], None]) -> None:
    """Judge a run that was never judged and write its report, all formats; a signed run is left as it is.

    The report is written anew even where there is one: what is signed is what the data give. Of the PDF, which takes
    long, that is known where this user's toolkit has made exactly it of the same text. The run must be locked.
    """
    from validation.report.formats import FILES  # only here: templates and figures are slow to load
    from validation.signing.again import judged_again

    if is_signed(run_dir):
        return
    if not (run_dir / VERDICT).exists():
        acceptance.judge_run(run_dir)
        say("this run was never judged; judging it now")
    run = read(run_dir)
    _, fault = judged_again(run)
    if fault:
        raise ConfigError(f"{run_dir / fault}; run: toolkit validate --rejudge {run_dir}")
    if not (run_dir / INVENTORY).exists():
        say(f"{INVENTORY}: missing, because an older release made this run; continuing without it")
    written = acceptance.write_report(run, trusting=True)
    for name, why in written.left_out.items():
        stale = run_dir / FILES[name]
        if stale.exists():
            raise UsageFault(f"{stale}: cannot be made again here ({why}); remove it, or install what is missing")
        say(f"{why}; continuing without {stale.name}")
