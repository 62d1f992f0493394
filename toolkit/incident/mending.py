"""One node's incident from its drain to its end, step by step; each is written down before it begins."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from toolkit import acceptance
from toolkit.errors import UsageFault
from toolkit.exits import Exit
from toolkit.incident.faults import Fault, cure_of, judged, reason_of
from toolkit.incident.state import Incident, now
from toolkit.incident.steps import STEPS, Step
from toolkit.incident.watching import Asked, Watch, allowed, beyond, can_be_ours
from toolkit.node import accept, checks, playbooks
from toolkit.node.drain import IncidentDrain, still_drained
from toolkit.node.head import last_words, run_on
from toolkit.node.leave import wait_empty
from toolkit.support.gather import Request, make
from toolkit.upgrade import held
from validation.base.errors import ToolkitError
from validation.model import Node

Say = Callable[[str], None]
RESET_S = 300.0
REASON = "/run/elastic-ai/reboot-required/incident"
REBOOT = Path("playbooks/reboot.yml")


class Stays(ToolkitError):
    """The node stays drained, for a person."""


class Mending:
    """Of one node. Nothing is done that `asked.steps` does not name."""

    def __init__(self, asked: Asked, name: str, say: Say) -> None:
        """UsageFault for a node without an incident."""
        self.watch = Watch(asked, say)
        self.asked, self.head, self.kept = asked, self.watch.head, self.watch.kept
        self._say, self._name = say, name
        node = next((node for node in self.watch.nodes if node.name == name), None)
        incident = self.kept.read(name)
        if node is None:
            raise UsageFault(f"{asked.inventory}: no GPU server {name}")
        if incident is None:
            raise UsageFault(f"{name} has no incident")
        self.node: Node = node
        self.incident: Incident = incident

    def say(self, words: str) -> None:
        """Of this node."""
        self._say(f"{self._name}: {words}")

    def go(self) -> Exit:
        """All steps that are left. UsageFault where the last of them could not be done."""
        if not self.incident.open:
            self.say(self.incident.why or self.incident.step)
            return Exit.OK if self.incident.step == "done" else Exit.FAILED
        self.watch.refuse_unaccepted()
        try:
            for step in STEPS[STEPS.index(self.incident.step) :]:
                self._at(step)
                self._step(step)
            self._at("done", f"takes work again, mended by {self.incident.mended_by or 'nothing'}")
        except Stays as fault:
            self._at("waits", str(fault))
            self.say(f"{'stays drained: ' if self.incident.drained else ''}{fault}")
            return Exit.FAILED
        self.say(self.incident.why)
        return Exit.OK

    def _at(self, step: Step, why: str = "") -> None:
        ended = now() if step == "done" else self.incident.ended
        self.incident = self.kept.write(self.incident.model_copy(update={"step": step, "why": why, "ended": ended}))

    def _note(self, **changed: str | bool) -> None:
        self.incident = self.kept.write(self.incident.model_copy(update=changed))

    def _step(self, step: Step) -> None:
        if step == "drain":
            self._drain()
        elif step == "support":
            self._support()
        elif step == "empty":
            self._empty()
        elif step == "reset":
            self._reset()
        elif step == "reboot":
            self._reboot()
        elif step == "accept":
            self._accept()
        else:
            self._resume()

    def _ours(self) -> bool:
        there = self.head.nodes().get(checks.short(self.node.name))
        return there is not None and not there.serves and still_drained(there.state, there.reason, self.incident.reason)

    def _drain(self) -> None:
        """By the watch already, unless it was killed between its note and its word to Slurm. Who was drained and serves
        was resumed by a person."""
        if self.incident.drained:
            return
        with self.kept.draining():
            pool = self.head.nodes()
            there = pool.get(checks.short(self.node.name))
            if there is not None and can_be_ours(there):
                if there.serves and allowed(pool, self.asked.most_percent) < 1:
                    raise Stays(f"{reason_of(self.incident.faults)}; {beyond(pool)}", Exit.FAILED)
                self.head.drain(checks.short(self.node.name), IncidentDrain(reason_of(self.incident.faults)))
            self._note(drained=True)

    def _support(self) -> None:
        """Before anything is restarted. That it cannot be made stops nothing that was allowed."""
        if "support" not in self.asked.steps or self.incident.file:
            return
        folder = self.kept.folder / "support"
        folder.mkdir(parents=True, exist_ok=True)
        try:
            packed = make(
                Request(self.node.name, "", self.asked.inventory, self.asked.runs_dir, folder), self._say, _no
            )
        except (UsageFault, OSError) as fault:
            self.say(f"no file for support: {fault}")
            return
        self._note(file=str(packed.file))
        self.say(f"file for support: {packed.file}")

    def _empty(self) -> None:
        if not {"reset", "reboot", "accept"} & set(self.asked.steps):
            raise Stays(f"{reason_of(self.incident.faults)}; nothing more is allowed (--do)", Exit.FAILED)
        if self.incident.again:
            words = f"{reason_of(self.incident.faults)}, and it was mended less than a day before{self._file()}"
            raise Stays(words, Exit.FAILED)
        wait_empty(self.head, checks.short(self.node.name), self.asked.grace_s, self.say)
        if not self._ours():
            raise Stays("somebody else has resumed or drained it meanwhile; it is left to them", Exit.FAILED)

    def _reset(self) -> None:
        """All GPUs of the node: it is empty, and those of one NVSwitch are reset together."""
        cure = cure_of(self.incident.faults)
        if cure == "replace":
            raise Stays(f"{reason_of(self.incident.faults)}: a part is to be replaced{self._file()}", Exit.FAILED)
        if cure != "reset" or "reset" not in self.asked.steps:
            return
        done = run_on(self.node, ["nvidia-smi", "--gpu-reset"], RESET_S)
        if done.returncode != 0:
            self.say(f"the GPUs could not be reset: {last_words(done.stderr or done.stdout)}")
        elif not (left := self._left()):
            self._note(mended_by="a reset of the GPUs")
        else:
            self.say(f"after the reset still: {reason_of(left)}")

    def _reboot(self) -> None:
        if self.incident.mended_by:
            return
        if "reboot" not in self.asked.steps:
            raise Stays(
                f"{reason_of(self.incident.faults)}: a restart is not allowed (--do){self._file()}", Exit.FAILED
            )
        if self.node.name == self.head.node.name:
            raise Stays(
                f"{reason_of(self.incident.faults)}: it is the head; restart it by hand{self._file()}", Exit.FAILED
            )
        words = ["sh", "-c", f"mkdir -p {Path(REASON).parent} && echo incident > {REASON}"]
        done = run_on(self.node, words)
        if done.returncode != 0:
            raise Stays(f"it does not take a reason for its restart: {last_words(done.stderr)}", Exit.FAILED)
        try:
            limit = f"{self.node.name},{self.head.node.name}"
            consent = f"{{{{ 'if_needed' if inventory_hostname == '{self.node.name}' else 'never' }}}}"
            playbooks.run(REBOOT, self.asked.inventory, limit, ["-e", f'{{"reboot": "{consent}"}}'])
        except playbooks.PlaybookFault as fault:
            raise Stays(f"its restart failed: {fault}{self._file()}", Exit.FAILED) from None
        if left := self._left():
            raise Stays(f"after a restart still: {reason_of(left)}{self._file()}", Exit.FAILED)
        self._note(mended_by="a restart")

    def _left(self) -> list[Fault]:
        """States that two readings show; a node that does not answer is one too."""
        there = self.head.nodes().get(checks.short(self.node.name))
        gpus, seen = (there.gpus if there is not None else 0), None
        faults = list[Fault]()
        for _ in range(2):
            answer = self.watch.read(self.node)
            if isinstance(answer, str):
                return [Fault(cure="reboot", words=answer, lasting=True)]
            faults, seen = judged(answer, seen, gpus)
        return faults

    def _accept(self) -> None:
        """Its own short acceptance, against what the site was accepted with."""
        if "accept" not in self.asked.steps:
            raise Stays(f"mended by {self.incident.mended_by}; accept it and resume it (scontrol update)", Exit.FAILED)
        try:
            site = self.watch.site
            accepted = checks.accepted_run(self.asked.runs_dir, self.asked.accepted, site.topology, self.node.name)
            planned = accept.plan_for(site, self.asked.inventory, accepted, self.node, (), held.SUITES)
            earlier = Path(self.incident.run) if self.incident.run else None
            earlier = earlier if earlier and (earlier / "run.json").is_file() else None
            run, faults = held.held(
                planned, accepted, self.asked.runs_dir, earlier, lambda path: self._note(run=str(path.resolve()))
            )
        except (acceptance.Interrupted, KeyboardInterrupt):
            raise
        except ToolkitError as fault:
            raise Stays(f"its acceptance did not come to an end: {fault}", Exit.FAILED) from None
        if faults:
            raise Stays(f"{run}: {faults[0]}{self._file()}", Exit.FAILED)

    def _resume(self) -> None:
        """A node that serves was resumed by this step before it was killed, or by somebody since its acceptance; both
        are an end, after which a fault within a day is known as one that came back."""
        there = self.head.nodes().get(checks.short(self.node.name))
        if there is not None and there.serves:
            return
        if not self._ours():
            raise Stays("somebody else has resumed or drained it meanwhile; it is left to them", Exit.FAILED)
        self.head.resume(checks.short(self.node.name))

    def _file(self) -> str:
        return f"; its file for support: {self.incident.file}" if self.incident.file else ""


def _no(_words: str) -> None:
    """Progress within a step is not printed."""
