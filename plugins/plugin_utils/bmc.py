"""BIOS attributes set by a server's BMC: pending values, a job that the next start of the host carries out, read back.

No host is started here. What is sent is one login, PATCH of pending values, POST of a job, export and import of a
profile, and what takes a job back that was not carried out.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from ansible_collections.elastic_ai.toolkit.plugins.plugin_utils import bios
from ansible_collections.elastic_ai.toolkit.plugins.plugin_utils.project import loaded

redfish: Any = loaded(Path(__file__).resolve().parents[2], "validation/probes/redfish.py")
DONE = ("Completed", "CompletedWithErrors", "Failed", "RebootCompleted", "RebootFailed")
KINDS = ("BIOSConfiguration", "ImportConfiguration")
"""Jobs that change the BIOS."""
POLL_S = 5.0
"""Between two looks at a job. Project default."""
MOST_PAGES = 40
"""Of the list of jobs. iDRAC has 50 jobs on a page, and keeps some hundreds. Project default."""
LOCKDOWN = "Lockdown.1.SystemLockdown"
Doc = dict[str, Any]


class Fault(Exception):
    """The BIOS cannot be set, or is not as it should be. `str(e)` is one sentence."""


def _part(document: Any, *keys: str) -> Any:
    for key in keys:
        document = document.get(key) if isinstance(document, Mapping) else None
    return document


class Machine:
    """A server's BIOS as its BMC shows it, read once; and how it is changed."""

    def __init__(self, session: Any) -> None:
        """Read it; Fault."""
        self._session = session
        root = self.get(redfish.ROOT, "the service")
        expand = _part(root, "ProtocolFeaturesSupported", "ExpandQuery") or {}
        whole = expand.get("Levels") is True and expand.get("ExpandAll") is True
        self._expand = "?$expand=*($levels=1)" if whole else ""
        system = self._first(root, "Systems")
        manager = self._first(root, "Managers")
        self._manager = manager
        jobs = _part(manager, "Links", "Oem", "Dell", "Jobs") or _part(manager, "Oem", "Dell", "Jobs") or {}
        self._jobs = self._link({"Jobs": jobs}, "Jobs")
        # Before the values: those that were read before a job ended would be taken for what it left.
        self.jobs = [job for job in self.queue() if job.get("JobState") not in DONE]
        self._bios_path = self._link(system, "Bios")
        document = self.get(self._bios_path, "Bios")
        self._settings = self._link(document, "@Redfish.Settings", "SettingsObject")
        settings = self.get(self._settings, "pending BIOS values")
        self._clear = str(_part(settings, "Actions", "Oem", "#DellManager.ClearPending", "target") or "")
        label = f"{system.get('Model')} ({manager.get('Model')}, {manager.get('FirmwareVersion')})"
        self.values: Doc = dict(_part(document, "Attributes") or {})
        self.pending = self._waiting(settings)
        # Where it is not: every value would be accepted, the wrong one too.
        self.registry = bios.registry_of(self.get(f"{self._bios_path}/BiosRegistry", "the attribute registry"), label)
        if not self.values or not self.registry.attributes:
            raise Fault(f"the BMC of {label} shows no BIOS attributes, or no registry of them")

    def get(self, path: str, what: str) -> Doc:
        """A resource; Fault."""
        try:
            return dict(self._session.get(path))
        except redfish.Unread as fault:
            raise Fault(f"the BMC does not show {what}: {fault}") from None

    def _link(self, document: Doc, *keys: str) -> str:
        path = _part(document, *keys, "@odata.id")
        if not isinstance(path, str):
            raise Fault(f"the BMC has no {keys[-1]}: its BIOS is not set by Redfish")
        return path

    def _first(self, root: Doc, name: str) -> Doc:
        members = self.get(self._link(root, name), name).get("Members") or [{}]
        return self.get(self._link({"first": members[0]}, "first"), name)

    def _waiting(self, settings: Doc) -> Doc:
        pending = _part(settings, "Attributes") or {}
        return {name: value for name, value in pending.items()
                if not bios.SECRET.search(name) and self.values.get(name) != value}  # fmt: skip

    def queue(self) -> list[Doc]:
        """The jobs that change the BIOS, the newest last."""
        whole: list[Doc] = []
        page = self._jobs + self._expand
        for _ in range(MOST_PAGES):
            document = self.get(page, "its jobs")
            members = document.get("Members") or []
            whole += [one for one in members if len(one) > 1]
            for one in self._session.get_all([str(one.get("@odata.id")) for one in members if len(one) == 1]):
                if not isinstance(one, redfish.Unread):
                    whole.append(one)
                elif not one.absent:  # that one was deleted meanwhile
                    raise Fault(f"the BMC does not show a job: {one}")
            page = document.get("Members@odata.nextLink")
            if not isinstance(page, str):
                break
        return sorted((job for job in whole if job.get("JobType") in KINDS), key=lambda job: str(job.get("Id")))

    def unlocked(self) -> None:
        """Fault where the BMC refuses every change."""
        path = f"{self._manager.get('@odata.id')}/Oem/Dell/DellAttributes/{self._manager.get('Id')}"
        try:
            state = _part(self._session.get(path), "Attributes", LOCKDOWN)
        except redfish.Unread as fault:
            if not fault.absent:
                raise Fault(f"the BMC does not say whether System Lockdown mode is on: {fault}") from None
            state = None
        if state == "Enabled":
            raise Fault(
                "System Lockdown mode is on, and the BMC refuses every change. Switch it off, set passwords of the "
                "UEFI setup and run this, and switch it on again last"
            )

    def send(self, method: str, path: str, document: Doc | None, what: str) -> Any:
        """A change; Fault where it is refused, or nobody knows whether it was made."""
        try:
            sent = self._session.send(method, path, document)
        except redfish.Unread as fault:
            raise Fault(f"{what}: {fault}") from None
        if not sent.right:
            hint = "; another operation of the BMC runs: run this again later" if "RAC0679" in sent.words() else ""
            raise Fault(f"{what}: the BMC refuses it ({sent.words()}){hint}")
        return sent

    def profile(self) -> Doc:
        """The server configuration profile of the BIOS, exported now; Fault."""
        path = self._action("Export")
        wanted = {"ExportFormat": "JSON", "ShareParameters": {"Target": "BIOS"}}
        task = self.send("POST", path, wanted, "the profile cannot be exported, so nothing is changed").location
        while task:
            document = self.get(task, "the exported profile")
            if bios.profile_values(document):
                return {"SystemConfiguration": document["SystemConfiguration"]}
            if document.get("TaskState") in ("Completed", "Exception", "Killed", "Cancelled"):
                break
            if self._session.left_s() < 2 * POLL_S:
                break
            time.sleep(POLL_S)
        raise Fault("the exported profile holds no BIOS attributes, or did not come in time, so nothing is changed")

    def _action(self, verb: str) -> str:
        known = _part(self._manager, "Actions", "Oem") or {}
        found = [_part(one, "target") for name, one in known.items() if name.endswith(f".{verb}SystemConfiguration")]
        if not found:
            raise Fault(f"the BMC has no action {verb}SystemConfiguration: its profile is neither kept nor put back")
        return str(found[0])

    def set(self, steps: list[Doc]) -> list[str]:
        """Make the steps pending, and a job of them; the attributes that have to wait for another start; Fault."""
        left: list[str] = []
        try:
            for number, step in enumerate(steps):
                missing = self._pend(step, first=not number)
                if missing:
                    left = sorted({*missing, *(name for later in steps[number + 1 :] for name in later)})
                    break
            self._schedule()
        except Exception as fault:
            if not self.clear():
                words = "what it has as pending values could not be taken back: clear them in the BMC"
                raise Fault(f"{fault}; {words}") from None
            raise
        return left

    def _pend(self, step: Doc, first: bool) -> list[str]:
        try:
            self.send("PATCH", self._settings, {"Attributes": step}, f"BIOS attributes {', '.join(sorted(step))}")
        except Fault:
            if first:
                raise
            return list(step)
        pending = _part(self.get(self._settings, "pending BIOS values"), "Attributes") or {}
        missing = [name for name, value in step.items() if str(pending.get(name)) != str(value)]
        if missing and first:
            raise Fault(
                f"the BMC accepts {', '.join(sorted(missing))} and does not take it: no pending value, no error"
            )
        return missing

    def _schedule(self) -> None:
        what = "the job for the next start of the host"
        try:
            made = self._session.send("POST", self._jobs, {"TargetSettingsURI": self._settings})
        except redfish.Unread as fault:
            made, words = None, str(fault)  # it may have made the job all the same
        else:
            words = made.words()
            if not made.right:
                hint = "; another operation of the BMC runs: run this again later" if "RAC0679" in words else ""
                raise Fault(f"{what}: the BMC refuses it ({words}){hint}")
        active = [job for job in self.queue() if job.get("JobState") not in DONE]
        if not active:
            raise Fault(f"{what}: the BMC answers {words} and makes no job")

    def clear(self) -> bool:
        """Take pending values back; whether none is left. A BMC may refuse to clear none, so the answer is no proof."""
        with suppress(redfish.Unread, redfish.Refused, Fault):
            if self._clear:
                self._session.send("POST", self._clear, {})
            return not self._waiting(self.get(self._settings, "pending BIOS values"))
        return False

    def put_back(self, profile: Doc) -> None:
        """Import a profile at the host's next start; Fault."""
        wanted = {"ImportBuffer": json.dumps(profile), "ShareParameters": {"Target": "BIOS"},
                  "ShutdownType": "NoReboot", "HostPowerState": "On"}  # fmt: skip
        self.send("POST", self._action("Import"), wanted, "the profile cannot be put back")
        if not [job for job in self.queue() if job.get("JobState") not in DONE]:
            raise Fault("the profile cannot be put back: the BMC accepts it and makes no job")

    def forget(self, job: Doc) -> None:
        """Delete a job that has not begun; Fault."""
        self.send("DELETE", f"{self._jobs}/{job.get('Id')}", None, f"job {job.get('Id')} cannot be deleted")

    def job_words(self) -> str:
        """The jobs that wait or run: `JID_1 (BIOSConfiguration, Scheduled)`."""
        return ", ".join(f"{job.get('Id')} ({job.get('JobType')}, {job.get('JobState')})" for job in self.jobs)
