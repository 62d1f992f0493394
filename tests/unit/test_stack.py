"""Stack releases hold together, and every rule of compatibility refuses the mix that it is there for."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml
from ansible.errors import AnsibleFilterError

from tests.support.node_modules import ROOT, load
from validation.rules.floors import numbers as versions
from validation.run.catalogue import load_criteria

RELEASES = {
    path.stem: yaml.safe_load(path.read_text())["stack_data"]
    for path in sorted((ROOT / "stacks").glob("*.yml"))
    if path.stem not in ("compatibility", "select")
}
SETS = [(r, s) for r, data in RELEASES.items() for s in data["sets"] if not data["sets"][s].get("record")]
PARTS = {"kernel", "nvidia_driver", "ofed", "cuda", "container_toolkit", "dcgm", "docker", "horovod", "slurm"}
V100 = {"model": "Tesla V100 SXM2 16GB", "generation": "volta"}
H100 = {"model": "H100 SXM5 80GB", "generation": "hopper"}
B200 = {"model": "B200", "generation": "blackwell"}
HGX = {"gpus": [{**B200, "device": "0x2901"}], "nvswitches": ["0000:07:00.0"]}
NIC = {"ConnectX-3": "0x1003", "ConnectX-4": "0x1013", "ConnectX-5": "0x1017", "ConnectX-7": "0x1021"}

stack: Any = load("plugins/plugin_utils/stack.py")


def nics(*model_names: str) -> Any:
    return stack.nic_list(
        {"address": f"0000:{i}", "vendor": "0x15b3", "device": NIC[m]} for i, m in enumerate(model_names)
    )


def fitting(release: str, system: str) -> dict[str, Any]:
    """A node of the kind that the release is for."""
    old = release == "reference-2019"
    return {
        "os_key": system,
        "kernel": RELEASES[release]["sets"][system]["kernel"]["series"] + ".0-1-generic",
        "in_container": False,
        "gpus": [V100] if old else [H100],
        "nvswitches": [] if old or release.startswith("rehearsal") else ["0000:05:00.0"],
        "nics": nics("ConnectX-5" if old else "ConnectX-7"),
        "release": release,
        "release_sets": list(RELEASES[release]["sets"]),
    }


def faults(
    changes: dict[str, Any], facts: dict[str, Any], release: str = "current", system: str = "ubuntu2404"
) -> list[str]:
    """Reasons against a set with changes such as {'cuda_version': '13.1.0'} on a fitting node with changed facts."""
    effective = stack.stack_effective(RELEASES[release]["sets"][system], changes)
    found: list[str] = stack.stack_faults(effective, {**fitting(release, system), **facts})
    return found


@pytest.mark.parametrize(("release", "system"), SETS)
def test_a_shipped_set_fits_the_hardware_that_it_is_for(release: str, system: str) -> None:
    assert stack.stack_faults(RELEASES[release]["sets"][system], fitting(release, system)) == []


@pytest.mark.parametrize(("release", "system"), SETS)
def test_a_shipped_set_is_complete_and_says_where_it_comes_from(release: str, system: str) -> None:
    entry = RELEASES[release]["sets"][system]
    assert set(entry) >= PARTS
    assert all(isinstance(source, str) for source in entry["sources"])
    assert entry["sources"]
    assert all(isinstance(v, str) for part in PARTS for v in entry[part].values()), "a version as a number loses zeros"


@pytest.mark.parametrize("release", ["current", "previous"])
@pytest.mark.parametrize("system", ["debian12", "debian13", "ubuntu2204", "ubuntu2404", "el9"])
def test_current_and_the_one_before_it_have_every_supported_system(system: str, release: str) -> None:
    assert RELEASES[release]["release"] == release
    assert system in RELEASES[release]["sets"]


def named(entry: dict[str, Any]) -> set[tuple[str, str]]:
    """Part and key of every version and provider that a set states."""
    return {(part, key) for part, values in entry.items() if isinstance(values, dict) for key in values}


@pytest.mark.parametrize("system", RELEASES["previous"]["sets"])
def test_no_part_of_the_release_before_is_left_behind_by_current(system: str) -> None:
    """What `previous` pins `current` pins too, and nothing of it in an older version: an upgrade never goes back."""
    before, after = (RELEASES[name]["sets"][system] for name in ("previous", "current"))
    assert named(before) == named(after)
    compared = [(part, key) for part, key in named(before) if isinstance(before[part][key], str)]
    older = {
        (part, key) for part, key in compared if stack.numbers(before[part][key]) > stack.numbers(after[part][key])
    }
    assert older == set()
    moved = {part for part, key in compared if before[part][key] != after[part][key]}
    assert {"nvidia_driver", "fabric_manager", "cuda", "container_toolkit"} <= moved


@pytest.mark.parametrize(("release", "system"), SETS)
def test_roles_know_the_packages_of_every_version_that_a_set_pins(release: str, system: str) -> None:
    """Parts of its CUDA toolkit, NCCL's CUDA, the driver's packaging on Ubuntu, DOCA's build."""
    entry = RELEASES[release]["sets"][system]
    cuda, driver, ofed = (
        yaml.safe_load((ROOT / f"roles/{role}/vars/main.yml").read_text()) for role in ("cuda", "nvidia_driver", "ofed")
    )
    if entry["nvidia_driver"]["provider"] == "cuda":
        assert entry["cuda"]["toolkit"] in cuda["__cuda_parts"]
        suffixes = driver["__nvidia_driver_systems"][system]["cuda"]["revision"]
        version = entry["nvidia_driver"]["version"]  # "" where the site states it
        assert not version or isinstance(suffixes, str) or {"default", version} & set(suffixes)
    major = entry["cuda"]["toolkit"].split(".")[0]
    assert f"{entry['cuda']['nccl']}/{major}" in cuda["__cuda_nccl_built_for"]
    assert entry["ofed"]["provider"] != "doca" or entry["ofed"]["version"] in ofed["__ofed_doca_builds"]


@pytest.mark.parametrize(("release", "system"), SETS)
def test_the_table_of_compatibility_reaches_every_cuda_that_a_set_has(release: str, system: str) -> None:
    """Else a toolkit is judged by the branch of an older one, and a driver without it passes in silence."""
    entry = RELEASES[release]["sets"][system]
    table = yaml.safe_load((ROOT / "stacks/compatibility.yml").read_text())
    wanted = {entry["cuda"]["toolkit"], entry["horovod"].get("cuda") or entry["cuda"]["toolkit"]}
    assert {".".join(version.split(".")[:2]) for version in wanted} <= set(table["cuda_driver"])


#: What `current` wants on the fitting node, whose versions the reasons name.
NOW = RELEASES["current"]["sets"]["ubuntu2404"]
TOOLKIT, CUDNN, TORCH = NOW["cuda"]["toolkit"], NOW["cuda"]["cudnn"], NOW["horovod"]["torch"]
TRAINING = f"training image's torch {TORCH} is made with CUDA {NOW['horovod']['cuda']}, which"
#: Changed role variables, changed facts, and what the reason must name.
PLANTED: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    (
        {"nvidia_driver_version": "575.57.08", "nvidia_driver_fabric_manager_version": "575.57.08"},
        {},
        f"CUDA {TOOLKIT} needs",
    ),
    (
        {"nvidia_driver_version": "575.57.08", "nvidia_driver_fabric_manager_version": "575.57.08"},
        {},
        "branch 580 or later",
    ),
    ({"nvidia_driver_version": "580.159.03"}, {}, "set nvidia_driver_fabric_manager_version to 580.159.03"),
    ({}, {"gpus": [V100], "nvswitches": []}, f"CUDA {TOOLKIT} has no code for Tesla V100"),
    ({}, {"gpus": [V100], "nvswitches": []}, f"cuDNN {CUDNN} does not support Tesla V100"),
    (
        {"cuda_version": "12.9.1", "cuda_cudnn_version": "9.10.2"},
        {"gpus": [V100], "nvswitches": []},
        f"{TRAINING} has no code for Tesla V100",
    ),
    (
        {"nvidia_driver_version": "575.57.08", "cuda_version": "12.9.1"},
        {},
        f"{TRAINING} needs a driver of branch 580 or later",
    ),
    ({"nvidia_driver_version": "590.48.01"}, {"gpus": [V100], "nvswitches": []}, "branch 580 is the last that does"),
    ({"nvidia_driver_version": "620.10"}, {"gpus": [V100], "nvswitches": []}, "open kernel modules alone"),
    ({"nvidia_driver_flavour": "open"}, {"gpus": [V100], "nvswitches": []}, "no open kernel modules for Tesla V100"),
    (
        {"nvidia_driver_flavour": "proprietary"},
        {"gpus": [B200], "nvswitches": []},
        "no proprietary kernel modules for B200",
    ),
    (
        {"nvidia_driver_flavour": "proprietary", "nvidia_driver_version": "620.10"},
        {"nvswitches": []},
        "driver 620.10 has no proprietary kernel modules",
    ),
    (
        {"nvidia_driver_version": "550.90.07", "cuda_version": "12.4.1"},
        {"gpus": [B200], "nvswitches": []},
        "too old for B200",
    ),
    ({"nvidia_driver_provider": "runfile"}, {}, "no driver provider 'runfile' for ubuntu2404"),
    ({"nvidia_driver_provider": "canonical"}, HGX, "B200 has NVLink 5, whose NVSwitches need NVLSM beside Fabric Man"),
    ({"nvidia_driver_nvlsm_version": "2025.06.5"}, HGX, "NVLSM 2025.06.5 is older than 2025.10.12, which driver 580"),
    ({}, {"nics": nics("ConnectX-3")}, "DOCA-OFED has no driver for ConnectX-3"),
    ({}, {"nics": nics("ConnectX-4")}, "the 2.9 line is the last"),
    ({"ofed_provider": "mlnx_ofed"}, {}, "OFED provider 'mlnx_ofed'"),
    ({}, {"kernel": "6.11.0-29-generic"}, "kernel 6.11.0-29-generic runs"),
    ({"dcgm_version": "3.3.9"}, {}, "DCGM 3.3.9 does not know CUDA 13"),
    ({"dcgm_cuda_majors": [12]}, {}, "add it to dcgm_cuda_majors"),
    ({"nvidia_container_toolkit_version": "1.16.2"}, {}, "container toolkit 1.16.2 is too old for CDI"),
    ({"docker_version": "24.0.9"}, {}, "Docker 24.0.9 does not know CDI, by which containers get GPUs"),
]


@pytest.mark.parametrize(("changes", "facts", "named"), PLANTED, ids=[p[2] for p in PLANTED])
def test_a_mix_that_does_not_fit_is_refused_with_what_to_do(
    changes: dict[str, Any], facts: dict[str, Any], named: str
) -> None:
    assert any(named in reason for reason in faults(changes, facts))


def test_every_rule_has_a_planted_mix() -> None:
    tripped = {
        rule.__name__
        for changes, facts, _ in PLANTED
        for rule in stack.RULES
        if list(
            rule(
                stack.stack_effective(RELEASES["current"]["sets"]["ubuntu2404"], changes),
                {**fitting("current", "ubuntu2404"), **facts},
            )
        )
    }
    assert tripped == {rule.__name__ for rule in stack.RULES}


def test_the_kernel_of_el_9_8_is_refused_with_a_doca_that_does_not_build_against_it() -> None:
    kernel = {"kernel": "5.14.0-687.17.1.el9_8.x86_64"}
    (fault,) = faults({"ofed_version": "3.2.2"}, kernel, system="el9")
    assert "DOCA-OFED 3.2.2 is known not to build" in fault
    assert "set ofed_version to 3.2.3 or later" in fault
    assert faults({}, kernel, system="el9") == []
    assert faults({"ofed_provider": "inbox"}, kernel, system="el9") == []
    assert faults({"ofed_version": "3.2.2"}, {"kernel": "5.14.0-611.5.1.el9_7.x86_64"}, system="el9") == []


def test_a_container_runs_its_hosts_kernel_and_is_not_asked_for_the_series() -> None:
    assert faults({}, {"kernel": "6.18.44", "in_container": True}) == []


def test_a_set_may_name_several_kernel_series_and_the_refusal_says_how() -> None:
    hwe = {"kernel": "6.14.0-35-generic"}
    (reason,) = faults({}, hwe)
    assert "stack_overrides: {kernel: {series: ['6.8', '6.14']}}" in reason
    own = RELEASES["current"]["sets"]["ubuntu2404"]
    for series in (["6.8", "6.14"], "6.14", 6.14):
        assert (
            stack.stack_faults({**own, "kernel": {"series": series}}, {**fitting("current", "ubuntu2404"), **hwe}) == []
        )


def test_canonicals_driver_is_ubuntus_alone() -> None:
    assert faults({"nvidia_driver_provider": "canonical"}, {}) == []
    assert any(
        "no driver provider 'canonical'" in r for r in faults({"nvidia_driver_provider": "canonical"}, {}, system="el9")
    )


def test_connectx_4_fits_the_last_line_that_has_it() -> None:
    assert faults({"ofed_version": "2.9.3"}, {"nics": nics("ConnectX-4")}) == []


def test_fabric_manager_matters_only_where_there_is_nvswitch() -> None:
    assert faults({"nvidia_driver_version": "580.173.02"}, {"nvswitches": []}) == []


@pytest.mark.parametrize("system", ["ubuntu2204", "ubuntu2404", "el9"])
def test_boards_with_nvlink_5_fit_where_nvlsm_is_on_record(system: str) -> None:
    assert faults({}, HGX, system=system) == []
    assert faults({}, {**HGX, "nvswitches": []}, system="debian12") == [], "a guest of another's NVSwitches"


@pytest.mark.parametrize("system", ["debian12", "debian13"])
def test_boards_with_nvlink_5_are_refused_where_it_is_not(system: str) -> None:
    (reason,) = faults({}, HGX, system=system)
    assert "the set has none for this system: set nvidia_driver_nvlsm_version" in reason
    assert faults({"nvidia_driver_nvlsm_version": "2025.10.14"}, HGX, system=system) == []


def test_a_node_without_gpus_is_not_judged_by_the_gpu_part() -> None:
    changes = {"nvidia_container_toolkit_version": "1.16.2", "cuda_version": "13.4.1"}
    assert faults(changes, {"gpu_server": False, "gpus": [], "nvswitches": []}) == []


def test_a_system_without_a_set_and_a_record_are_refused() -> None:
    facts = {**fitting("rehearsal", "debian12"), "os_key": "el9"}
    there = ", ".join(RELEASES["rehearsal"]["sets"])
    assert stack.stack_faults({}, facts) == [
        f"stack release rehearsal has no set for el9; it has {there}: choose another stack_release"
    ]
    record = RELEASES["reference-2019"]["sets"]["ubuntu1604"]
    assert "is a record" in stack.stack_faults(record, {"os_key": "ubuntu1604", "release": "reference-2019"})[0]


def test_volta_without_doca_is_told_that_it_has_no_gpudirect() -> None:
    facts = fitting("reference-2019", "debian12")
    sets = RELEASES["reference-2019"]["sets"]
    assert any("no GPUDirect RDMA" in n for n in stack.stack_notes(sets["debian12"], facts))
    assert stack.stack_notes(sets["ubuntu2204"], fitting("reference-2019", "ubuntu2204")) == []


def test_a_toolkit_that_is_newer_than_its_driver_is_no_fault_within_a_major_release_and_is_told() -> None:
    newer = RELEASES["current"]["sets"]["ubuntu2404"]
    assert any(
        "by minor-version compatibility" in n for n in stack.stack_notes(newer, fitting("current", "ubuntu2404"))
    )
    same = stack.stack_effective(newer, {"cuda_version": "13.0.2"})
    assert not any("minor-version" in n for n in stack.stack_notes(same, fitting("current", "ubuntu2404")))
    assert any(
        "branch 387 or later" in f for f in faults({"cuda_version": "9.1.85", "nvidia_driver_version": "384.1"}, {})
    )


def parts_of(release: str, system: str) -> dict[str, Any]:
    """What facts would say of a node that has a set."""
    entry = RELEASES[release]["sets"][system]
    parts = {"driver": "nvidia_driver", "container_toolkit": "container_toolkit", "dcgm": "dcgm"}
    found = {name: f"{name} {entry[key]['version']}" for name, key in parts.items() if entry.get(key)}
    return found | {"cuda": f"cuda {entry['cuda']['toolkit']}", "docker": entry["docker"]["version"]}


FLOORS = next(c.bound.floors for c in load_criteria() if c.id == "pf.secver")


def below(release: str, system: str) -> set[str]:
    """Components of a set that are below their security floors."""
    found = set()
    for name, text in parts_of(release, system).items():
        version = versions(text.rpartition(" ")[2])
        if text.endswith(" ") and (release, system) == ("current", "ubuntu2604"):
            continue  # the site states it
        assert version is not None, text
        floor = FLOORS.components[name].of(version)
        if isinstance(floor, str) or (floor is not None and not floor.reached(version)):
            found.add(name)
    return found


@pytest.mark.parametrize("system", RELEASES["current"]["sets"])
def test_the_current_release_is_above_every_security_floor(system: str) -> None:
    assert below("current", system) == set()


@pytest.mark.parametrize("system", [s for r, s in SETS if r == "reference-2019"])
def test_old_hardware_keeps_a_toolkit_that_gets_no_fixes_and_nothing_else(system: str) -> None:
    assert below("reference-2019", system) == {"cuda"}, "CUDA 13 has no code for Pascal and Volta"


def test_an_inventory_variable_replaces_the_sets_value_and_leaves_the_set_alone() -> None:
    original = RELEASES["current"]["sets"]["debian12"]
    effective = stack.stack_effective(original, {"cuda_version": "12.9.1", "dcgm_version": ""})
    assert effective["cuda"]["toolkit"] == "12.9.1"
    assert effective["dcgm"]["version"] == "4.6.0"
    assert original["cuda"]["toolkit"] == NOW["cuda"]["toolkit"]


def test_the_release_that_the_inventory_chooses_is_read_once():
    for release, data in RELEASES.items():
        assert stack.stack_data(release) == data
        assert stack.stack_data(release) is stack.stack_data(release)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (None, "there is no stack release mine; there are other"),
        ("stack_data: [", "mine.yml cannot be read: while parsing"),
        ("stack_data: {release: mine}", "mine.yml is no release: it needs stack_data with release and sets"),
        ("- one", "mine.yml is no release"),
    ],
)
def test_a_release_that_cannot_be_read_is_one_clear_error(tmp_path, text, reason):
    (tmp_path / "other.yml").write_text("stack_data: {release: other, sets: {}}\n")
    (tmp_path / "select.yml").write_text("stack_set: {}\n")
    if text is not None:
        (tmp_path / "mine.yml").write_text(text)
    with pytest.raises(AnsibleFilterError, match=re.escape(reason)):
        stack.stack_data("mine", tmp_path)


def test_a_site_can_add_a_release_of_its_own(tmp_path):
    (tmp_path / "mine.yml").write_text("stack_data: {release: mine, sets: {debian12: {kernel: {series: '6.1'}}}}\n")
    assert stack.stack_data("mine", tmp_path)["sets"]["debian12"] == {"kernel": {"series": "6.1"}}


def test_the_record_of_2019_has_each_machines_own_stack() -> None:
    """Dell whitepaper 2019, table 4: driver, CUDA, cuDNN, NCCL, Open MPI, kernel."""

    def told(name: str) -> tuple[str, ...]:
        found = RELEASES["reference-2019"]["sets"][name]
        assert found["record"] is True
        keys = [("nvidia_driver", "version"), ("cuda", "toolkit"), ("cuda", "cudnn"), ("cuda", "nccl")]
        keys += [("openmpi", "version"), ("kernel", "version"), ("os", "version")]
        return tuple(found[part][key] for part, key in keys)

    common = ("9.1.85", "7.1.3.16", "2.2.15", "3.0.1", "4.4.0-128", "16.04.4")
    assert told("ubuntu1604") == ("396.26", *common)
    assert told("ubuntu1604-r740") == ("390.46", *common)
    eight = ("384.145", "9.0.176", "7.1.4", "2.2.13", "3.0.0", "4.4.0-130", "16.04.3")
    assert told("ubuntu1604-8xv100") == eight


@pytest.mark.parametrize(
    "variables",
    [
        {"horovod_image": "registry.example/training:1"},
        {"horovod_state": "absent"},
        {"horovod_cuda": False},
        {"horovod_cuda": "false"},
    ],
)
def test_an_image_that_is_not_built_need_not_fit(variables: dict[str, Any]) -> None:
    facts = {"gpus": [V100], "nvswitches": []}
    assert any("training image" in reason for reason in faults({}, facts))
    assert not any("training image" in reason for reason in faults(variables, facts))


def test_the_version_of_docker_is_not_taken_for_another_provider() -> None:
    """As role docker has it: docker.io of the distribution has no version of docker-ce."""
    found = {"docker": {"provider": "docker_ce", "version": "29.9.0"}}
    assert stack.stack_effective(found, {"docker_provider": "distribution"})["docker"]["version"] == ""
    assert stack.stack_effective(found, {"docker_provider": "docker_ce"})["docker"]["version"] == "29.9.0"
    other = {"docker_provider": "distribution", "docker_version": "20.10.24"}
    assert stack.stack_effective(found, other)["docker"]["version"] == "20.10.24"
    assert found["docker"]["version"] == "29.9.0"
