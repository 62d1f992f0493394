"""BIOS attributes by playbooks/hardware.yml: real ansible-playbook, emulated BMCs over TLS, the real reboot barrier."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.bios_site import Node, site
from toolkit.lab.bmc.constructed import LOCKDOWN, MANAGER, SYSTEM
from toolkit.lab.bmc.settings import SettingTraps

pytestmark = pytest.mark.systems

SAVING = {"SysProfile": "PerfPerWattOptimizedDapc", "ProcPwrPerf": "SysDbpm", "ProcCStates": "Enabled",
          "PcieAspmL1": "Enabled"}  # fmt: skip
OFF = {"LogicalProc": "Disabled"}
DONE = "changed=0, failed=0"


def test_a_bios_is_set_by_the_barrier_and_put_back(tmp_path: Path) -> None:
    nodes = {
        "gpu1": Node(OFF, SAVING, "14G"),
        "gpu2": Node(OFF, SAVING),
        "gpu3": Node({**OFF, "NumaNodesPerSocket": 2, "AcPwrRcvryUserDelay": 90}, {}, "17G"),
        "gpu4": Node(),
    }
    with site(tmp_path, nodes) as rack:
        before = {name: rack.bios(name) for name in nodes}

        would = rack.play("--check", consent=True)
        assert "- 'SysProfile: PerfPerWattOptimizedDapc to PerfOptimized'" in would.said
        assert "- 'ProcCStates: Enabled to Disabled'" in would.said, "what follows from the profile"
        assert "- 'NumaNodesPerSocket: 1 to 2'" in would.said
        assert not any(rack.there[name].writes for name in nodes)
        assert not (tmp_path / ".bios").exists()

        asked = rack.play()
        assert "gpu1 waits for a reboot: bios: BIOS attributes wait for a start of the host" in asked.words
        assert {name: rack.bios(name) for name in nodes} == before
        assert rack.pending("gpu2") == {"SysProfile": "PerfOptimized", **OFF}
        assert rack.pending("gpu3") == {"NumaNodesPerSocket": "2", "AcPwrRcvryUserDelay": 90, **OFF}
        assert [rack.starts(name) for name in nodes] == [0, 0, 0, 0]
        profile = tmp_path / ".bios/gpu1.json"
        assert (profile.stat().st_mode & 0o777, profile.parent.stat().st_mode & 0o777) == (0o600, 0o700)
        assert '"Value": "PerfPerWattOptimizedDapc"' in profile.read_text()
        assert asked.counts("gpu4") == DONE
        assert not (tmp_path / ".bios/gpu4.json").exists()

        writes = {name: list(rack.there[name].writes) for name in nodes}
        assert [rack.play().counts(name) for name in nodes] == [DONE] * 4, "it waits, and nothing is sent again"
        assert {name: rack.there[name].writes for name in nodes} == writes

        rack.play(consent=True)
        assert [rack.starts(name) for name in (*nodes, "head")] == [1, 1, 1, 0, 0]
        for name in ("gpu1", "gpu2"):
            found = rack.bios(name)
            assert (found["SysProfile"], found["ProcCStates"], found["LogicalProc"]) == (
                "PerfOptimized", "Disabled", "Disabled",
            )  # fmt: skip
        assert rack.jobs("gpu1") == ["ExportConfiguration Completed", "BIOSConfiguration Completed"]

        writes = {name: list(rack.there[name].writes) for name in nodes}
        again = rack.play(consent=True)
        assert [again.counts(name) for name in nodes] == [DONE] * 4
        assert {name: rack.there[name].writes for name in nodes} == writes
        assert [rack.starts(name) for name in nodes] == [1, 1, 1, 0]

        would = rack.play("--check", "-e", "bios_state=absent", consent=True)
        assert "SysProfile is PerfOptimized, not PerfPerWattOptimizedDapc" in would.words
        assert {name: rack.there[name].writes for name in nodes} == writes

        rack.play("-e", "bios_state=absent", consent=True)
        assert {name: rack.bios(name) for name in nodes} == before
        assert [rack.starts(name) for name in nodes] == [2, 2, 2, 0]
        assert sorted(path.name for path in profile.parent.iterdir()) == [
            "gpu1.restored.json", "gpu2.restored.json", "gpu3.restored.json",
        ]  # fmt: skip
        assert [rack.play("-e", "bios_state=absent", consent=True).counts(name) for name in nodes] == [DONE] * 4


#: Node -> it, part of why it fails, and whether its BIOS was asked for anything.
TRAPS: dict[str, tuple[Node, str]] = {
    "wrong-value": (
        Node({"LogicalProc": "Enable"}),
        "LogicalProc has no value Enable, only Enabled, Disabled; is Enabled meant?",
    ),
    "wrong-number": (Node({"AcPwrRcvryUserDelay": 30}), "AcPwrRcvryUserDelay is from 60 to 600, not 30"),
    "wrong-name": (Node({"LogicalProcs": "Disabled"}), "has no attribute LogicalProcs; is LogicalProc meant?"),
    "intel-on-amd": (
        Node({"ProcX2Apic": "Disabled"}, kind="17G"),
        "the BIOS of PowerEdge XE7745 (17G Monolithic, 1.20.80.51) has no attribute ProcX2Apic",
    ),
    "amd-on-intel": (Node({"NumaNodesPerSocket": "2"}, kind="14G"), "has no attribute NumaNodesPerSocket"),
    "read-only": (Node({"SystemServiceTag": "X"}), "SystemServiceTag is EAT0006 and always read-only"),
    "member": (
        Node({"ProcCStates": "Enabled"}),
        "ProcCStates cannot be Enabled: it is read-only while SysProfile is PerfOptimized; wish SysProfile: Custom too",
    ),
    "secret": (Node({"SetupPassword": "x"}), "SetupPassword is a password or key: it is not set here"),
    "lockdown": (Node(OFF), "System Lockdown mode is on, and the BMC refuses every change"),
    "no-profile": (
        Node(OFF, traps=SettingTraps(no_profile=True)),
        "the profile cannot be exported, so nothing is changed: the BMC refuses it (status 500, SYS446",
    ),
    "dropped": (
        Node(OFF, traps=SettingTraps(dropped=("LogicalProc",))),
        "the BMC accepts LogicalProc and does not take it: no pending value, no error",
    ),
    "no-job": (
        Node(OFF, traps=SettingTraps(no_job=True)),
        "the job for the next start of the host: the BMC answers status 200 and makes no job",
    ),
    "busy": (
        Node(OFF, traps=SettingTraps(running=True)),
        "(status 400, RAC0679: A job operation is already running. Retry the operation later.); another operation",
    ),
    "others": (Node(OFF), "BIOS values of somebody else wait for a start of the host: MmioAbove4Gb"),
    "password": (Node(OFF, bmc={"password": "Wr0ng-0ne"}), "it refuses the login of user acceptance"),
    "unapplied": (
        Node(OFF, traps=SettingTraps(unapplied=("LogicalProc",))),
        "after its start the BIOS is not as wanted: LogicalProc is Enabled, not Disabled. Job JID_000000000002 ended "
        "as Completed",
    ),
    "failed": (
        Node(OFF, traps=SettingTraps(failed=True)),
        "ended as Failed: SYS998 Unable to apply the BIOS configuration.",
    ),
    "stuck": (
        Node(OFF, traps=SettingTraps(stuck=True)),
        "job JID_000000000002 (BIOSConfiguration, Running) has not ended: it is stuck",
    ),
}
RIGHT = {
    "slow": Node(OFF, slow_s=0.4),
    "steps": Node({"SysProfile": "Custom", "ProcCStates": "Enabled"}),
    "two-starts": Node({"SysProfile": "Custom", "ProcCStates": "Enabled"}, traps=SettingTraps(in_force=True)),
    "boot-mode": Node({"BootMode": "Uefi"}, {"BootMode": "Bios"}),
}
STARTED = ("unapplied", "failed", "stuck")


def test_each_trap_is_named_on_its_node_and_the_others_are_set(tmp_path: Path) -> None:
    with site(tmp_path, {name: node for name, (node, _) in TRAPS.items()} | RIGHT) as rack:
        rack.there["lockdown"].docs[f"{MANAGER}/Oem/Dell/DellAttributes/iDRAC.Embedded.1"]["Attributes"][LOCKDOWN] = (
            "Enabled"
        )
        rack.there["others"].docs[f"{SYSTEM}/Bios/Settings"]["Attributes"]["MmioAbove4Gb"] = "Disabled"
        first = rack.play(consent=True)
        for name, (_, words) in TRAPS.items():
            assert words in first.fault(name), (name, first.fault(name))
            assert rack.starts(name) == (name in STARTED), name
            if name not in STARTED:
                assert "BIOSConfiguration Scheduled" not in rack.jobs(name), name
                assert rack.pending(name) == ({"MmioAbove4Gb": "Disabled"} if name == "others" else {}), name
        sent_nothing = list(TRAPS)[:9]
        assert {name: rack.there[name].writes for name in sent_nothing} == {name: [] for name in sent_nothing}
        assert len(rack.there["password"].requests) == 1, "a second login could lock the account"
        assert {name: first.fault(name) for name in RIGHT} == dict.fromkeys(RIGHT, "")
        assert rack.bios("slow")["LogicalProc"] == "Disabled"
        assert (rack.bios("steps")["SysProfile"], rack.bios("steps")["ProcCStates"]) == ("Custom", "Enabled")
        patches = [line for line in rack.there["steps"].writes if line.startswith("PATCH ")]
        assert len(patches) == 2, "what others depend on is pending first"
        assert "BootMode is Bios, not Uefi, and is not set: an installed system does not start" in first.words
        assert rack.there["boot-mode"].writes == []
        # a BMC that makes no value pending before the one that it depends on is in force
        assert (rack.bios("two-starts")["SysProfile"], rack.bios("two-starts")["ProcCStates"]) == ("Custom", "Disabled")
        assert "two-starts: ProcCStates could not be set together with what they depend on. Run" in first.words
        second = rack.play("--limit", ",".join(RIGHT), consent=True)
        assert rack.bios("two-starts")["ProcCStates"] == "Enabled"
        assert [second.counts(name) for name in ("slow", "steps", "boot-mode")] == [DONE] * 3


def test_a_node_with_jobs_or_a_lease_is_not_rebooted_and_the_job_waits_for_it(tmp_path: Path) -> None:
    """A lease is a job of the scheduler."""
    with site(tmp_path, {"gpu1": Node(OFF, slurm=True)}) as rack:
        asked = {"scontrol show node*": {"stdout": "NodeName=gpu1 State=MIXED"}, "scontrol update*": {"stdout": ""}}
        rack.record("head", {"systemctl *": {"stdout": ""}, **asked, "squeue *": {"stdout": "17 lease gpu1 R"}})
        held = rack.play(consent=True)
        assert "gpu1 could not be drained within 5 s and was not rebooted; it takes jobs again. 17 lease" in held.words
        assert (rack.starts("gpu1"), rack.bios("gpu1")["LogicalProc"]) == (0, "Enabled")
        assert rack.jobs("gpu1")[-1] == "BIOSConfiguration Scheduled"
        rack.record("head", {"systemctl *": {"stdout": ""}, **asked, "squeue *": {"stdout": ""}})
        assert rack.play(consent=True).fault("gpu1") == ""
        assert (rack.starts("gpu1"), rack.bios("gpu1")["LogicalProc"]) == (1, "Disabled")


def test_what_waits_is_taken_back_without_a_reboot(tmp_path: Path) -> None:
    with site(tmp_path, {"gpu1": Node(OFF)}) as rack:
        rack.play()
        assert rack.jobs("gpu1")[-1] == "BIOSConfiguration Scheduled"
        back = rack.play("-e", "bios_state=absent", consent=True)
        assert (back.fault("gpu1"), rack.pending("gpu1"), rack.starts("gpu1")) == ("", {}, 0)
        assert rack.jobs("gpu1") == ["ExportConfiguration Completed"]
        files = json.loads((tmp_path / "gpu1.files").read_text())
        assert files == {}, "no reason for a reboot is left"


def test_without_its_profile_the_reason_for_a_reboot_stays(tmp_path: Path) -> None:
    with site(tmp_path, {"gpu1": Node(OFF)}) as rack:
        rack.play()
        (tmp_path / ".bios/gpu1.json").unlink()
        back = rack.play("-e", "bios_state=absent")
        assert (back.fault("gpu1"), rack.jobs("gpu1")[-1]) == ("", "BIOSConfiguration Scheduled")
        assert list(json.loads((tmp_path / "gpu1.files").read_text())) == ["/run/elastic-ai/reboot-required/bios"]
        rack.play(consent=True, playbook="reboot.yml")
        assert (rack.starts("gpu1"), rack.bios("gpu1")["LogicalProc"]) == (1, "Disabled")


def test_a_profile_that_waits_is_read_back_by_whichever_run_reboots(tmp_path: Path) -> None:
    with site(tmp_path, {"gpu1": Node(OFF)}) as rack:
        rack.play(consent=True)
        rack.play("-e", "bios_state=absent")
        later = rack.play(consent=True, playbook="reboot.yml")
        assert (later.fault("gpu1"), rack.starts("gpu1"), rack.bios("gpu1")["LogicalProc"]) == ("", 2, "Enabled")
        assert [path.name for path in (tmp_path / ".bios").iterdir()] == ["gpu1.restored.json"]


def test_what_needs_two_starts_is_known_to_whichever_run_reboots(tmp_path: Path) -> None:
    with site(tmp_path, {"gpu1": RIGHT["two-starts"]}) as rack:
        rack.play()
        first = rack.play(consent=True, playbook="reboot.yml")
        assert (first.fault("gpu1"), rack.starts("gpu1")) == ("", 1)
        assert "gpu1: ProcCStates could not be set together with what they depend on" in first.words
        rack.play(consent=True)
        assert (rack.starts("gpu1"), rack.bios("gpu1")["ProcCStates"]) == (2, "Enabled")
        assert [path.name for path in (tmp_path / ".bios").iterdir()] == ["gpu1.json"]
