"""A drill as it was asked for: which faults are planted in which turns, and how each turn is validated."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from toolkit.errors import UsageFault
from toolkit.lab import drill as drills
from toolkit.lab import drill_record, drill_validation, drillplan
from toolkit.lab.drill import Drilled
from toolkit.lab.drillplan import Turn
from toolkit.lab.faults import FAULTS
from toolkit.lab.host import become_root
from toolkit.lab.lab import load
from toolkit.lab.spec import LabSpec, inventory_dir
from validation.base.project import python_words
from validation.model import VerdictDoc

CLEAN = ("preflight", "as-built", "transport")
"""Suites of a clean run: those in which faults are found."""

Say = Callable[[str], None]


@dataclass(frozen=True)
class DrillRequest:
    """The options of `toolkit lab drill` as they were given. `kinds`: of faults; `clean`: runs without a fault."""

    name: str
    inventory: Path | None
    kinds: tuple[str, ...]
    every: bool
    without: tuple[str, ...]
    clean: int | None
    alone: bool
    narrow: bool
    fabric: str
    suites: tuple[str, ...]
    out: Path
    anew: bool

    def checked(self) -> DrillRequest:
        """Itself. UsageFault for options that do not go together."""
        if self.every and self.kinds:
            raise UsageFault("--all is every fault; omit --fault")
        return self

    @property
    def asked(self) -> tuple[str, ...]:
        """The faults that are asked for: those named, all of them, none beside clean runs, else the short drill's."""
        if self.kinds or self.every:
            return self.kinds or tuple(FAULTS)
        return () if self.clean else drillplan.SHORT

    def left_out(self, spec: LabSpec) -> dict[str, str]:
        """Of what is asked for the faults that are not planted, and why."""
        absent = {kind: why_not(spec, kind) for kind in self.asked if not drillplan.candidates(spec, kind)}
        return absent | {kind: "left out by --except" for kind in self.asked if kind in self.without}

    def turns(self, spec: LabSpec, done: Iterable[Drilled]) -> list[Turn]:
        """What is still to be done: clean runs first, then as many faults at once as do not hide each other."""
        known = {one.kind or one.turn for one in done}
        turns = [drillplan.clean(n + 1, self.suites or CLEAN) for n in range(1 if self.clean is None else self.clean)]
        turns = [turn for turn in turns if turn.name not in known]
        wanted = [kind for kind in self.asked if kind not in self.without and kind not in known]
        # Names of later turns go on where those of an earlier command ended, so that no run takes another's folder.
        first = len([path for path in self.out.glob("turn-*") if path.is_dir()]) if self.out.is_dir() else 0
        for number, turn in enumerate(drillplan.turns(spec, wanted, self.alone), first + 1):
            turns.append(Turn(f"turn-{number}", turn.planted, self.suites or turn.suites))
        return turns

    def command(self, turn: Turn) -> list[str]:
        """The validation of a turn."""
        words = [word for suite in turn.suites for word in ("--suite", suite)]
        words += [word for id_ in drillplan.without(turn, self.narrow) for word in ("--without", id_)]
        where = str(self.inventory or inventory_dir(self.name))
        start = [*python_words("toolkit"), "validate", "-i", where, "--fabric", self.fabric]
        return [*start, *words, "--runs-dir", str(self.out / turn.name), "--format", "none"]


def why_not(spec: LabSpec, kind: str) -> str:
    """Why no node of a lab can have a fault, in words."""
    if FAULTS[kind].vm_only and not spec.vms:
        return "needs a virtual machine"
    if FAULTS[kind].bmc and not spec.bmc:
        return "needs a BMC (lab up --bmc)"
    if FAULTS[kind].switch and not spec.switch:
        return "needs a switch (lab up --switch)"
    if FAULTS[kind].storage and not spec.storage:
        return "needs a storage (lab up --storage, containers)"
    return "no node of this lab can have it"


def carry_out(request: DrillRequest, say: Say) -> list[Drilled]:
    """Plant, validate, clear, turn by turn; what an earlier command of the same folder did is not done again. Ctrl-C
    (KeyboardInterrupt) clears what is planted.
    """
    request.checked()
    become_root()
    spec, out = load(request.name), request.out
    left_out = request.left_out(spec)
    for kind, why in sorted(left_out.items()):
        say(f"{kind:32} left out: {why}")
    done = [] if request.anew else drill_record.read_drill(out, request.name)
    if known := {one.kind or one.turn for one in done}:
        say(f"{out / 'drill.json'} has {len(known)} of them; --anew plants them again")

    def validate(turn: Turn, begun: Callable[[], None] | None) -> VerdictDoc:
        return drill_validation.run(request.command(turn), out / turn.name, begun)

    def keep(turn: Sequence[Drilled]) -> None:
        done.extend(turn)
        drill_record.write_drill(out, request.name, done, left_out)

    drills.drill(spec, request.turns(spec, done), validate, say, keep)
    drill_record.write_drill(out, request.name, done, left_out)
    return done
