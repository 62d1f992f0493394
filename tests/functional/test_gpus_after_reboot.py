"""Role nvidia_driver around the reboot that takes nouveau away, on nodes that exist only as recordings."""

from __future__ import annotations

import copy
import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.node_modules import ROOT, load

pytestmark = pytest.mark.engines

gpu: Any = load("plugins/plugin_utils/gpu.py")
SERVICES = ["nvidia-persistenced.service", "nvidia-fabricmanager.service"]


def smi(
    count: int = 8, mode: str = "Enabled", state: str = "Completed", status: str = "Success", more: str = ""
) -> str:
    """`nvidia-smi -q`, shortened, in the form of NVIDIA's Fabric Manager user guide; more: lines below Health."""
    health = "        Health\n" + "".join(f"            {line}\n" for line in more.splitlines()) if more else ""
    gpus = [
        f"GPU 00000000:{number:02X}:00.0\n    Product Name                          : NVIDIA H100 80GB HBM3\n"
        f"    Persistence Mode                      : {mode}\n"
        f"    Fabric\n        State                             : {state}\n"
        f"        Status                            : {status}\n{health}"
        "    Processes                             : None\n"
        for number in range(count)
    ]
    return f"\n=====NVSMI LOG=====\n\nAttached GPUs                             : {count}\n{''.join(gpus)}"


PLAN = {"gpus": ["H100"] * 8, "fabric_manager": True}


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"stdout": smi()}, []),
        ({"stdout": smi(state="N/A", status="N/A")}, []),
        ({"stdout": smi(7)}, ["nvidia-smi sees 7 of the 8 GPUs"]),
        ({"stdout": smi(mode="Disabled")}, ["GPU 00000000:00:00.0: persistence mode is Disabled"] * 8),
        ({"stdout": smi(state="In Progress", status="N/A")}, ["NVLink fabric is In Progress"] * 8),
        ({"stdout": smi(status="Failure")}, ["NVLink fabric is Failure"] * 8),
        ({"stdout": smi(more="Bandwidth : Full\nRoute Unhealthy : False\nSummary : Healthy")}, []),
        ({"stdout": smi(more="Bandwidth : Degraded")}, ["NVLink fabric's bandwidth is Degraded"] * 8),
        ({"stdout": smi(more="Degraded Bandwidth : True")}, ["NVLink fabric's bandwidth is degraded"] * 8),
        ({"stdout": smi(more="Route Unhealthy : True")}, ["NVLink fabric's route is unhealthy"] * 8),
        ({"stdout": smi(more="Summary : Unhealthy")}, ["NVLink fabric's health is Unhealthy"] * 8),
        ({"rc": 18, "stdout": "Failed to initialize NVML: Driver/library version mismatch"}, ["version mismatch"]),
        ({"rc": 2, "msg": "[Errno 2] No such file or directory: b'nvidia-smi'"}, ["No such file or directory"]),
    ],
)
def test_what_nvidia_smi_says_of_gpus_that_are_not_usable(said: dict[str, Any], words: list[str]) -> None:
    faults = gpu.driver_health_faults({"rc": 0, "stderr": "", **said}, PLAN)
    assert len(faults) == len(words)
    assert [word for word, fault in zip(words[:1], faults, strict=False) if word not in fault] == []


LINKS = "GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-0)\n\t Link 0: 26.562 GB/s\n\t Link 1: 26.562 GB/s\n"


def play(folder: Path, common: dict[str, Any], hosts: dict[str, Any], plays: list[Any]) -> str:
    """What ansible-playbook says of these plays, to its end."""
    (folder / "hosts.yml").write_text(yaml.safe_dump({"all": {"vars": common, "hosts": hosts}}), encoding="utf-8")
    (folder / "play.yml").write_text(yaml.safe_dump(plays), encoding="utf-8")
    done = subprocess.run(
        ["ansible-playbook", str(folder / "play.yml"), "-i", str(folder / "hosts.yml")],
        cwd=ROOT, capture_output=True, text=True, check=False,
        env={**os.environ, "ANSIBLE_CONNECTION_PLUGINS": str(ROOT / "tests/plugins/connection")},
    )  # fmt: skip
    return done.stdout + done.stderr


def calls(folder: Path, said: str, links: str = LINKS, board: str = "") -> dict[str, list[dict[str, Any]]]:
    """What the role asks of a node with nouveau, and of one after its reboot. `said`, `links`: by nvidia-smi there;
    `board`: PCI id of GPUs with NVLink 5 in place of those that were recorded.
    """
    recorded = json.loads((ROOT / "tests/data/facts/os/ubuntu2404.json").read_text("utf-8"))
    hosts = {}
    for name, nouveau in (("fresh", True), ("rebooted", False)):
        node = copy.deepcopy(recorded)
        state = node["modules"]["node_state"]
        if board:
            pci = [one for one in state["pci"] if not one["class"].startswith("0x0680")]
            bridge = {"vendor": "0x15b3", "device": "0x1021", "class": "0x020700", "manages_switches": True}
            state["pci"] = [{**one, "device": board} if one["device"] == "0x2330" else one for one in pci]
            state["pci"] += [{**pci[0], **bridge, "address": "0000:05:00.0"}]
        loaded = {"loaded": not nouveau, "version": "" if nouveau else "580.126.20", "available": True}
        state["modules"] = {"nouveau": {"loaded": nouveau, "version": "", "available": True}, "nvidia": loaded}
        # The packages are there; after the reboot, which the services were enabled for, one of them does not run yet.
        state["units"] |= {unit: {"active": False, "enabled": not nouveau} for unit in SERVICES}
        state["units"]["nvidia-fabricmanager.service"]["active"] = not nouveau
        node["commands"] = {"nvidia-smi -q": {"stdout": said}, "nvidia-smi nvlink --status": {"stdout": links}}
        node["commands"] |= {"modprobe ib_umad": {}} if board else {}
        (folder / f"{name}.json").write_text(json.dumps(node), encoding="utf-8")
        hosts[name] = {"canned_recording": str(folder / f"{name}.json"), "canned_log": str(folder / f"{name}.log")}
    common = {
        "ansible_connection": "canned",
        "nvidia_driver_provider": "cuda",
        "nvidia_driver_version": "580.126.20",
        "nvidia_driver_fabric_manager_version": "580.126.20",
        "nvidia_driver_nvlsm_version": "2025.10.14",
        "nvidia_driver_verify_timeout_s": 5,
    }
    role = str(ROOT / "roles/nvidia_driver")
    plays = [
        {"hosts": name, "gather_subset": ["!all", "min", "virtual"],
         "tasks": [{"ansible.builtin.include_role": {"name": role, "tasks_from": tasks}}]}
        for name, tasks in (("fresh", "main"), ("rebooted", "rebooted"))
    ]  # fmt: skip
    text = play(folder, common, hosts, plays)
    found: dict[str, list[dict[str, Any]]] = {"said": [{"text": text}]}
    for name in hosts:
        log = folder / f"{name}.log"
        assert log.is_file(), text
        found[name] = [json.loads(line) for line in log.read_text("utf-8").splitlines()]
    return found


def services(asked: list[dict[str, Any]], key: str) -> list[str]:
    """Units that were asked to be enabled, or started."""
    wanted = {"enabled": True, "state": "started"}[key]
    units = (call["args"] for call in asked if call["module"] in ("systemd", "systemd_service"))
    return [args["name"] for args in units if args.get(key) == wanted]


def test_one_run_with_a_reboot_ends_with_every_gpu_usable(tmp_path: Path) -> None:
    """With nouveau loaded the services are enabled for the boot; after it they run and every GPU is looked at."""
    found = calls(tmp_path, smi())
    assert "failed=0" in found["said"][0]["text"].partition("PLAY RECAP")[2], found["said"][0]["text"][-3000:]
    assert services(found["fresh"], "enabled") == SERVICES
    assert services(found["fresh"], "state") == []
    assert services(found["rebooted"], "state") == SERVICES
    asked = [call["args"].get("argv") for call in found["rebooted"] if call["module"] == "command"]
    assert ["nvidia-smi", "-q"] in asked
    perform = (ROOT / "roles/reboot/tasks/perform.yml").read_text("utf-8")
    (block,) = (task["block"] for task in yaml.safe_load(perform) if task["name"] == "Verify the node")
    roles = [task["ansible.builtin.include_role"] for task in block if "ansible.builtin.include_role" in task]
    assert {"name": "nvidia_driver", "tasks_from": "rebooted"} in roles


def test_a_board_with_nvlink_5_has_nvlsm_and_what_it_reaches_its_nvswitches_through(tmp_path: Path) -> None:
    found = calls(tmp_path, smi(), board="0x2901")
    assert "failed=0" in found["said"][0]["text"].partition("PLAY RECAP")[2], found["said"][0]["text"][-3000:]
    assert services(found["rebooted"], "state") == SERVICES, "Fabric Manager's unit starts NVLSM"
    for node in ("fresh", "rebooted"):
        commands = [call["args"].get("argv") for call in found[node] if call["module"] == "command"]
        assert ["modprobe", "ib_umad"] in commands
        files = [one for call in found[node] if call["module"] == "managed_files" for one in call["args"]["files"]]
        load = next(one for one in files if one["path"] == "/etc/modules-load.d/elastic-ai-nvlsm.conf")
        assert load["state"] == "present"
        assert load["content"].splitlines()[-1] == "ib_umad"
        wanted = [call["args"]["wanted"] for call in found[node] if call["module"] == "package_set"]
        assert {"nvlsm": "2025.10.14-1"}.items() <= {name: v for one in wanted for name, v in one.items()}.items()


def test_a_gpu_that_is_not_usable_after_the_reboot_stops_the_node_and_is_named(tmp_path: Path) -> None:
    text = calls(tmp_path, smi(7))["said"][0]["text"]
    assert "rebooted: nvidia-smi sees 7 of the 8 GPUs on the PCI bus. Look at: nvidia-smi -q" in " ".join(text.split())


@pytest.mark.parametrize(
    ("said", "links", "active", "words"),
    [
        (smi().replace("    Processes", "    GPU Recovery Action : Reset\n    Processes", 1), LINKS, True,
         "GPU 00000000:00:00.0: the driver asks for a recovery action (GPU Recovery Action: Reset)"),
        (smi(), LINKS.replace("1: 26.562 GB/s", "1: <inactive>"), True, "GPU 0: 1 of 2 NVLinks are down (1)"),
        (smi(), LINKS, False, "nvidia-fabricmanager does not run"),
    ],
)  # fmt: skip
def test_a_gpu_that_is_not_well_stops_its_node_in_every_run(
    said: str, links: str, active: bool, words: str, tmp_path: Path
) -> None:
    """A node that nothing is changed on."""
    text = gated(tmp_path, said, links, active)
    assert f"gpu1: {words}" in text
    assert "nvidia_driver_gate: false" in text


def gated(folder: Path, said: str, links: str, active: bool = True, **more: Any) -> str:
    """The words of role nvidia_driver on a node whose driver runs, in one line."""
    node = json.loads((ROOT / "tests/data/facts/os/ubuntu2404.json").read_text("utf-8"))
    state = node["modules"]["node_state"]
    loaded = {"loaded": True, "version": "580.126.20", "available": True}
    state["modules"] = {"nouveau": {"loaded": False, "version": "", "available": True}, "nvidia": loaded}
    state["units"] |= {unit: {"active": True, "enabled": True} for unit in SERVICES}
    state["units"]["nvidia-fabricmanager.service"]["active"] = active
    node["commands"] = {"nvidia-smi -q": {"stdout": said}, "nvidia-smi nvlink --status": {"stdout": links}}
    (folder / "gpu1.json").write_text(json.dumps(node), encoding="utf-8")
    common = {
        "ansible_connection": "canned", "canned_recording": str(folder / "gpu1.json"), "canned_node": "converged",
        "nvidia_driver_provider": "cuda", "nvidia_driver_version": "580.126.20",
        "nvidia_driver_fabric_manager_version": "580.126.20", "nvidia_driver_verify_timeout_s": 5, **more,
    }  # fmt: skip
    role = {"ansible.builtin.include_role": {"name": str(ROOT / "roles/nvidia_driver")}}
    plays = [{"hosts": "gpu1", "gather_subset": ["!all", "min", "virtual"], "tasks": [role]}]
    return " ".join(play(folder, common, {"gpu1": {}}, plays).split())


def test_gpus_that_are_well_pass_and_a_site_may_leave_the_gate_out(tmp_path: Path) -> None:
    assert "failed=0" in gated(tmp_path, smi(), LINKS)
    down = LINKS.replace("1: 26.562 GB/s", "1: <inactive>")
    assert "failed=0" in gated(tmp_path, smi(), down, nvidia_driver_gate=False)


DIAGNOSIS = {"DCGM Diagnostic": {"test_categories": [{"category": "Deployment", "tests": [
    {"name": "software", "results": [{"entity_group": "GPU", "entity_id": 5, "status": "Pass"}]}]}]}}  # fmt: skip


def diagnosed(folder: Path, said: str, waits: bool = False) -> str:
    """The words of role dcgm on a node whose driver runs, or waits for a reboot."""
    node = json.loads((ROOT / "tests/data/facts/os/ubuntu2404.json").read_text("utf-8"))
    state = node["modules"]["node_state"]
    state["modules"] = {"nvidia": {"loaded": True, "version": "580.126.20", "available": True}}
    state["units"]["nvidia-dcgm.service"] = {"active": True, "enabled": True}
    node["commands"] = {"timeout 120 dcgmi diag -r 1 -j": {"stdout": said}}
    (folder / "gpu1.json").write_text(json.dumps(node), encoding="utf-8")
    common = {"ansible_connection": "canned", "canned_recording": str(folder / "gpu1.json"), "canned_node": "converged",
              "dcgm_version": "4.6.0", "dcgm_driver_version": "580.126.20",
              "nvidia_driver_result": {"reboot_required": ["nouveau"] if waits else []}}  # fmt: skip
    role = {"ansible.builtin.include_role": {"name": str(ROOT / "roles/dcgm")}}
    plays = [{"hosts": "gpu1", "gather_subset": ["!all", "min", "virtual"], "tasks": [role]}]
    return " ".join(play(folder, common, {"gpu1": {}}, plays).split())


def test_dcgms_own_diagnostic_is_the_last_of_the_gates(tmp_path: Path) -> None:
    good = json.dumps(DIAGNOSIS)
    assert "failed=0" in diagnosed(tmp_path, good)
    bad = good.replace('"status": "Pass"', '"status": "Fail", "warnings": [{"warning": "inforom is damaged"}]')
    assert "gpu1: GPU 5: software: inforom is damaged. Look at: dcgmi diag -r 1" in diagnosed(tmp_path, bad)
    waiting = diagnosed(tmp_path, bad, waits=True)
    assert "failed=0" in waiting
    assert "installed and not started, the driver waits for a reboot" in waiting


def test_dcgm_is_looked_at_after_the_reboot_too() -> None:
    perform = (ROOT / "roles/reboot/tasks/perform.yml").read_text("utf-8")
    (block,) = (task["block"] for task in yaml.safe_load(perform) if task["name"] == "Verify the node")
    roles = [task["ansible.builtin.include_role"]["name"] for task in block if "ansible.builtin.include_role" in task]
    assert roles.index("nvidia_driver") < roles.index("dcgm")
    gpu_stage = yaml.safe_load((ROOT / "playbooks/gpu.yml").read_text("utf-8"))
    assert gpu_stage[0]["tasks"][-1]["ansible.builtin.import_role"]["name"] == "dcgm"


def test_a_reboot_after_a_change_of_the_bios_has_the_time_that_a_large_server_needs() -> None:
    """Servers with 2 to 4 TB of memory train it for up to half an hour then."""
    defaults = yaml.safe_load((ROOT / "roles/reboot/defaults/main.yml").read_text("utf-8"))
    assert defaults["reboot_timeout_s"] >= 40 * 60
    perform = yaml.safe_load((ROOT / "roles/reboot/tasks/perform.yml").read_text("utf-8"))
    (reboot,) = (task["ansible.builtin.reboot"] for task in perform if "ansible.builtin.reboot" in task)
    assert reboot["reboot_timeout"] == "{{ reboot_timeout_s | int }}"
