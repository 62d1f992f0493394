"""Choice of driver packages and kernel modules by the GPUs that the PCI bus shows."""

from pathlib import Path

import pytest
import yaml

from tests.support.node_modules import load

gpu = load("plugins/plugin_utils/gpu.py")

ROOT = Path(__file__).parents[2]
TABLES = {}


def tables():
    if not TABLES:
        data = yaml.safe_load((ROOT / "roles/nvidia_driver/vars/main.yml").read_text())
        TABLES.update(data["__nvidia_driver_systems"])
    return TABLES


def device(ident, class_="0x030200", address="0000:3b:00.0", node=0):
    return {
        "address": address,
        "vendor": "0x10de",
        "device": ident,
        "class": class_,
        "numa_node": node,
        "driver": "",
    }


V100, T4, H100, B200 = (device(i) for i in ("0x1db5", "0x1eb8", "0x2330", "0x2901"))
SWITCH = device("0x22a3", "0x068000", "0000:05:00.0")


def plan(provider, os, version, pci, **options):
    wanted = {
        "flavour": "auto",
        "user_space_only": False,
        "mps": True,
        "kernel": "6.1.0-37-amd64",
        "in_container": False,
        "fabric_manager_version": "",
        "nvlsm_version": "2025.10.14",
        "revision": "",
    }
    return gpu.driver_plan(tables()[os][provider], version, pci, {**wanted, **options})


CHIPS = {
    "GM": "maxwell",
    "GP": "pascal",
    "GV": "volta",
    "TU": "turing",
    "GA": "ampere",
    "GH": "hopper",
    "AD": "ada",
    "GB": "blackwell",
    "GR": "unknown",  # Rubin: no driver branch on record here yet
}


def test_every_gpu_of_the_public_id_list_has_its_generation():

    rows = [line.split() for line in (ROOT / "tests/data/gpu/pci-chips.txt").read_text().splitlines() if line[0] != "#"]
    wrong = [
        (ident, chip, gpu.gpu_generation("0x" + ident))
        for ident, chip in rows
        if gpu.gpu_generation("0x" + ident) != CHIPS[chip[:2]]
    ]
    assert len(rows) > 550
    assert wrong == []


def test_models_belong_to_ids_of_their_generation():
    rows = dict(
        line.split() for line in (ROOT / "tests/data/gpu/pci-chips.txt").read_text().splitlines() if line[0] != "#"
    )
    assert [i for i in gpu.known()["gpu_models"] if i[2:] not in rows] == []


def test_only_display_functions_count_as_gpus():
    pci = [V100, device("0x10f7", "0x040300"), {**V100, "vendor": "0x8086"}, SWITCH]
    assert gpu.gpu_list(pci) == [
        {
            "address": "0000:3b:00.0",
            "device": "0x1db5",
            "model": "Tesla V100 SXM2 32GB",
            "generation": "volta",
            "numa_node": 0,
        }
    ]
    assert gpu.nvswitch_list(pci) == ["0000:05:00.0"]


@pytest.mark.parametrize(
    ("pci", "flavour", "module"),
    [
        ([V100], "proprietary", "nvidia-kernel-dkms"),
        ([T4], "open", "nvidia-kernel-open-dkms"),
        ([H100], "open", "nvidia-kernel-open-dkms"),
        ([V100, T4], "proprietary", "nvidia-kernel-dkms"),
    ],
)
def test_kernel_modules_follow_the_generation(pci, flavour, module):
    found = plan("cuda", "debian12", "580.126.20", pci)
    assert (found["flavour"], found["faults"]) == (flavour, [])
    assert found["packages"][module] == "580.126.20-1"
    both = {"nvidia-kernel-dkms", "nvidia-kernel-open-dkms"}
    assert both & set(found["packages"]) == {module}
    assert set(found["unwanted"]) == both - {module}


@pytest.mark.parametrize(
    ("version", "pci", "options", "fault"),
    [
        ("590.48.01", [V100], {}, "branch 580 is the last for volta"),
        ("580.126.20", [V100], {"flavour": "open"}, "no open kernel modules for volta"),
        ("580.126.20", [B200], {"flavour": "proprietary"}, "no proprietary kernel modules for blackwell"),
        ("580.126.20", [V100, B200], {}, "no driver serves volta and blackwell"),
        ("620.10.01", [T4], {"flavour": "proprietary"}, "branch 620 has no proprietary"),
        ("580.126.20", [device("0x1023")], {}, "kepler or older"),
        ("580.126.20", [device("0x3fff")], {}, "not known to this toolkit"),
        ("580.126.20", [H100, SWITCH], {"fabric_manager_version": "580.95.05"}, "must equal the driver"),
    ],
)
def test_what_can_not_work_is_refused(version, pci, options, fault):
    assert fault in "; ".join(plan("cuda", "debian12", version, pci, **options)["faults"])


def test_an_unknown_gpu_is_installed_when_the_operator_names_the_modules():
    found = plan("cuda", "debian12", "620.10.01", [device("0x3fff")], flavour="open")
    assert (found["flavour"], found["faults"]) == ("open", [])


def test_debian_12_takes_the_modules_that_equal_its_user_space():
    # Its open modules are of an older release than its libraries.
    assert plan("distribution", "debian12", "535", [H100])["flavour"] == "proprietary"
    assert "blackwell" in plan("distribution", "debian12", "535", [B200], flavour="proprietary")["faults"][0]
    assert plan("distribution", "debian12", "535", [B200])["faults"] != []
    assert plan("distribution", "debian13", "550", [H100])["flavour"] == "open"
    assert "nvidia-open-kernel-dkms" in plan("distribution", "debian13", "550", [H100])["packages"]


@pytest.mark.parametrize(
    ("os", "version", "name", "pinned"),
    [
        ("debian12", "570.133.20", "nvidia-fabricmanager-570", "570.133.20-1"),
        ("debian12", "580.126.20", "nvidia-fabricmanager", "580.126.20-1"),
        ("ubuntu2404", "580.126.20", "nvidia-fabricmanager", "580.126.20-1"),
        ("ubuntu2404", "580.126.16", "nvidia-fabricmanager", ""),
        ("el9", "570.133.20", "nvidia-fabric-manager", "570.133.20-1"),
        ("el9", "580.126.20", "nvidia-fabricmanager", "580.126.20-1"),
    ],
)
def test_fabric_manager_has_the_name_of_its_branch_and_the_drivers_version(os, version, name, pinned):
    assert plan("cuda", os, version, [H100, SWITCH])["packages"][name] == pinned
    assert not [n for n in plan("cuda", os, version, [H100])["packages"] if "fabric" in n]


@pytest.mark.parametrize(
    ("os", "version", "name"),
    [
        ("debian12", "570.133.20", "libnvidia-nscq-570"),
        ("ubuntu2404", "580.178.04", "libnvidia-nscq"),
        ("el9", "580.178.04", "libnvidia-nscq"),
    ],
)
def test_switches_on_the_bus_have_the_library_by_which_dcgm_reads_them_as_fabric_manager_is_packaged(os, version, name):
    packages = plan("cuda", os, version, [H100, SWITCH])["packages"]
    assert packages[name] == next(pinned for other, pinned in packages.items() if "fabric" in other) != ""
    for without in ([H100], [device("0x2901"), BRIDGE]):
        assert not [n for n in plan("cuda", os, version, without)["packages"] if "nscq" in n]


BRIDGE = {**device("0x1021", "0x020700", "0000:07:00.0"), "vendor": "0x15b3", "manages_switches": True}
CX7 = {**BRIDGE, "address": "0000:81:00.0", "manages_switches": False}


@pytest.mark.parametrize("os", ["ubuntu2204", "ubuntu2404", "el9"])
@pytest.mark.parametrize("ident", ["0x2901", "0x2909", "0x3182"])
def test_boards_with_nvlink_5_have_nvlsm_beside_fabric_manager(os, ident):
    found = plan("cuda", os, "580.126.20", [device(ident), BRIDGE, CX7])
    assert found["faults"] == []
    assert (found["fabric_manager"], found["nvswitches"]) == (True, ["0000:07:00.0"])
    assert found["packages"]["nvlsm"] == "2025.10.14-1"
    assert found["packages"]["nvidia-fabricmanager"] == "580.126.20-1"
    said = gpu.driver_verdict(reading(dict.fromkeys(found["packages"], "580.126.20-1") | {"nvlsm": "2025.10.14-1"}),
                              found, True)  # fmt: skip
    assert (said["versions"]["nvlsm"], said["mixed"], said["manager_differs"]) == ("2025.10.14", [], False)


@pytest.mark.parametrize(
    ("pci", "options"),
    [
        ([B200, CX7], {}),  # a guest, whose host has the NVSwitches
        ([H100, SWITCH, CX7], {}),
        ([B200, BRIDGE], {"user_space_only": True}),
        ([H100, BRIDGE], {}),
    ],
)
def test_no_other_node_has_nvlsm(pci, options):
    found = plan("cuda", "ubuntu2404", "580.126.20", pci, **options)
    assert ("nvlsm" in found["packages"], found["faults"]) == (False, [])


@pytest.mark.parametrize(
    ("provider", "options", "fault"),
    [
        ("cuda", {"nvlsm_version": ""}, "and the set has none for this system: set nvidia_driver_nvlsm_version"),
        ("cuda", {"nvlsm_version": "2025.06.11"}, "NVLSM 2025.06.11 is older than 2025.10.12, which driver 580.126.20"),
        ("canonical", {}, "which NVIDIA's repository alone has: set nvidia_driver_provider to cuda"),
    ],
)
def test_nvlsm_that_cannot_be_had_is_a_fault(provider, options, fault):
    (said,) = plan(provider, "ubuntu2404", "580.126.20", [B200, BRIDGE], **options)["faults"]
    assert said.startswith("B200 has NVLink 5, whose NVSwitches need NVLSM beside Fabric Manager")
    assert fault in said


def test_functions_that_manage_nvswitches_are_known_by_their_vital_product_data(tmp_path):
    written = {
        "0000:07:00.0": b"ConnectX-7\x90V3\x0eMLX:SMDL=SW_MNG",
        "0000:81:00.0": b"ConnectX-7",
        "0000:82:00.0": None,
    }
    for name, vpd in written.items():
        folder = tmp_path / "bus/pci/devices" / name
        folder.mkdir(parents=True)
        for key, value in (("vendor", "0x15b3"), ("device", "0x1021"), ("class", "0x020700"), ("numa_node", "0")):
            (folder / key).write_text(f"{value}\n")
        if vpd is not None:
            (folder / "vpd").write_bytes(vpd)
    pci = load("plugins/modules/node_state.py").read_pci(tmp_path)
    assert [one.get("manages_switches") for one in pci] == [True, False, None]
    assert gpu.nvswitch_list(pci) == ["0000:07:00.0"]


def test_ubuntu_names_lose_their_branch_after_580():
    old = plan("cuda", "ubuntu2404", "580.126.20", [H100])["packages"]
    new = plan("cuda", "ubuntu2404", "590.48.01", [H100])["packages"]
    assert old["libnvidia-compute-580"] == old["nvidia-dkms-580-open"] == "580.126.20-1ubuntu1"
    assert new["libnvidia-compute"] == new["nvidia-dkms-open"] == "590.48.01-0ubuntu1"
    assert "nvidia-driver-pinning-590.48.01" in new


def test_canonical_modules_are_those_of_the_running_kernel():
    found = plan("canonical", "ubuntu2204", "580", [V100], kernel="5.15.0-161-generic")["packages"]
    assert "linux-modules-nvidia-580-server-5.15.0-161-generic" in found


def test_headers_are_those_of_the_running_kernel_and_none_in_a_container():
    headers = {"linux-headers-6.1.0-37-amd64": ""}
    assert plan("cuda", "debian12", "580.126.20", [H100])["before"] == headers
    assert plan("cuda", "debian12", "580.126.20", [H100], in_container=True)["before"] == {}
    assert plan("cuda", "debian12", "580.126.20", [], user_space_only=True)["before"] == {}


def test_every_part_of_the_driver_is_pinned_whether_or_not_its_packages_versions_can_be_told() -> None:
    unknown = plan("cuda", "ubuntu2204", "580.126.16", [V100], in_container=True)
    assert (unknown["pin"], set(unknown["packages"].values())) == ("version 580.126.16-*", {""})
    branch = plan("cuda", "debian12", "580", [V100], in_container=True)
    assert branch["pin"] == "version 580.*"
    told = plan("cuda", "ubuntu2204", "580.126.16", [V100], in_container=True, revision="-1ubuntu1")
    assert told["packages"]["nvidia-dkms-580"] == "580.126.16-1ubuntu1"
    for found, name in ((unknown, "580.126.16"), (branch, "580"), (told, "580.126.16")):
        assert (found["before"], found["packages"][f"nvidia-driver-pinning-{name}"]) == ({}, "")
    assert plan("cuda", "debian12", "", [V100])["pin"] == plan("distribution", "debian12", "535", [V100])["pin"] == ""


def test_user_space_alone_has_no_modules_and_no_flavour():
    found = plan("distribution", "debian12", "535", [], user_space_only=True)
    assert (found["flavour"], found["faults"], found["unwanted"]) == ("", [], [])
    assert set(found["packages"].values()) == {""}  # a branch follows its security updates
    assert {"libcuda1", "nvidia-smi", "nvidia-cuda-mps"} <= set(found["packages"])
    assert not [n for n in found["packages"] if "dkms" in n]


def test_candidates_cover_every_plan():
    for os, providers in tables().items():
        for provider, table in providers.items():
            for version in ("", "580", "570.133.20", "580.126.20", "595.91.07"):
                asked = set(gpu.driver_candidates(table, version, "6.1.0-37-amd64"))
                for pci in ([T4, SWITCH], [V100]):
                    found = plan(provider, os, version, pci)
                    assert {*found["packages"], *found["before"]} <= asked, (provider, os, version)


def reading(packages, nvidia=("", False), nouveau=False):
    return {
        "packages": packages,
        "modules": {
            "nvidia": {"version": nvidia[0], "loaded": nvidia[1]},
            "nouveau": {"version": "", "loaded": nouveau},
        },
    }


def test_a_reboot_is_asked_for_when_another_module_is_loaded():
    chosen = plan("cuda", "debian12", "580.126.20", [H100, SWITCH])
    installed = {n: "580.126.20-1" for n in chosen["packages"]}
    assert gpu.driver_verdict(reading(installed, ("580.126.20", True)), chosen, True)["reboot_required"] == []
    old = gpu.driver_verdict(reading(installed, ("570.133.20", True)), chosen, True)
    assert old["reboot_required"] == ["NVIDIA kernel module 570.133.20 is loaded, driver 580.126.20 is installed"]
    assert "nouveau" in gpu.driver_verdict(reading(installed, nouveau=True), chosen, True)["reboot_required"][0]
    # A container sees its host's modules; they are not its own.
    inside = gpu.driver_verdict(reading(installed, ("570.133.20", True)), chosen, False)
    assert (inside["reboot_required"], inside["versions"]["kernel_module"]) == ([], "")


def test_parts_of_different_versions_are_seen():
    chosen = plan("cuda", "debian12", "580.126.20", [H100, SWITCH])
    installed = {n: "580.126.20-1" for n in chosen["packages"]}
    assert gpu.driver_verdict(reading({**installed, "libcuda1": "580.95.05-1"}), chosen, True)["mixed"] == [
        "580.126.20",
        "580.95.05",
    ]
    other = gpu.driver_verdict(reading({**installed, "nvidia-fabricmanager": "580.95.05-1"}), chosen, True)
    assert (other["manager_differs"], other["mixed"]) == (True, [])
    # Debian's persistenced is versioned apart from the driver.
    debian = plan("distribution", "debian12", "535", [], user_space_only=True)
    parts = {n: "535.309.01-0+deb12u1" for n in debian["packages"]} | {"nvidia-persistenced": "535.171.04-1~deb12u1"}
    verdict = gpu.driver_verdict(reading(parts), debian, False)
    assert (verdict["mixed"], verdict["versions"]["driver"]) == ([], "535.309.01")


@pytest.mark.parametrize(
    ("version", "branch"), [("", 0), ("580", 580), ("580.126.20", 580), ("580.65.06-0ubuntu1", 580)]
)
def test_the_branch_of_a_driver(version, branch):
    assert gpu.branch_of(version) == branch


@pytest.mark.parametrize("version", ["580-server", "R580", "1:580.65.06", "latest", "580 "])
def test_what_is_no_version_of_a_driver_is_said_in_words(version):
    with pytest.raises(ValueError, match="is no version of NVIDIA's driver: write a branch, as 580, or a release"):
        gpu.branch_of(version)
