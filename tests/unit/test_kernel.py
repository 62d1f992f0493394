"""Boot parameters, holds and what waits for a reboot, on readings of machines of bare metal and in containers."""

from __future__ import annotations

import json
from typing import Any

import pytest
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar

from tests.support.node_modules import ROOT, load, managed_files

kernel: Any = load("plugins/plugin_utils/kernel.py")

INTEL = [{"address": "0000:00:00.0", "vendor": "0x8086", "device": "0x09a2", "class": "0x060000"}]
AMD = [{"address": "0000:00:00.0", "vendor": "0x1022", "device": "0x14a4", "class": "0x060000"}]
OPTIONS = {"iommu_passthrough": True, "numa_balancing": False, "cstate_max": 1, "hugepages": [], "extra": {}}
WANTED = {
    "options": OPTIONS,
    "nouveau_off": True,
    "hold": True,
    "series": "6.8",
    "packages": ["linux-generic", "linux-virtual"],
}
ARGUMENTS = "intel_iommu=on iommu=pt numa_balancing=disable intel_idle.max_cstate=1 processor.max_cstate=1"
GRUB = """
menuentry 'Ubuntu' {{
	linux	/vmlinuz-6.8.0-87-generic root=/dev/mapper/vg0-root ro {arguments} quiet
	initrd	/initrd.img-6.8.0-87-generic
}}
menuentry 'Ubuntu, recovery mode' {{
	linux	/vmlinuz-6.8.0-87-generic root=/dev/mapper/vg0-root ro single
}}
"""


def test_idle_states_are_limited_on_gpu_servers_alone() -> None:
    loader = DataLoader()
    variables = loader.load_from_file(str(ROOT / "roles/kernel/vars/main.yml"), trusted_as_template=True)
    about = {"groups": {"gpu_servers": ["gpu1"], "heads": ["head"]}, "kernel_cstate_max": 1}
    said = [
        Templar(loader, {**about, "inventory_hostname": name}).template(variables["__kernel_cstate_max"])
        for name in ("gpu1", "head")
    ]
    assert said == [1, -1]


def node(**changes: Any) -> dict[str, Any]:
    reading: dict[str, Any] = {
        "contents": {
            kernel.MEMORY: "",
            kernel.GRUB_DEFAULTS: 'GRUB_CMDLINE_LINUX=""\n',
            kernel.GRUB_CONFIG: GRUB.format(arguments=""),
        },
        "packages": {"linux-generic": "6.8.0.87.90", "linux-virtual": ""},
        "held": [],
        "modules": {"nouveau": {"loaded": False}},
        "modules_loadable": True,
        "in_container": False,
        "kernel": "6.8.0-87-generic",
        "kernels": ["6.8.0-87-generic"],
        "cmdline": "root=/dev/mapper/vg0-root ro quiet",
        "pci": INTEL,
    }
    return {**reading, **changes}


def plan(reading: dict[str, Any], **changes: Any) -> dict[str, Any]:
    found: dict[str, Any] = kernel.kernel_plan(reading, {**WANTED, **changes})
    return found


def settled(**changes: Any) -> dict[str, Any]:
    """The same node after the role and a reboot."""
    memory = json.dumps({"arguments": ARGUMENTS.split(), "held": ["linux-generic"]})
    contents = {
        kernel.MEMORY: memory,
        kernel.GRUB_DEFAULTS: "x",
        kernel.GRUB_CONFIG: GRUB.format(arguments=ARGUMENTS),
    }
    return node(contents=contents, held=["linux-generic"], cmdline=f"ro {ARGUMENTS}", **changes)


def test_a_fresh_node_gets_parameters_by_its_vendor_and_waits_for_a_reboot() -> None:
    found = plan(node())
    assert " ".join(found["arguments"]) == ARGUMENTS
    assert found["loader"] == "grub"
    assert found["boot_files_differ"]
    assert found["reboot_required"] == [f"boot parameters not in effect yet: {ARGUMENTS}"]
    assert plan(node(pci=AMD))["arguments"][0] == "amd_iommu=on"


def test_a_settled_node_needs_nothing() -> None:
    found = plan(settled())
    assert not found["boot_files_differ"]
    assert found["to_hold"] == found["to_release"] == found["reboot_required"] == found["not_applicable"] == []
    assert found["held"] == ["linux-generic"]


def test_parameters_in_the_file_but_not_in_effect_wait_for_a_reboot_only() -> None:
    found = plan({**settled(), "cmdline": "ro quiet"})
    assert not found["boot_files_differ"]
    assert "not in effect yet" in found["reboot_required"][0]


def test_a_parameter_that_leaves_the_inventory_leaves_the_boot_loader() -> None:
    found = plan(settled(), options={**OPTIONS, "cstate_max": -1})
    assert found["boot_files_differ"]
    assert found["to_remove"] == ["intel_idle.max_cstate=1", "processor.max_cstate=1"]
    assert "still in effect" in found["reboot_required"][0]


def test_hugepages_and_site_parameters_follow_in_order() -> None:
    options = {**OPTIONS, "hugepages": [{"size": "1G", "count": 16}], "extra": {"nosmt": "", "pci": "realloc=off"}}
    assert kernel.boot_arguments(options, [])[-4:] == ["hugepagesz=1G", "hugepages=16", "nosmt", "pci=realloc=off"]


def test_el_is_changed_by_grubby_when_an_entry_lacks_a_parameter() -> None:
    def entries(arguments: str) -> dict[str, str]:
        return {
            kernel.MEMORY: "",
            kernel.GRUB_CONFIG: "",
            "/boot/loader/entries/a-5.14.0-570.el9.conf": f"title Rocky\noptions root=/dev/sda1 ro {arguments}\n",
            "/boot/loader/entries/a-0-rescue.conf": "options root=/dev/sda1 ro\n",
        }

    assert plan(node(contents=entries("")))["loader"] == "bls"
    assert plan(node(contents=entries("")))["boot_files_differ"]
    assert not plan(node(contents=entries(ARGUMENTS)))["boot_files_differ"]


def test_another_boot_loader_is_left_alone_and_the_parameters_are_named() -> None:
    found = plan(node(contents={kernel.MEMORY: ""}))
    assert found["arguments"] == []
    assert not found["boot_files_differ"]
    assert found["not_applicable"] == [f"the boot loader is not GRUB: set the boot parameters by hand: {ARGUMENTS}"]


def test_a_container_gets_nothing_and_is_told_why() -> None:
    found = plan(node(in_container=True, modules={"nouveau": {"loaded": True}}))
    assert found["not_applicable"]
    assert found["arguments"] == found["to_hold"] == found["reboot_required"] == []


def test_installed_kernel_packages_are_held_where_a_series_is_pinned() -> None:
    assert plan(node())["to_hold"] == ["linux-generic"]
    assert plan(node(), series="")["to_hold"] == []
    assert plan(settled(), hold=False)["to_release"] == ["linux-generic"]


def test_a_hold_that_was_there_before_is_not_released_later() -> None:
    before = node(held=["linux-generic"])
    assert plan(before)["held"] == []
    undo = kernel.kernel_undo({**before, "contents": {kernel.MEMORY: json.dumps({"arguments": [], "held": []})}})
    assert undo["to_release"] == []


def test_nouveau_and_a_newer_kernel_are_reasons_for_a_reboot() -> None:
    loaded = {**settled(), "modules": {"nouveau": {"loaded": True}}}
    assert "nouveau" in plan(loaded)["reboot_required"][0]
    assert plan(loaded, nouveau_off=False)["reboot_required"] == []
    newer = {**settled(), "kernels": ["6.8.0-90-generic", "6.8.0-87-generic"]}
    assert plan(newer)["reboot_required"] == ["kernel 6.8.0-87-generic runs, 6.8.0-90-generic is installed"]


def test_taking_back_on_a_node_where_the_role_never_ran_does_nothing() -> None:
    undo = kernel.kernel_undo(node())
    assert undo["to_remove"] == undo["to_release"] == undo["reboot_required"] == []
    assert "still in effect" in kernel.kernel_undo(settled())["reboot_required"][0]


@pytest.mark.parametrize("loader", ["grub", "bls", ""])
def test_the_files_are_valid_for_every_boot_loader(loader: str) -> None:
    found = {**plan(node()), "loader": loader}
    files = {f["path"]: f for f in managed_files("roles/kernel/tasks/apply.yml", kernel_plan=found)}
    grub = files["/etc/default/grub.d/60-elastic-ai.cfg"]
    assert grub["state"] == ("present" if loader == "grub" else "absent")
    assert f'GRUB_CMDLINE_LINUX="$GRUB_CMDLINE_LINUX {ARGUMENTS}"' in grub["content"]
    assert files["/etc/modprobe.d/60-elastic-ai-nouveau.conf"]["content"].endswith("options nouveau modeset=0\n")
    assert files["/run/elastic-ai/reboot-required/kernel"]["content"].startswith("boot parameters not in effect")
