"""What role nvidia_driver decides of a node: faults, what does not apply, notes, services, obsolete holds."""

import pytest

from tests.support.node_modules import load
from tests.support.role_values import role_values

driver = load("plugins/plugin_utils/driver.py")

RUNNING = {"enabled": True, "active": True}


def plan(**changed):
    known = {"packages": {"new": ""}, "unwanted": [], "gpus": [{}], "nvswitches": [], "flavour": "open", "faults": []}
    return {**known, "fabric_manager": False, **changed}


def node(**changed):
    units = {driver.PERSISTENCED: RUNNING, driver.FABRIC_MANAGER: RUNNING}
    return {"in_container": False, "packages": {}, "units": units, "modules": {"nvidia": {"loaded": True}}, **changed}


def judged(reading=None, wanted=None, **changed):
    given = {"user_space_only": False, "sysfs_root": "/planted", "secure_boot": "", "built_by_dkms": True}
    return driver.driver_judged(reading or node(), wanted or plan(), **{**given, **changed})


def faults(reading, wanted, **changed):
    return judged(reading, wanted, **changed)["faults"]


def notes(wanted=None, **changed):
    return judged(wanted=wanted, **changed)["notes"]


def test_faults_are_those_of_the_plan_then_those_of_the_node():
    assert faults(node(), plan(faults=["too old"])) == ["too old"]
    (absent,) = faults(node(), plan(gpus=[]))
    assert absent.startswith("no NVIDIA GPU on the PCI bus below /planted; check seating and BIOS")
    assert faults(node(), plan(gpus=[]), user_space_only=True) == []


def test_kernel_modules_of_the_other_kind_are_named_where_they_are_installed():
    there = node(packages={"nvidia-kernel-dkms": "580.126.20-1", "linux-modules-nvidia": "", "other": "1"})
    (said,) = faults(there, plan(unwanted=["linux-modules-nvidia", "nvidia-kernel-dkms"]))
    assert said == (
        "nvidia-kernel-dkms is installed; the other kind of kernel modules is wanted here (open): run the role with "
        "nvidia_driver_state absent first"
    )


@pytest.mark.parametrize(
    ("container", "flavour", "user_space_only", "switches", "left_out"),
    [
        (False, "open", False, ["a"], []),
        (True, "open", False, [], ["a container runs its host's kernel", "nvidia-persistenced"]),
        (True, "", True, [], ["a container runs its host's kernel", "nvidia-persistenced"]),
        (False, "", True, ["a"], ["user space only was asked for", "nvidia-persistenced", "Fabric Manager"]),
    ],
)
def test_what_does_not_apply(container, flavour, user_space_only, switches, left_out):
    wanted = plan(flavour=flavour, nvswitches=switches)
    lines = judged(node(in_container=container), wanted, user_space_only=user_space_only)["not_applicable"]
    assert len(lines) == len(left_out)
    assert all(part in line for part, line in zip(left_out, lines, strict=True)), lines


def test_secure_boot_is_told_only_of_modules_that_dkms_builds():
    on, off = "\x06\x00\x00\x00\x01", "\x06\x00\x00\x00\x00"
    assert "mokutil --import" in notes(secure_boot=on)[0]
    assert notes(secure_boot=off) == []
    assert notes() == []
    assert notes(secure_boot=on, built_by_dkms=False) == []
    assert notes(plan(flavour=""), secure_boot=on) == []


@pytest.mark.parametrize(
    ("changed", "fabric_manager", "stopped"),
    [
        ({}, False, False),
        ({}, True, False),
        ({"modules": {"nvidia": {"loaded": False}}}, False, True),
        ({"modules": {"nvidia": {"loaded": False}}, "in_container": True}, False, False),
        ({"units": {driver.PERSISTENCED: {"enabled": True, "active": False}}}, False, True),
        ({"units": {driver.PERSISTENCED: {"enabled": False, "active": True}}}, False, True),
        ({"units": {driver.PERSISTENCED: RUNNING, driver.FABRIC_MANAGER: {**RUNNING, "active": False}}}, True, True),
        ({"units": {driver.PERSISTENCED: RUNNING, driver.FABRIC_MANAGER: {**RUNNING, "active": False}}}, False, False),
    ],
)
def test_a_driver_is_started_where_a_part_of_it_is_not_at_work(changed, fabric_manager, stopped):
    assert judged(node(**changed), plan(fabric_manager=fabric_manager))["stopped"] is stopped


def test_services_follow_the_plan():
    assert judged()["services"] == ["nvidia-persistenced.service"]
    assert judged(wanted=plan(fabric_manager=True))["services"][1:] == ["nvidia-fabricmanager.service"]


def test_the_role_tells_secure_boot_as_the_node_reads_it():
    """Ansible hands an escape like \\x01 to Jinja as four characters: a comparison in YAML never held."""
    path = "/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
    given = {
        "ansible_facts": {"distribution": "Ubuntu", "distribution_version": "24.04", "os_family": "Debian"},
        "nvidia_driver_sysfs_root": "/sys",
        "nvidia_driver_plan": plan(),
        "nvidia_driver_node": node(contents={path: "\x06\x00\x00\x00\x01"}),
    }

    cases = [{**given, "nvidia_driver_provider": provider} for provider in ("cuda", "canonical")]
    by_dkms, signed = (
        case["__nvidia_driver_judged"]["notes"]
        for case in role_values("nvidia_driver", ["__nvidia_driver_judged"], cases)
    )
    assert len(by_dkms) == 1
    assert signed == []  # Canonical signs the modules of its packages
