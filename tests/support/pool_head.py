"""The head of a pool in memory: what sacctmgr, scontrol, squeue, sacct, sssctl and the directory answer to
elastic-ai-pool-sync, and what it told them to do.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, ClassVar

import pytest

from tests.support.node_modules import ROOT, load_filters

policy = load_filters("slurm_policy")["slurm_policy"]
CLUSTER: dict[str, Any] = {
    "partitions": {
        "all": "PartitionName=all Nodes=gpu1,gpu2 Default=YES MaxTime=INFINITE State=UP",
        "h100": "PartitionName=h100 Nodes=gpu2 MaxTime=INFINITE State=UP",
        "v100": "PartitionName=v100 Nodes=gpu1 MaxTime=INFINITE State=UP",
    },
    "nodes": [{"name": "gpu1"}, {"name": "gpu2"}],
    "unknown": [],
}
POOL: dict[str, Any] = {
    "classes": {"v100": {}, "h100": {"max_hours": 24}},
    "users": {
        "research": {
            "users": ["anna"],
            "max_gpus": 8,
            "max_gpus_per_user": 2.5,
            "preempts": ["teaching"],
            "max_hours": 24,
        },
        "teaching": {
            "users": ["ben"],
            "classes": ["v100"],
            "max_gpus_per_user": "1/7",
            "max_hours": 0.5,
            "max_submitted": 20,
        },
    },
    "reservations": {"course": {"for": ["teaching"], "class": "v100", "nodes": ["gpu1"], "from": "08:00", "hours": 4}},
    "preemption": {"after_minutes": 30, "grace_s": 60},
}


def program() -> ModuleType:
    path = ROOT / "roles/slurm/files/pool_sync.py"
    loader = importlib.machinery.SourceFileLoader("pool_sync", str(path))
    spec = importlib.util.spec_from_loader("pool_sync", loader)
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


class Slurm:
    """What sacctmgr and scontrol answer, and what they were told to do."""

    def __init__(self, module: ModuleType, **tables: list[str]) -> None:
        self.tables, self.done, self.module = tables, list[str](), module
        self.busy = ""
        #: What the controller knows: what accounting has, and what is added while it hears of it.
        self.heard = {row.split("|")[0] for row in tables.get("qos", [])}
        self.deaf = False
        #: Lines of squeue: number, number of the record, uid, state, account; and users of the records in accounting.
        self.jobs, self.owners = list[str](), dict[str, str]()
        #: Domains of sssd, and whether their servers answer; sssd learns that they do not by the next question.
        self.domains, self.answers, self.fresh = {"lab": "Online"}, True, list[str]()

    def _directory(self, words: list[str]) -> list[str]:
        if words[0] == "sss_cache":
            self.fresh.append(" ".join(words[1:]))
            if not self.answers:
                self.domains = dict.fromkeys(self.domains, "Offline")
            return []
        if words[1] == "domain-list":
            return ["implicit_files", *self.domains]
        return [f"Online status: {self.domains[words[2]]}", ""]

    def __call__(self, *command: str) -> list[str]:
        words = list(command)
        if words[:3] == ["sacctmgr", "-nP", "show"]:
            lines = self.tables.get(words[3], [])
            if words[3] == "assoc" and words[4] == "format=Account,User":
                return ["|".join(line.split("|")[:2]) for line in lines]
            return lines
        if words == ["scontrol", "show", "assoc_mgr", "flags=qos"]:
            return ["Current Association Manager state", "", "QOS Records", "", *(f"QOS={q}(1)" for q in self.heard)]
        if words[:4] == ["sacctmgr", "-i", "add", "qos"] and not self.deaf:
            self.heard.add(words[4])
        if words == ["systemctl", "restart", "slurmctld"]:
            self.heard |= {"research", "teaching"}
        if words[:4] == ["scontrol", "-o", "show", "reservation"]:
            return self.tables.get("reservation", [])
        if words[:3] == ["scontrol", "show", "hostnames"]:
            return words[3].split(",")
        if words[0] in ("sss_cache", "sssctl"):
            return self._directory(words)
        if words[0] == "squeue":
            return self.jobs
        if words[0] == "sacct":
            return [f"{job}|{user}" for job, user in self.owners.items()]
        if words[0] == "scancel":
            gone = [line for line in self.jobs if line.split("|")[1] in words and line.split("|")[3] == "PENDING"]
            self.jobs = [line for line in self.jobs if line not in gone]
        if self.busy and self.busy in command:
            raise self.module.Refused(f"{command[0]}: Error with request: Job(s) active, cancel job(s) before remove")
        self.done.append(" ".join(w for w in words if w not in ("sacctmgr", "scontrol", "-i", "set")))
        return []


QOS_ROWS = [
    "normal|Normal QOS default|0||||||||",
    "research|elastic-ai|0|billing=1120|billing=350|1000|1-00:00:00|00:01:00|teaching|DenyOnLimit",
    "teaching|elastic-ai|0||billing=20|20|00:30:00|00:01:00||DenyOnLimit",
]
IN_LINE: dict[str, list[str]] = {
    "qos": QOS_ROWS,
    "account": ["root|root", "research|elastic-ai", "teaching|elastic-ai"],
    "assoc": [
        "root||normal|", "root|root|normal|", "research||research|research", "research|anna|research|research",
        "teaching||teaching|teaching", "teaching|ben|teaching|teaching",
    ],
    "user": ["root|root", "anna|research", "ben|teaching"],
    "reservation": [
        "ReservationName=pool_course StartTime=2026-11-22T08:00:00 EndTime=2026-11-22T12:00:00 Duration=04:00:00 "
        "Nodes=gpu1 NodeCnt=1 CoreCnt=2 Features=(null) PartitionName=v100 Flags=DAILY,SPEC_NODES,MAGNETIC "
        "TRES=cpu=2 Users=(null) Groups=(null) Accounts=teaching Licenses=(null) State=INACTIVE",
        "ReservationName=maintenance StartTime=2026-12-01T08:00:00 Duration=04:00:00 Nodes=gpu1 Accounts=(null)",
    ],
}  # fmt: skip


@pytest.fixture
def sync(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ModuleType:
    """The program on a head with a directory, which sssd asks."""
    monkeypatch.setattr("sys.dont_write_bytecode", True)
    module = program()
    files = {
        "NSSWITCH": "passwd: files systemd sss # all\ngroup:  files [SUCCESS=merge] sss\nhosts: files dns\n",
        "PASSWD": "root:x:0:0:root:/root:/bin/bash\nlocal:x:1001:1001::/home/local:/bin/bash\n",
        "GROUP": "root:x:0:\nours:x:1500:\n",
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text)
        monkeypatch.setattr(module.pool_leavers, name, str(tmp_path / name))
    monkeypatch.setattr(module.pool_leavers, "STATE", str(tmp_path / "etc/leavers.json"))
    return module


def run(
    module: ModuleType, monkeypatch: pytest.MonkeyPatch, slurm: Slurm, pool: Any, check: bool = False, **more: Any
) -> Any:
    monkeypatch.setattr(module, "ask", slurm)
    one = module.Sync(policy(pool, CLUSTER, 140, "/nowhere")["sync"], check, **more)
    one.run()
    return one


class Directory:
    """A directory behind NSS that lists nobody, as sssd does by default: users and groups are known by name alone."""

    groups: ClassVar = {"students": 7001, "empty": 7002}
    users: ClassVar = {"carl": (7100, 100, [100, 7001]), "dora": (7101, 7001, [7001]), "eve": (7102, 100, [100])}

    def __init__(self, module: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(module.grp, "getgrnam", self.group)
        monkeypatch.setattr(module.pwd, "getpwnam", self.user)
        monkeypatch.setattr(module.pwd, "getpwall", lambda: [])
        monkeypatch.setattr(module.os, "getgrouplist", lambda name, gid: [gid, *self.users[name][2]])

    def group(self, name: str) -> Any:
        return SimpleNamespace(gr_gid=self.groups[name], gr_mem=[])

    def user(self, name: str) -> Any:
        uid, gid, _ = self.users[name]
        return SimpleNamespace(pw_name=name, pw_uid=uid, pw_gid=gid)
