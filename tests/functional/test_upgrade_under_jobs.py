"""Under running jobs a node keeps what they use: versions on record are held against those asked for, not names."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from tests.functional.test_preflight import NODE, WANTED
from tests.support.node_modules import load

pytestmark = pytest.mark.systems

preflight: Any = load("plugins/plugin_utils/preflight.py")

STACK: dict[str, Any] = {
    "kernel": {"series": ["6.8"]},
    "nvidia_driver": {"provider": "cuda", "version": "580.173.02", "flavour": "auto"},
    "fabric_manager": {"version": "580.173.02"},
    "ofed": {"provider": "doca", "version": "3.2.3"},
    "cuda": {"toolkit": "13.1.1", "cudnn": "9.17.1.4", "nccl": "2.30.4"},
    "container_toolkit": {"version": "1.19.1"},
    "dcgm": {"version": "4.6.0"},
    "docker": {"provider": "docker_ce", "version": "29.9.0"},
    "slurm": {"provider": "distribution"},
}
"""What is asked for."""
RECORD: dict[str, Any] = {
    "kernel": {"versions": {"kernel": "6.8.0-87-generic"}},
    "nvidia_driver": {
        "provider": "cuda",
        "flavour": "open",
        "versions": {"driver": "580.173.02", "kernel_module": "580.173.02", "fabric_manager": "580.173.02"},
    },
    "ofed": {"provider": "doca", "versions": {"rdma-core": "2507mlnx58-1", "ofed": "OFED-internal-25.10-1.7.1",
                                              "doca": "3.2.3-125000"}},
    "cuda": {"versions": {"toolkit": "13.1.1", "cudnn": "9.17.1.4", "nccl": "2.30.4"}},
    "nvidia_container_toolkit": {"versions": {"container_toolkit": "1.19.1"}},
    "dcgm": {"versions": {"dcgm": "4.6.0"}},
    "docker": {"provider": "docker_ce", "versions": {"docker": "5:29.9.0-1~ubuntu.24.04~noble", "containerd": "2.1.5"}},
    "slurm": {"versions": {"slurm": "23.11.4-1.2ubuntu5", "munge": "0.5.15"}},
}  # fmt: skip
"""What role acceptance wrote when the same set was installed."""


def observed(tmp_path: Path, record: dict[str, Any], release: str = "current") -> dict[str, Any]:
    """A node with that record and a running job, as the module reads it."""
    module: Any = load("plugins/modules/node_preflight.py")
    file = tmp_path / "provisioned.json"
    file.write_text(json.dumps({"release": release, "results": record}), encoding="utf-8")
    read = {"provisioned_release": module.read_release(file), "provisioned_versions": module.read_versions(file)}
    return {**NODE, **read, "jobs": ["4711"]}


def reasons(node: dict[str, Any], stack: dict[str, Any], **wanted: Any) -> list[str]:
    asked = {**WANTED, "stack": stack, **wanted}
    return [said for said in preflight.preflight_reasons(node, asked) if "4711" in said]


def test_the_same_versions_are_no_upgrade_whatever_the_release_is_named(tmp_path: Path) -> None:
    assert reasons(observed(tmp_path, RECORD), STACK) == []
    assert reasons(observed(tmp_path, RECORD, "older"), STACK) == []
    assert reasons(observed(tmp_path, RECORD, "older"), STACK, release="mine-2026") == []


CHANGED: list[tuple[str, str, Any, str]] = [
    ("nvidia_driver", "version", "580.200.01", "NVIDIA driver 580.173.02 to 580.200.01"),
    ("nvidia_driver", "version", "590", "NVIDIA driver 580.173.02 to 590"),
    ("nvidia_driver", "provider", "canonical", "provider of the NVIDIA driver cuda to canonical"),
    ("nvidia_driver", "flavour", "proprietary", "kind of the NVIDIA kernel modules open to proprietary"),
    ("fabric_manager", "version", "580.173.01", "Fabric Manager 580.173.02 to 580.173.01"),
    ("ofed", "version", "3.2.4", "DOCA-OFED 3.2.3-125000 to 3.2.4"),
    ("ofed", "provider", "inbox", "provider of the RDMA stack doca to inbox"),
    ("cuda", "toolkit", "13.2.0", "CUDA 13.1.1 to 13.2.0"),
    ("cuda", "cudnn", "9.18.0.1", "cuDNN 9.17.1.4 to 9.18.0.1"),
    ("cuda", "nccl", "2.31.1", "NCCL 2.30.4 to 2.31.1"),
    ("container_toolkit", "version", "1.20.0", "container toolkit 1.19.1 to 1.20.0"),
    ("dcgm", "version", "4.7.0", "DCGM 4.6.0 to 4.7.0"),
    ("docker", "version", "29.10.0", "Docker 5:29.9.0-1~ubuntu.24.04~noble to 29.10.0"),
    ("docker", "provider", "distribution", "provider of Docker docker_ce to distribution"),
    ("slurm", "version", "25.05.1", "Slurm 23.11.4-1.2ubuntu5 to 25.05.1"),
    ("kernel", "series", ["6.14"], "kernel 6.8.0-87-generic to series 6.14"),
]


@pytest.mark.parametrize(("part", "key", "value", "said"), CHANGED, ids=[f"{p}-{k}-{v}" for p, k, v, _ in CHANGED])
def test_each_part_that_is_changed_alone_is_refused_by_its_name(
    tmp_path: Path, part: str, key: str, value: Any, said: str
) -> None:
    """By stack_overrides, or by a newer checkout of the same release."""
    stack = copy.deepcopy(STACK)
    stack[part][key] = value
    (reason,) = reasons(observed(tmp_path, RECORD), stack)
    assert said in reason
    assert "State=DRAIN Reason=upgrade" in reason
    assert reasons(observed(tmp_path, RECORD), stack, change_under_jobs=True) == []
    assert reasons({**observed(tmp_path, RECORD), "jobs": []}, stack) == []


def test_a_container_keeps_its_hosts_kernel_whatever_series_the_set_is_for(tmp_path: Path) -> None:
    stack = copy.deepcopy(STACK)
    stack["kernel"]["series"] = ["6.14"]
    node = observed(tmp_path, RECORD)
    assert len(reasons({**node, "in_container": False}, stack)) == 1
    assert reasons({**node, "in_container": True}, stack) == []


def test_a_version_that_leaves_its_last_numbers_open_is_no_change(tmp_path: Path) -> None:
    stack = copy.deepcopy(STACK)
    stack["nvidia_driver"]["version"], stack["cuda"]["toolkit"] = "580", "13.1"
    assert reasons(observed(tmp_path, RECORD), stack) == []
    stack["nvidia_driver"]["version"] = "58"
    assert len(reasons(observed(tmp_path, RECORD), stack)) == 1, "58 is not the beginning of 580"


def test_what_the_set_leaves_open_and_what_was_not_there_is_no_change(tmp_path: Path) -> None:
    stack = copy.deepcopy(STACK)
    stack["docker"]["version"] = stack["nvidia_driver"]["version"] = ""
    assert reasons(observed(tmp_path, RECORD), stack) == []
    without = {role: result for role, result in RECORD.items() if role != "dcgm"}
    assert reasons(observed(tmp_path, without), STACK) == []


def test_a_part_that_is_left_out_is_taken_from_its_jobs(tmp_path: Path) -> None:
    (reason,) = reasons(observed(tmp_path, RECORD), STACK, left_out=["docker", "monitoring"])
    assert "docker is left out" in reason
    assert "monitoring" not in reason


def test_a_record_without_versions_is_judged_by_the_name_of_its_release(tmp_path: Path) -> None:
    assert reasons(observed(tmp_path, {}), STACK) == []
    (reason,) = reasons(observed(tmp_path, {}, "older"), STACK)
    assert "older to current" in reason


def test_a_lease_is_a_job_where_it_has_no_step(tmp_path: Path) -> None:
    module: Any = load("plugins/modules/node_preflight.py")
    (tmp_path / "leases/812").mkdir(parents=True)
    (tmp_path / "leases/.new").mkdir()
    (tmp_path / "proc").mkdir()
    assert module.read_jobs(tmp_path / "proc", tmp_path / "leases") == ["812"]
