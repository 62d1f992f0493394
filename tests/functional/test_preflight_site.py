"""What preflight decides of the whole site: that the parts which stages need are in the inventory, at minute 0."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from jinja2.nativetypes import NativeEnvironment

from tests.support.node_modules import ROOT, load
from tests.support.preflight_case import NODE, WANTED, preflight, reasons

pytestmark = pytest.mark.systems

preflight_node: Any = load("plugins/plugin_utils/preflight_node.py")
SITE: dict[str, Any] = {
    "has_head": True,
    "need_head": ["slurm", "horovod"],
    "controller": False,
    "reboots": False,
    "driver": True,
    "gpu_count": 8,
    "image": {"builds": False, "base": "bootstrap", "for_gpus": True, "torch": "2.14.1", "registry": {}},
}
ROCKY = {"os": {"id": "rocky", "version": "9.6", "rhel_like": True}}


def gpus(count: int, device: str = "0x2330", vendor: str = "0x10de") -> list[dict[str, Any]]:
    one = {"vendor": vendor, "device": device, "class": "0x030200", "numa_node": 0, "driver": ""}
    return [{**one, "address": f"0000:{16 + index:02x}:00.0"} for index in range(count)]


def site(observed: dict[str, Any] | None = None, **own: Any) -> list[str]:
    return reasons({"pci": gpus(8), **(observed or {})}, {"site": {**SITE, **own}})


def notes(observed: dict[str, Any] | None = None, **own: Any) -> list[str]:
    found: list[str] = preflight.preflight_notes(
        {**NODE, "pci": gpus(8), **(observed or {})}, {**WANTED, "site": {**SITE, **own}}
    )
    return found


def test_a_whole_site_is_not_refused() -> None:
    assert site() == notes() == []


def test_a_site_without_a_head_is_refused_before_anything_is_changed() -> None:
    (reason,) = site(has_head=False)
    assert "no host in its group heads" in reason
    assert "slurm and horovod" in reason
    assert site(has_head=False, need_head=[]) == []


def test_a_gpu_server_without_a_gpu_is_refused() -> None:
    (reason,) = site({"pci": []})
    assert "no NVIDIA GPU on its PCI bus" in reason
    (amd,) = site({"pci": gpus(8, "0x74a1", "0x1002")})
    assert "1002:74a1 (8)" in amd
    assert "not NVIDIA's" in amd
    for fine in ({"gpu_server": False}, {"user_space_only": True}):
        assert reasons({"pci": []}, {**fine, "site": SITE}) == []
    assert site({"pci": []}, driver=False) == []
    assert site({"pci": [], "in_container": True}) == []


@pytest.mark.parametrize(("count", "noted"), [(8, 0), (7, 1), (None, 0)])
def test_gpus_that_the_bill_of_materials_has_and_the_bus_has_not_are_named(count: int | None, noted: int) -> None:
    observed = {"pci": gpus(8 if count is None else count)}
    assert site(observed) == []
    found = notes(observed, gpu_count=8 if count is not None else 0)
    assert len(found) == noted
    assert all("7 NVIDIA GPUs on its PCI bus, 8 in its bill of materials" in one for one in found)


def test_the_controller_s_own_reboot_is_named_before_the_run() -> None:
    (note,) = notes(controller=True, reboots=True)
    assert "the machine that Ansible runs on" in note
    assert notes(controller=True) == []


def test_a_head_that_cannot_make_the_image_is_refused_at_once() -> None:
    """By the tables of role horovod itself: EL has no registry."""
    table = yaml.safe_load((ROOT / "roles/horovod/vars/main.yml").read_text(encoding="utf-8"))["__horovod_systems"]
    image = {**SITE["image"], "builds": True, "registry": table}
    (reason,) = site({**ROCKY}, image=image)
    assert "rocky has no docker-registry" in reason
    assert "horovod_state: absent" in reason
    assert site({**ROCKY}, image={**image, "builds": False}) == []
    assert site(image=image) == []
    (cpus,) = site(image={**image, "for_gpus": False, "torch": ""})
    assert "only a Debian node can bootstrap the image" in cpus
    (without,) = site(image={**image, "torch": ""})
    assert "names no torch" in without
    debian = load("plugins/plugin_utils/training_role.py").BOOTSTRAPS
    assert set(map(str.lower, debian["gpus"])) <= set(table)


NEWER: dict[str, Any] = {"kernels": ["6.8.0-90-generic", "6.8.0-87-generic"]}


def test_with_consent_a_free_node_boots_its_newest_kernel_first() -> None:
    """It passes, with a note; without consent the refusal has the words to add to the command."""
    node = preflight_node.first_reboot
    (refused,) = site(NEWER)
    assert "-e reboot=if_needed" in refused
    assert site(NEWER, reboots=True) == []
    assert [note for note in notes(NEWER, reboots=True) if "boots 6.8.0-90-generic before anything is built" in note]
    assert not [note for note in notes(NEWER) if "before anything is built" in note]
    for busy in ({**NEWER, "jobs": ["17"]}, {**NEWER, "foreign": {"containers": {"docker": 1}}}):
        assert node({**NODE, **busy}, {**WANTED, "site": {**SITE, "reboots": True}}) == ""
    provisioned = {**NEWER, "jobs": ["17"], "provisioned_release": "current", "provisioned_versions": {}}
    (stays,) = site(provisioned, reboots=True)
    assert "jobs run here (17): wait for their end" in stays
    (here,) = site(NEWER, reboots=True, controller=True)
    assert "the machine that Ansible runs on" in here


def test_a_node_that_a_reboot_did_not_bring_to_its_newest_kernel_is_not_rebooted_again() -> None:
    """Its boot loader takes an older one, perhaps on purpose; a kernel installed since then is another matter."""
    (kept,) = site(NEWER, reboots=True, tried="6.8.0-90-generic")
    assert "a reboot for it ended in 6.8.0-87-generic; choose it (grub-set-default" in kept
    assert site(NEWER, reboots=True, tried="6.8.0-88-generic") == []


def test_headers_of_a_kernel_that_is_left_behind_are_not_asked_for() -> None:
    assert site({**NEWER, "headers": "missing"}, reboots=True) == []
    assert any("headers are neither" in one for one in site({**NEWER, "headers": "missing"}))


def test_variables_that_ansible_does_not_read_are_named_before_anything_is_changed(tmp_path: Path) -> None:
    """By the role's own words, on one node of the site: the first."""
    (tmp_path / "group_vars/all").mkdir(parents=True)
    (tmp_path / "group_vars/all.yml").write_text("fabric: roce40\n")
    parts = yaml.safe_load((ROOT / "roles/preflight/vars/main.yml").read_text())["__preflight_findings_by_part"]
    (take,) = [part["take"] for part in parts if "unread_variables" in part["take"]]
    named: Any = load("plugins/plugin_utils/unread.py")
    environment = NativeEnvironment()
    environment.filters["elastic_ai.toolkit.unread_variables"] = named.unread_variables

    def found(host: str, folder: Path | None) -> Any:
        play = {"inventory_hostname": host, "ansible_play_hosts_all": ["head", "gpu1"]}
        return environment.from_string(take).render(**play, inventory_dir=str(folder) if folder else None)

    (said,) = found("head", tmp_path)
    assert said.startswith(f"{tmp_path}/group_vars/all.yml: Ansible does not read it")
    assert found("gpu1", tmp_path) == found("head", None) == []
    (tmp_path / "group_vars/all.yml").unlink()
    assert found("head", tmp_path) == []


def test_every_variable_of_the_packaged_inventories_is_read() -> None:
    named: Any = load("plugins/plugin_utils/unread.py")
    folders = [path for path in (ROOT / "inventories").iterdir() if path.is_dir()]
    assert len(folders) > 5
    assert [said for folder in folders for said in named.unread_variables(str(folder))] == []
    # a file that a page says to put into group_vars/all would hide group_vars/all.yml
    assert [path for folder in folders for path in folder.glob("*_vars/*.yml")] == []
