"""What role tuning sets, remembers and puts back; and the module that writes the kernel's values."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.node_modules import load, run

pytestmark = pytest.mark.systems

tuning: Any = load("plugins/plugin_utils/tuning.py")
reboot: Any = load("plugins/plugin_utils/reboot.py")

MEMORY = "/var/lib/elastic-ai/tuning.json"
GOVERNOR = "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"
WANTED = {
    "sysctl": {"vm.swappiness": 10, "net.ipv4.tcp_rmem": "4096 131072 6291456"},
    "governor": "performance",
    "memory": MEMORY,
    "sysfs_root": "/sys",
}


def node(**changes: Any) -> dict[str, Any]:
    reading: dict[str, Any] = {
        "sysctls": {
            "vm.swappiness": {"value": "60", "settable": True},
            "net.ipv4.tcp_rmem": {"value": "4096 131072 6291456", "settable": True},
        },
        "contents": {MEMORY: "", GOVERNOR: "powersave\n"},
        "in_container": False,
        "limits": {"raisable": True},
    }
    return {**reading, **changes}


def test_what_differs_is_set_and_what_was_there_is_remembered() -> None:
    plan = tuning.tuning_plan(node(), WANTED)
    assert plan["values"] == {"/proc/sys/vm/swappiness": "10"}
    assert plan["memory"]["sysctl"] == {"vm.swappiness": "60", "net.ipv4.tcp_rmem": "4096 131072 6291456"}
    assert plan["memory"]["governor"] == "powersave"
    assert plan["governor_differs"]


def test_the_second_run_remembers_the_first_value_and_sets_nothing() -> None:
    memory = json.dumps(tuning.tuning_plan(node(), WANTED)["memory"])
    tuned = node(contents={MEMORY: memory, GOVERNOR: "performance\n"})
    tuned["sysctls"]["vm.swappiness"]["value"] = "10"
    plan = tuning.tuning_plan(tuned, WANTED)
    assert plan["values"] == {}
    assert not plan["governor_differs"]
    assert plan["memory"] == json.loads(memory)
    assert tuning.tuning_undo(tuned, MEMORY)["values"] == {
        "/proc/sys/vm/swappiness": "60",
        "/proc/sys/net/ipv4/tcp_rmem": "4096 131072 6291456",
        GOVERNOR: "powersave",
    }


def test_a_parameter_that_leaves_the_inventory_goes_back() -> None:
    memory = json.dumps({"sysctl": {"vm.swappiness": "60", "vm.max_map_count": "65530"}, "governor": ""})
    plan = tuning.tuning_plan(node(contents={MEMORY: memory}), WANTED)
    assert plan["values"]["/proc/sys/vm/max_map_count"] == "65530"
    assert "vm.max_map_count" not in plan["memory"]["sysctl"]


def test_what_the_node_cannot_set_is_named_and_not_claimed() -> None:
    container = node(in_container=True, limits={"raisable": False})
    container["sysctls"]["vm.swappiness"]["settable"] = False
    plan = tuning.tuning_plan(container, WANTED)
    assert plan["values"] == {}
    assert "vm.swappiness" not in plan["memory"]["sysctl"]
    assert plan["governor"] == ""
    assert len(plan["not_applicable"]) == 3


def test_taking_back_where_the_role_never_ran_sets_nothing() -> None:
    assert tuning.tuning_undo(node(), MEMORY) == {"values": {}}


def test_values_are_written_where_they_differ_and_check_mode_only_says_so(tmp_path: Path) -> None:
    same, other = tmp_path / "same", tmp_path / "other"
    same.write_text("4096\t131072\n")
    other.write_text("60\n")
    wanted = {"values": {str(same): "4096 131072", str(other): 10}}
    assert run("kernel_values", wanted, check=True)["changed_paths"] == [str(other)]
    assert other.read_text() == "60\n"
    assert run("kernel_values", wanted)["changed_paths"] == [str(other)]
    assert (same.read_text(), other.read_text()) == ("4096\t131072\n", "10\n")
    assert run("kernel_values", wanted)["changed"] is False


def test_a_value_that_the_kernel_refuses_is_named(tmp_path: Path) -> None:
    answer = run("kernel_values", {"values": {str(tmp_path / "none"): "1"}})
    assert answer["failed"]
    assert str(tmp_path / "none") in answer["msg"]


def test_reasons_for_a_reboot_name_who_gives_them() -> None:
    reading = {
        "contents": {
            "/run/elastic-ai/reboot-required/kernel": "boot parameters not in effect yet: iommu=pt\n",
            "/run/elastic-ai/reboot-required/nvidia_driver": "one\n\ntwo\n",
            "/proc/sys/kernel/random/boot_id": "x",
        },
        "reboot_hints": ["libc6", "linux-base"],
    }
    assert reboot.reboot_reasons(reading) == [
        "kernel: boot parameters not in effect yet: iommu=pt",
        "nvidia_driver: one",
        "nvidia_driver: two",
        "packages that were upgraded: libc6, linux-base",
    ]
    assert reboot.reboot_reasons({"contents": {}, "reboot_hints": []}) == []


def test_a_node_that_came_back_with_another_kernel_is_told_which_to_choose() -> None:
    before = {"kernel": "6.8.0-87-generic"}
    after = {"kernel": "6.8.0-31-generic", "kernels": ["6.8.0-87-generic", "6.8.0-31-generic"], "in_container": False}
    (fault,) = reboot.kernel_lost(before, after)
    assert "grubby --set-default /boot/vmlinuz-6.8.0-87-generic" in fault
    assert reboot.kernel_lost(before, {**after, "kernel": "6.8.0-87-generic"}) == []
    upgraded = {**after, "kernel": "6.8.0-90-generic", "kernels": ["6.8.0-90-generic", "6.8.0-87-generic"]}
    assert reboot.kernel_lost(before, upgraded) == []
    assert reboot.kernel_lost(before, {**after, "in_container": True}) == []


def test_units_that_did_not_come_back_are_named() -> None:
    before = "docker.service loaded active running Docker\nslurmd.service loaded active running Slurm\n"
    assert reboot.units_lost(before, "docker.service loaded active running Docker\n") == ["slurmd.service"]
    assert reboot.units_lost("", before) == []
