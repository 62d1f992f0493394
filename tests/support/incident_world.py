"""Twenty servers of a lab and their Slurm, made up, for the tests of `toolkit incidents`."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support import gpu_health_case, site
from toolkit.errors import UsageFault
from toolkit.exits import Exit
from toolkit.incident import mending, watching
from toolkit.incident.mending import Mending
from toolkit.incident.steps import OPTIONAL
from toolkit.incident.watching import Asked, Watch
from toolkit.lease.jobs.slurm_text import PoolNode
from validation.kinds.parsing import as_facts
from validation.measures.gpu.health import GpuHealthFacts
from validation.model import Node

NAMES = tuple(f"gpu{number}" for number in range(1, 21))
TOPOLOGY = site.lab(("head", *NAMES))

READ = watching.read_node
MEND = watching.Watch._mend


class Killed(BaseException):
    """The process ends here."""


class World:
    """Twenty servers, their Slurm, and what is done to them."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.said: dict[str, dict[str, Any] | str] = {name: gpu_health_case.facts() for name in NAMES}
        self.reasons: dict[str, str] = {}
        self.log: list[str] = []
        self.lines: list[str] = []
        self.clock_us = 60_000_000
        self.heals = {"reset": True, "reboot": True}
        self.reset_code, self.bad = 0, ()
        self.kill_at, self.unaccepted = 0, False
        monkeypatch.setenv("XDG_STATE_HOME", str(folder))
        monkeypatch.setattr(watching, "read_site", lambda _: SimpleNamespace(topology=TOPOLOGY))
        monkeypatch.setattr(watching.checks, "refuse_joined", lambda *_: None)
        monkeypatch.setattr(watching, "Head", lambda _: self)
        monkeypatch.setattr(watching.time, "sleep", lambda _: None)
        monkeypatch.setattr(watching, "read_node", self.read)
        monkeypatch.setattr(watching.Watch, "_mend", lambda _: None)
        monkeypatch.setattr(mending, "run_on", self.run_on)
        monkeypatch.setattr(mending, "make", self.packed)
        monkeypatch.setattr(mending, "wait_empty", lambda *_: self.did("empty"))
        monkeypatch.setattr(mending.playbooks, "run", self.rebooted)
        monkeypatch.setattr(mending.checks, "accepted_run", self.accepted_run)
        monkeypatch.setattr(mending.accept, "plan_for", lambda *_: None)
        monkeypatch.setattr(mending.held, "held", lambda *_: (self.did("accept"), (folder / "run", self.bad))[1])
        self.node = next(node for node in TOPOLOGY.nodes if node.name == "head")

    def accepted_run(self, runs_dir: Path, *_given: object) -> Path:
        """Of the site; with `unaccepted` there is none."""
        if self.unaccepted:
            raise UsageFault(f"{runs_dir}: no accepted run of site rack; name one by --accepted")
        return self.folder / "accepted"

    def did(self, what: str) -> None:
        self.log.append(what)

    def nodes(self) -> dict[str, PoolNode]:
        return {
            name: PoolNode(
                name, "IDLE+DRAIN" if name in self.reasons else "IDLE", self.reasons.get(name, ""), 4, "v100", 0
            )
            for name in NAMES
        }

    def drain(self, name: str, reason: Any) -> None:
        self.did(f"drain {name}")
        self.reasons[name] = reason.text

    def resume(self, name: str) -> None:
        self.did("resume")
        del self.reasons[name]

    def read(self, node: Node) -> GpuHealthFacts | str:
        said = self.said[node.name]
        return said if isinstance(said, str) else as_facts(GpuHealthFacts, said, "gpu-health")

    def xid(self, name: str, code: int, address: str = "0000:1a:00.0") -> None:
        """A line in a node's kernel log, now."""
        self.clock_us += 1_000_000
        said = self.said[name]
        assert isinstance(said, dict)
        log = said["kernel_log"]
        line = {"at_us": self.clock_us, "kind": "xid", "code": code, "address": address, "words": ""}
        new = {**log, "newest_us": self.clock_us, "lines": [*log["lines"], line]}
        self.said[name] = {**said, "kernel_log": new}

    def well(self, name: str) -> None:
        said = self.said[name]
        log = said["kernel_log"] if isinstance(said, dict) else gpu_health_case.LOG
        self.said[name] = {**gpu_health_case.facts(), "kernel_log": log}

    def run_on(self, node: Node, words: list[str], *_: object) -> Any:
        if words[0] == "nvidia-smi":
            self.did("reset")
            if self.reset_code == 0 and self.heals["reset"]:
                self.well(node.name)
        return SimpleNamespace(
            returncode=self.reset_code if words[0] == "nvidia-smi" else 0, stdout=b"", stderr=b"in use"
        )

    def rebooted(self, *given: Any) -> tuple[str, ...]:
        self.did("reboot")
        if self.heals["reboot"]:
            self.well(given[2].split(",")[0])
        return ()

    def packed(self, request: Any, *_: object) -> Any:
        self.did("support")
        return SimpleNamespace(file=request.out / "support.tar.gz")

    def asked(self, steps: tuple[Any, ...] = OPTIONAL, most_percent: float = 10.0) -> Asked:
        return Asked(self.folder, steps, most_percent, 15, self.folder)

    def watch(self, **more: Any) -> Watch:
        return Watch(self.asked(**more), self.lines.append, self.read)

    def mend(self, name: str, **more: Any) -> Exit:
        work = Mending(self.asked(**more), name, self.lines.append)
        work.watch.read = self.read
        return work.go()


def begun(world: World, code: int = 95, **more: Any) -> None:
    watch = world.watch(**more)
    watch.look()
    world.xid("gpu1", code)
    watch.look()
