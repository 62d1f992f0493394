"""Nodes with emulated BMCs whose BIOS can be set, and the real ansible-playbook over them; the nodes are recordings."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support import bmcs
from toolkit.lab.bmc.constructed import SYSTEM, server
from toolkit.lab.bmc.emulated import EmulatedBmc, Traps
from toolkit.lab.bmc.settings import JOBS, Settings, SettingTraps
from validation.base.project import ROOT

KEY = "the key of this vault\n"
FACTS = {"ansible_distribution": "Debian", "ansible_distribution_version": "12.1", "ansible_os_family": "Debian"}


@dataclass
class Node:
    """A node of the site. `bios`: what the inventory wishes; `now`: BIOS values from before."""

    bios: Mapping[str, Any] = field(default_factory=dict)
    now: Mapping[str, Any] = field(default_factory=dict)
    kind: str = "16G"
    traps: SettingTraps = field(default_factory=SettingTraps)
    slow_s: float = 0.0
    bmc: Mapping[str, Any] = field(default_factory=dict)
    slurm: bool = False


class Site:
    """The folder of an inventory, its nodes and BMCs."""

    def __init__(self, folder: Path, nodes: Mapping[str, Node], there: Mapping[str, EmulatedBmc]) -> None:
        self.folder, self.there = folder, there
        cert, _, _ = bmcs.certificate(folder)
        hosts: dict[str, Any] = {}
        for name, node in nodes.items():
            self.record(name, {"systemctl *": {"stdout": "slurmd.service loaded" if node.slurm else ""}})
            known = {"address": "127.0.0.1", "port": there[name].port, "user": bmcs.USER, "ca": str(cert)}
            hosts[name] = self._host(name) | {
                "bmc": {**known, "password": "{{ of_the_vault }}", "bios": dict(node.bios), **node.bmc}
            }
        self.record("head", {"systemctl *": {"stdout": ""}})
        groups = {"gpu_servers": {"hosts": hosts}, "heads": {"hosts": {"head": self._host("head")}}}
        (folder / "hosts.yml").write_text(json.dumps({"all": {"children": groups}}))
        vault = folder / "group_vars/all.yml"
        vault.parent.mkdir()
        vault.write_text(f"of_the_vault: {bmcs.PASSWORD}\n")
        (folder / "key").write_text(KEY)
        words = ["ansible-vault", "encrypt", "--vault-password-file", str(folder / "key"), str(vault)]
        subprocess.run([Path(sys.executable).with_name(words[0]), *words[1:]], check=True, capture_output=True)

    def _host(self, name: str) -> dict[str, Any]:
        starts = self.folder / f"{name}.starts"
        starts.touch()
        return {"ansible_connection": "started", "canned_recording": str(self.folder / f"{name}.json"),
                "started_starts": str(starts)}  # fmt: skip

    def record(self, name: str, commands: Mapping[str, Any]) -> None:
        """What commands answer on a node."""
        facts = {"subsets": ["min", "virtual"], "ansible_facts": FACTS}
        (self.folder / f"{name}.json").write_text(json.dumps(facts | {"modules": {}, "commands": commands}))

    def starts(self, name: str) -> int:
        """How often a node was rebooted."""
        return len((self.folder / f"{name}.starts").read_text().splitlines())

    def bios(self, name: str) -> dict[str, Any]:
        """The values in force."""
        return dict(self.there[name].docs[f"{SYSTEM}/Bios"]["Attributes"])

    def pending(self, name: str) -> dict[str, Any]:
        """The values that wait."""
        return dict(self.there[name].docs[f"{SYSTEM}/Bios/Settings"]["Attributes"])

    def jobs(self, name: str) -> list[str]:
        """`BIOSConfiguration Scheduled` of each job."""
        docs = self.there[name].docs
        jobs = [docs[one["@odata.id"]] for one in docs[JOBS]["Members"]]
        return [f"{one['JobType']} {one['JobState']}" for one in jobs]

    def play(self, *options: str, consent: bool = False, playbook: str = "hardware.yml") -> Played:
        """Run a playbook; the password must be nowhere in what it prints or logs."""
        log = self.folder / "log"
        more = ["-e", "reboot=if_needed"] if consent else []
        settings = ["reboot_batch=100%", "reboot_max_fail_percentage=100", "bios_job_timeout_s=10", "bios_timeout_s=60",
                    "reboot_settle_timeout_s=2", "reboot_drain_timeout_s=5"]  # fmt: skip
        done = subprocess.run(
            [Path(sys.executable).with_name("ansible-playbook"), f"playbooks/{playbook}", "-vvv",
             "-i", self.folder / "hosts.yml", "-e", " ".join(settings), *more, *options],
            cwd=ROOT, capture_output=True, text=True, check=False, timeout=400,
            env={**os.environ, "ANSIBLE_CONNECTION_PLUGINS": str(ROOT / "tests/plugins/connection"),
                 "ANSIBLE_VAULT_PASSWORD_FILE": str(self.folder / "key"), "ANSIBLE_LOG_PATH": str(log),
                 "ANSIBLE_DISPLAY_ARGS_TO_STDOUT": "true", "ANSIBLE_NOCOLOR": "1", "ANSIBLE_FORKS": "30"},
        )  # fmt: skip
        said = done.stdout + done.stderr
        assert bmcs.PASSWORD not in said + log.read_text()
        assert "PLAY RECAP" in said, said
        return Played(said)


@dataclass(frozen=True)
class Played:
    """What a run printed."""

    said: str

    def counts(self, name: str) -> str:
        """A node's line of the recap: `changed=1, failed=0`."""
        found = re.search(rf"^{re.escape(name)} +: .*changed=(\d+) .*failed=(\d+)", self.said, re.MULTILINE)
        assert found, self.said
        return f"changed={found[1]}, failed={found[2]}"

    def fault(self, name: str) -> str:
        """Why a node failed, "" where it did not; white space made one blank."""
        found = re.findall(
            rf"^fatal: \[{re.escape(name)}\]: FAILED! =>(.*?)^(?:\S|$)", self.said, re.MULTILINE | re.DOTALL
        )
        return " ".join(" ".join(found).split())

    @property
    def words(self) -> str:
        """All of it, white space made one blank."""
        return " ".join(self.said.split())


@contextmanager
def site(folder: Path, nodes: Mapping[str, Node]) -> Iterator[Site]:
    """A site with these nodes, and a head without a BMC."""
    cert, key, _ = bmcs.certificate(folder)
    there: dict[str, EmulatedBmc] = {}
    with ExitStack() as stack:
        for number, (name, node) in enumerate(nodes.items(), 1):
            docs = server(number, node.kind, name)
            docs[f"{SYSTEM}/Bios"]["Attributes"].update(node.now)
            starts = folder / f"{name}.starts"
            starts.touch()
            settings = Settings(lambda path=starts: len(path.read_text().splitlines()), 0.05, node.traps)  # type: ignore[misc]
            bmc = EmulatedBmc(docs, bmcs.USER, bmcs.PASSWORD, cert, key, Traps(delay_s=node.slow_s), settings=settings)
            there[name] = stack.enter_context(bmc)
        yield Site(folder, nodes, there)
