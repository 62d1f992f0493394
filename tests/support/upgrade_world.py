"""A site of which an upgrade runs: what Slurm, Ansible and measurements would do to it, kept in a file, so that it
outlives a process that is killed. The ssh, the playbooks and the probes are what is not there."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tests.support import site
from tests.support.lease_texts import answer, node_text, slurm_job
from toolkit.commands.rollback import rollback
from toolkit.commands.upgrade import upgrade
from toolkit.deploy.outcome import Ending
from toolkit.deploy.watch import DeployWatch, NodeState
from toolkit.exits import Exit
from toolkit.node import playbooks
from toolkit.node.head import Head
from toolkit.upgrade import held, planning, rolling, words

NAMES = ("head", "gpu1", "gpu2", "gpu3", "gpu4")
TOPOLOGY = site.lab(NAMES)
OLD, NEW = "reference-2019", "current"
DRIVER = {OLD: "570.1.2", NEW: "580.173.02"}
"""Two releases differ in the driver alone; names are those of releases that this checkout has."""


class Killed(BaseException):
    """Where the process ends at once."""


class World:
    """The site."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.file, self.inventory = folder / "world.json", folder / "inventory"
        self.kill_at = 0
        self.left = {"bad": "", "waits": "", "breaks": ""}
        self.spec: object = 2
        self.policy: object = None
        self.consents: list[list[str]] = []
        self.jobs: list[bytes] = [answer([])]
        if not self.file.exists():
            nodes = {name: {"release": OLD, "driver": DRIVER[OLD], "drained": "", "half": False} for name in NAMES}
            self.write({"nodes": nodes, "log": [], "runs": 0})
        monkeypatch.setenv("XDG_STATE_HOME", str(folder))
        fake = type("Site", (), {"topology": TOPOLOGY})()
        monkeypatch.setattr(rolling, "read_site", lambda inventory: fake)
        monkeypatch.setattr(rolling, "Head", lambda topology: Answering(self))
        monkeypatch.setattr(rolling.time, "sleep", lambda s: None)
        for module in (planning, words, rolling.checks):
            monkeypatch.setattr(module, "declared", self.declared)
        monkeypatch.setattr(playbooks, "played", self.preflight)
        monkeypatch.setattr(playbooks, "run", self.deploy)
        monkeypatch.setattr(held, "planned", lambda site, inventory, accepted, names, release: (tuple(names), release))
        monkeypatch.setattr(held, "held", self.measure)
        monkeypatch.setattr(rolling.checks, "accepted_run", lambda *_: folder / "accepted")

    def declared(self, _inventory: Path, _node: str, name: str) -> object:
        return {"reboot_batch": self.spec, "slurm_pool": self.policy}.get(name)

    def read(self) -> dict[str, Any]:
        return dict(json.loads(self.file.read_text()))

    def write(self, data: dict[str, Any]) -> None:
        self.file.write_text(json.dumps(data))

    def changed(self, entry: str, change: Callable[[dict[str, Any]], object]) -> None:
        """One thing happens to the site; a process that is to be killed ends before, between and after."""
        self.killed()
        data = self.read()
        change(data["nodes"])
        data["log"].append(entry)
        self.write(data)
        self.killed()

    def killed(self) -> None:
        self.kill_at -= 1
        if self.kill_at == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    @property
    def log(self) -> list[str]:
        return list(self.read()["log"])

    def nodes(self, key: str) -> dict[str, Any]:
        return {name: node[key] for name, node in self.read()["nodes"].items()}

    def preflight(self, playbook: Path, inventory: Path, limit: str | None, arguments: Sequence[str] = ()) -> Any:
        """What role preflight concludes of each node."""
        assert playbook == playbooks.PREFLIGHT
        extra: dict[str, Any] = {}
        for text in arguments[1::2]:
            extra |= json.loads(text)
        assert extra["preflight_change_under_jobs"] is True
        watch = DeployWatch(())
        chosen = limit.split(",") if limit else NAMES
        for name, node in self.read()["nodes"].items():
            if name in chosen:
                to, driver = self.wanted(extra, name)
                change = {"part": "NVIDIA driver", "before": node["driver"], "after": driver, "reboot": True,
                          "key": ["nvidia_driver", "version"], "pin": node["driver"]}  # fmt: skip
                watch.nodes[name] = NodeState(
                    versions={"release": node["release"], "to": to, "recorded": node.get("recorded", True), "jobs": [],
                              "changes": [change] if driver != node["driver"] else []},
                )  # fmt: skip
        return watch, Ending((), Exit.OK), Path("log")

    @staticmethod
    def wanted(extra: dict[str, Any], name: str) -> tuple[str, str]:
        """Release and driver that stacks/ would have for a node."""
        release = extra.get("stack_releases", {}).get(name) or extra["stack_release"]
        pins = extra.get("stack_pins", {}).get(name, {})
        return release, pins.get("nvidia_driver", {}).get("version") or DRIVER[release]

    def deploy(self, playbook: Path, inventory: Path, limit: str | None, arguments: Sequence[str] = ()) -> Any:
        extra = json.loads(arguments[1])
        self.consents.append(list(arguments))
        names = (limit or "").split(",")
        assert "head" in names

        def half(nodes: dict[str, Any]) -> None:
            for name in names:
                there = nodes[name]
                assert name == "head" or there["drained"], f"{name} is deployed and not drained"
                there["half"] = there["driver"] != self.wanted(extra, name)[1]

        def whole(nodes: dict[str, Any]) -> None:
            for name in names:
                nodes[name]["half"] = False
                nodes[name]["release"], nodes[name]["driver"] = self.wanted(extra, name)

        self.changed(f"begins {limit}", half)
        if self.left["breaks"] in names:
            raise playbooks.PlaybookFault(f"{self.left['breaks']} failed", 1)
        self.changed(f"deployed {limit}", whole)
        return tuple(name for name in names if name == self.left["waits"])

    def measure(self, asked: Any, accepted: Path, runs_dir: Path, earlier: Path | None, begun: Any) -> Any:
        names, release = asked
        self.changed(f"validated {','.join(names)} as {release}", lambda nodes: None)
        begun(self.file.parent / "run")
        self.killed()
        return self.file.parent / "run", ("pf.stack fails: driver",) if self.left["bad"] in names else ()


class Answering(Head):
    """The head, answered by the world."""

    def __init__(self, world: World) -> None:
        super().__init__(TOPOLOGY)
        self.world = world

    def run(self, words: Sequence[str], timeout_s: float = 0.0) -> subprocess.CompletedProcess[bytes]:
        out = b""
        if words[0] == "squeue":
            out = self.world.jobs.pop(0) if len(self.world.jobs) > 1 else self.world.jobs[0]
        elif words[:2] == ["scontrol", "show"]:
            drained = self.world.nodes("drained")
            texts = [
                node_text(name, state="IDLE+DRAIN" if drained[name] else "IDLE", reason=drained[name] or "")
                for name in NAMES
                if name != "head"
            ]
            out = "\n\n".join(texts).encode()
        elif words[:2] == ["scontrol", "update"]:
            given = dict(word.split("=", 1) for word in words[2:])
            name, reason = given["nodename"], given.get("reason", "")
            verb = "drained" if given["state"] == "drain" else "resumed"
            if verb == "resumed" and not self.world.nodes("drained")[name]:  # as Slurm does
                return subprocess.CompletedProcess(words, 1, b"", b"slurm_update error: Invalid node state specified")
            self.world.changed(f"{verb} {name}", lambda nodes: nodes[name].update(drained=reason))
        elif words[0] == "toolkit":
            self.world.changed(" ".join(words), lambda nodes: None)
        return subprocess.CompletedProcess(words, 0, out, b"")


def busy(node: str) -> bytes:
    """A lease of alice there."""
    return answer(slurm_job(41, node=node))


def ran(world: World, *words: str, verb: str = "upgrade") -> Result:
    """The command; its exit code, and what it printed."""
    command, to = (upgrade, ["--to", NEW]) if verb == "upgrade" else (rollback, [])
    where = ["-i", str(world.inventory), "--runs-dir", str(world.inventory.parent)]
    return CliRunner().invoke(command, [*to, *where, *words])
