"""What an emulated BMC does with BIOS attributes: pending values, a job queue, profiles; and how it goes wrong.

Jobs run when the host starts. A wrong name or value is accepted and dropped, as
Dell's modules and some BMCs do: only who reads back sees it.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from toolkit.lab.bmc.constructed import LOCKDOWN, MANAGER, ROOT, SYSTEM, to
from toolkit.lab.bmc.registry import followed, locked

Doc = dict[str, Any]
Answer = tuple[int, Any, dict[str, str]]
BIOS, SETTINGS, JOBS = f"{SYSTEM}/Bios", f"{SYSTEM}/Bios/Settings", f"{MANAGER}/Oem/Dell/Jobs"
TASKS = f"{ROOT}/TaskService/Tasks"
DONE = ("Completed", "CompletedWithErrors", "Failed")


@dataclass
class SettingTraps:
    """How it goes wrong. `dropped`: attributes that never become pending. `unapplied`: those that a job leaves as they
    are. `no_job`: a job is answered with 200, and not made. `stuck`: a job never ends, `failed`: it fails. `running`:
    another operation runs (RAC0679). `in_force`: rules hold by the values in force, not by the pending ones.
    `no_profile`: the export fails.
    """

    dropped: tuple[str, ...] = ()
    unapplied: tuple[str, ...] = ()
    no_job: bool = False
    stuck: bool = False
    failed: bool = False
    running: bool = False
    in_force: bool = False
    no_profile: bool = False


def fault(status: int, id_: str, words: str) -> Answer:
    """An error in the form of Redfish."""
    return status, {"error": {"@Message.ExtendedInfo": [{"MessageId": f"IDRAC.2.8.{id_}", "Message": words}]}}, {}


class Settings:
    """The BIOS of one server, as far as its BMC changes it."""

    def __init__(self, starts: Callable[[], int | None], job_s: float = 0.2, traps: SettingTraps | None = None) -> None:
        """starts: a number that is another after each start of the host, None while it is off. job_s: how long a job
        runs after a start."""
        self.traps = traps or SettingTraps()
        self._starts, self._job_s = starts, job_s
        self._seen = starts()
        self._number = 0
        self._due_s: dict[str, float] = {}
        self._imports: dict[str, Doc] = {}
        self._lock = threading.RLock()

    def advance(self, docs: dict[str, Doc]) -> None:
        """Start what waits once the host has started, and end what has run for long enough."""
        with self._lock:
            mark = self._starts()
            if mark is not None and mark != self._seen:
                self._seen = mark
                for job in self._queue(docs):
                    if job["JobState"] == "Scheduled":
                        job["JobState"] = "Running"
                        self._due_s[job["Id"]] = time.monotonic() + self._job_s
            for job in self._queue(docs):
                if job["JobState"] == "Running" and time.monotonic() >= self._due_s[job["Id"]]:
                    self._end(docs, job)

    def _queue(self, docs: dict[str, Doc]) -> list[Doc]:
        return [docs[one["@odata.id"]] for one in docs[JOBS]["Members"]]

    def _end(self, docs: dict[str, Doc], job: Doc) -> None:
        if self.traps.stuck:
            return
        pending = docs[SETTINGS]["Attributes"]
        new = self._imports.pop(job["Id"], None)
        new = dict(pending) if new is None else new
        if self.traps.failed:
            job |= {"JobState": "Failed", "Message": "Unable to apply the BIOS configuration.", "MessageId": "SYS998"}
        else:
            now = docs[BIOS]["Attributes"]
            new = {name: value for name, value in new.items() if name in now and name not in self.traps.unapplied}
            now.update(followed({**now, **new}))
            job |= {"JobState": "Completed", "Message": "Job completed successfully.", "MessageId": "PR19"}
        docs[SETTINGS]["Attributes"] = {}

    def write(self, docs: dict[str, Doc], method: str, path: str, body: bytes) -> Answer:
        """What a request does that changes something."""
        try:
            given = json.loads(body) if body else {}
        except ValueError:
            return fault(400, "SYS405", "The request is no JSON.")
        exports = path.endswith(".ExportSystemConfiguration")
        if (
            not exports
            and docs[f"{MANAGER}/Oem/Dell/DellAttributes/iDRAC.Embedded.1"]["Attributes"][LOCKDOWN] != "Disabled"
        ):
            return fault(403, "LOC001", "The operation is not possible because System Lockdown mode is on.")
        with self._lock:
            if exports:
                return self._export(docs)
            if path.endswith(".ImportSystemConfiguration"):
                return self._import(docs, given)
            if path.endswith("DellManager.ClearPending"):
                docs[SETTINGS]["Attributes"] = {}
                return 200, {}, {}
            if (method, path) == ("PATCH", SETTINGS):
                return self._patch(docs, given.get("Attributes", {}))
            if (method, path) == ("POST", JOBS):
                return self._job(docs)
            if method == "DELETE" and path in docs and path.startswith(JOBS):
                docs.pop(path)
                docs[JOBS]["Members"] = [one for one in docs[JOBS]["Members"] if one["@odata.id"] != path]
                docs[SETTINGS]["Attributes"] = {}
                return 200, {}, {}
        return fault(405, "SYS426", "The method is not allowed.")

    def _patch(self, docs: dict[str, Doc], wanted: Doc) -> Answer:
        if any(job["JobState"] not in DONE for job in self._queue(docs)):
            return fault(503, "RAC0679", "A job operation is already running. Retry the operation later.")
        now, pending = docs[BIOS]["Attributes"], docs[SETTINGS]["Attributes"]
        known = {one["AttributeName"]: one for one in docs[f"{BIOS}/BiosRegistry"]["RegistryEntries"]["Attributes"]}
        rules = now if self.traps.in_force else {**now, **pending}
        for name, value in wanted.items():
            entry = known.get(name)
            values = [one["ValueName"] for one in (entry or {}).get("Value", [])]
            fits = entry is not None and not entry["ReadOnly"] and (not values or value in values)
            if fits and name not in self.traps.dropped and not locked(name, rules):
                pending[name] = value
        return 200, {"@Message.ExtendedInfo": [{"MessageId": "Base.1.12.Success", "Message": "Success."}]}, {}

    def _new(self, docs: dict[str, Doc], kind: str, state: str) -> str:
        self._number += 1
        id_ = f"JID_{self._number:012d}"
        job = {
            "@odata.id": f"{JOBS}/{id_}",
            "Id": id_,
            "JobType": kind,
            "JobState": state,
            "Message": "",
            "MessageId": "",
        }
        docs[f"{JOBS}/{id_}"] = job
        docs[JOBS] = {**docs[JOBS], "Members": [*docs[JOBS]["Members"], to(f"{JOBS}/{id_}")]}
        return id_

    def _job(self, docs: dict[str, Doc]) -> Answer:
        if self.traps.running or any(job["JobState"] not in DONE for job in self._queue(docs)):
            return fault(400, "RAC0679", "A job operation is already running. Retry the operation later.")
        if self.traps.no_job:
            return 200, {}, {}
        id_ = self._new(docs, "BIOSConfiguration", "Scheduled")
        return 200, {}, {"Location": f"{JOBS}/{id_}"}

    def _export(self, docs: dict[str, Doc]) -> Answer:
        if self.traps.no_profile:
            return fault(500, "SYS446", "Unable to export the profile.")
        id_ = self._new(docs, "ExportConfiguration", "Completed")
        fixed = self._fixed(docs)
        values = [{"Name": name, "Value": value, "Set On Import": str(name not in fixed)}
                  for name, value in docs[BIOS]["Attributes"].items() if value is not None]  # fmt: skip
        profile = {"Model": docs[SYSTEM]["Model"], "ServiceTag": docs[SYSTEM]["SKU"],
                   "Components": [{"FQDD": "BIOS.Setup.1-1", "Attributes": values}]}  # fmt: skip
        docs[f"{TASKS}/{id_}"] = {"Id": id_, "TaskState": "Completed", "SystemConfiguration": profile}
        return 202, {}, {"Location": f"{TASKS}/{id_}"}

    @staticmethod
    def _fixed(docs: dict[str, Doc]) -> set[str]:
        """Attributes that are always read-only."""
        known = docs[f"{BIOS}/BiosRegistry"]["RegistryEntries"]["Attributes"]
        return {one["AttributeName"] for one in known if one["ReadOnly"]}

    def _import(self, docs: dict[str, Doc], given: Doc) -> Answer:
        if self.traps.running or any(job["JobState"] not in DONE for job in self._queue(docs)):
            return fault(400, "RAC0679", "A job operation is already running. Retry the operation later.")
        if given.get("ShutdownType") != "NoReboot":
            return fault(400, "SYS000", "this emulation starts no host")
        parts = json.loads(given["ImportBuffer"])["SystemConfiguration"]["Components"]
        fixed = self._fixed(docs)
        values = {one["Name"]: one["Value"] for part in parts for one in part["Attributes"]
                  if one["Name"] not in fixed}  # fmt: skip
        id_ = self._new(docs, "ImportConfiguration", "Scheduled")
        self._imports[id_] = values
        docs[f"{TASKS}/{id_}"] = {"Id": id_, "TaskState": "Running"}
        return 202, {}, {"Location": f"{TASKS}/{id_}"}
