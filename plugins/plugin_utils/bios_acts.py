"""What role bios does with a server's BIOS: make wishes pending, put a profile back, read back after a start."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ansible_collections.elastic_ai.toolkit.plugins.plugin_utils import bios
from ansible_collections.elastic_ai.toolkit.plugins.plugin_utils.bmc import POLL_S, Fault, Machine, redfish

READ_S = 120.0
"""For one reading of a BMC, slow answers included. Project default."""
Doc = dict[str, Any]


@dataclass
class Done:
    """What was done, or in check mode would be. `waiting`: the host's next start carries it out."""

    changed: bool = False
    changes: list[str] = field(default_factory=list)
    postponed: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    waiting: bool = False
    profile: str = ""

    def answer(self) -> Doc:
        """As the module's result."""
        return dict(vars(self))


@dataclass(frozen=True)
class Store:
    """Where a node's profile from before the first change is kept."""

    path: Path

    def read(self) -> Doc | None:
        """The profile, None where there is none; Fault."""
        try:
            document = json.loads(self.path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as fault:
            raise Fault(f"{self.path}: this profile cannot be read: {fault}") from None
        if not bios.profile_values(document):
            raise Fault(f"{self.path}: this profile holds no BIOS attributes")
        return dict(document)

    def keep(self, profile: Doc) -> None:
        """Write it, for this user alone, whole or not at all; Fault."""
        try:
            self._write(self.path, profile)
        except OSError as fault:
            words = f"{self.path}: the profile cannot be written here: {fault.strerror}"
            raise Fault(f"{words}, so nothing is changed; bios_profiles names another folder") from None

    def keep_postponed(self, names: Sequence[str]) -> None:
        """Write which attributes wait for another start, for whichever run reboots the node; Fault."""
        try:
            self._postponed.unlink(missing_ok=True)
            if names:
                self._write(self._postponed, sorted(names))
        except OSError as fault:
            words = f"{self._postponed}: what waits for another start cannot be written here: {fault.strerror}"
            raise Fault(f"{words}; bios_profiles names another folder") from None

    def postponed(self) -> list[str]:
        """Attributes that wait for another start; none where that is not known."""
        try:
            names = json.loads(self._postponed.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return []
        return [str(name) for name in names] if isinstance(names, list) else []

    @property
    def _postponed(self) -> Path:
        return self.path.with_suffix(".postponed.json")

    def _write(self, path: Path, document: Any) -> None:
        new = self.path.with_suffix(".new")
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
            json.dump(document, file, indent=1)
        new.replace(path)

    def away(self) -> None:
        """It was put back: it is kept under another name, and the next change exports a new one. Fault."""
        try:
            self._postponed.unlink(missing_ok=True)
            self.path.replace(self.path.with_suffix(".restored.json"))
        except OSError as fault:
            words = f"{self.path}: the BIOS has this profile again, and the file cannot be renamed: {fault.strerror}"
            raise Fault(f"{words}; move it away") from None


def present(machine: Machine, wishes: Mapping[str, bios.Wish], store: Store, check: bool) -> Done:
    """Make the wishes pending for the next start; nothing in check mode. Fault."""
    plan = bios.plan_of(machine.values, machine.registry, wishes)
    if plan.faults:
        raise Fault(f"nothing is set: {bios.joined(plan.faults)}")
    done = Done(changes=plan.words(), notes=plan.notes, profile=str(store.path) if store.path.exists() else "")
    wanted = {name: value for step in plan.steps for name, value in step.items()}
    _of_others(machine, plan)
    if machine.jobs:
        if not machine.pending or any(job.get("JobState") == "Running" for job in machine.jobs):
            raise Fault(f"another job of the BMC changes the BIOS: {machine.job_words()}. Run this again after it")
        done.waiting = True
        done.postponed = sorted(wanted.keys() - machine.pending.keys())
        return done
    done.changed = bool(plan.steps)
    if not done.changed:
        return done
    machine.unlocked()
    if not check:
        if store.read() is None:
            store.keep(machine.profile())
        done.profile = str(store.path)
        done.postponed = machine.set(plan.steps)
        store.keep_postponed(done.postponed)
        done.waiting = True
    return done


def _of_others(machine: Machine, plan: bios.Plan) -> None:
    """Fault where values wait for a start that are not of this plan."""
    final = {**machine.values, **{name: new for name, (_, new) in plan.changes.items()}}
    others = bios.differing(final, machine.pending)
    if others:
        job = f" by job {machine.job_words()}" if machine.jobs else ""
        words = f"BIOS values of somebody else wait for a start of the host{job}: {', '.join(sorted(machine.pending))}"
        raise Fault(f"{words}. Carry them out or take them back, then run this again")


def absent(machine: Machine, wishes: Mapping[str, bios.Wish], store: Store, check: bool) -> Done:
    """Put the kept profile back at the next start, or take back a job that has not begun. Fault."""
    profile = store.read()
    if profile is None:
        return Done()
    before = _settable(machine, profile)
    done = Done(
        changes=bios.differing(machine.values, before), notes=bios.by_hand(machine.values, profile),
        profile=str(store.path),
    )  # fmt: skip
    waits = [job for job in machine.jobs if job.get("JobState") != "Running"]
    if len(waits) < len(machine.jobs):
        raise Fault(f"another job of the BMC changes the BIOS: {machine.job_words()}. Run this again after it")
    if any(job.get("JobType") == "ImportConfiguration" for job in waits):
        done.waiting = True
        return done
    if waits and not machine.pending:  # ours always has pending values: this one is not ours to delete
        raise Fault(f"another job of the BMC changes the BIOS: {machine.job_words()}. Run this again after it")
    _of_others(machine, bios.plan_of(machine.values, machine.registry, wishes))
    done.changed = bool(done.changes or waits or machine.pending)
    if check:
        return done
    if done.changed:
        machine.unlocked()
    for job in waits:
        machine.forget(job)
    if machine.pending and not machine.clear():
        raise Fault("pending BIOS values could not be taken back: clear them in the BMC, then run this again")
    if done.changes:
        machine.put_back(bios.without_by_hand(profile))
        done.waiting = True
    else:
        store.away()
    return done


def _settable(machine: Machine, profile: Doc) -> Doc:
    """The profile's values that an import sets: not those that are read-only, or follow from others."""
    values = bios.profile_values(profile)
    return {name: value for name, value in values.items()
            if name in machine.values and machine.registry.attributes.get(name, {}).get("ReadOnly") is not True
            and not bios.SECRET.search(name) and name not in bios.BY_HAND}  # fmt: skip


def unmet(machine: Machine, wishes: Mapping[str, bios.Wish], postponed: Sequence[str]) -> list[str]:
    """What of the wishes the BIOS does not have, without those that wait for another start."""
    plan = bios.plan_of(machine.values, machine.registry, wishes)
    names = {name for step in plan.steps for name in step} - set(postponed)
    return [*plan.faults, *bios.differing(machine.values, {name: plan.changes[name][1] for name in names})]


def not_back(machine: Machine, store: Store) -> list[str]:
    """What of the kept profile the BIOS does not have; without any, the profile is put away."""
    profile = store.read()
    wrong = bios.differing(machine.values, _settable(machine, profile)) if profile is not None else []
    if profile is not None and not wrong:
        store.away()
    return wrong


def settled(
    opened: Callable[[float], Any],
    timeout_s: float,
    judge: Callable[[Machine], list[str]],
    postponed: Sequence[str] = (),
) -> Done:
    """Wait for the end of the jobs after a start of the host, and read back. Fault.

    opened: makes a session with that many seconds. judge: what of a BIOS is not as it should be, the postponed
    attributes left out.
    """
    until, pause_s = time.monotonic() + timeout_s, min(POLL_S, timeout_s / 10)
    while True:
        words, machine = "", None
        try:
            with opened(READ_S) as session:
                machine = Machine(session)
                if not machine.jobs:
                    wrong = judge(machine)
                    if wrong:
                        raise Fault(
                            f"after its start the BIOS is not as wanted: {bios.joined(wrong)}{_newest(machine)}"
                        )
                    return Done(postponed=list(postponed))
                words = f"job {machine.job_words()} has not ended: it is stuck, or the host was not started"
        except redfish.Refused as fault:
            if "login" in str(fault):  # a second try could lock the account
                raise
            words = str(fault)
        except Fault as fault:
            if machine is not None:
                raise
            words = str(fault)
        if time.monotonic() + pause_s > until:
            raise Fault(
                f"{words} (waited {timeout_s:g} s). Look at the job queue of the BMC; a stuck job is deleted there"
            )
        time.sleep(pause_s)


def _newest(machine: Machine) -> str:
    jobs = machine.queue()
    if not jobs:
        return ""
    job = jobs[-1]
    return f". Job {job.get('Id')} ended as {job.get('JobState')}: {job.get('MessageId')} {job.get('Message')}"
