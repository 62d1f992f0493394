"""Which components are installed, and what moved since provisioning."""

from __future__ import annotations

import json

import pytest

from validation.measures.node import facts_probe as node_facts
from validation.probes import installed


@pytest.fixture
def dpkg(tmp_path, monkeypatch):
    """A dpkg-query that lists what the test wants."""

    def having(*rows: str) -> None:
        tool = tmp_path / "dpkg-query"
        tool.write_text("#!/bin/sh\ncat <<'EOF'\n" + "\n".join(rows) + "\nEOF\n")
        tool.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")

    return having


def facts(tmp_path, record=None, pending=()):
    path = tmp_path / "provisioned.json"
    if record is not None:
        path.write_text(record if isinstance(record, str) else json.dumps(record))
    folder = tmp_path / "pending"
    folder.mkdir(exist_ok=True)
    for name, text in pending:
        (folder / name).write_text(text)
    return installed.collect(path, folder)


def test_versions_are_those_of_the_packages_and_not_of_the_record(dpkg, tmp_path):
    dpkg(
        "installed libcuda1 535.309.01-0",
        "installed cuda-toolkit-12-2 12.2.2-1",
        "installed libnccl2 2.19.3-1+cuda12.2",
    )
    found = facts(
        tmp_path, {"release": "rehearsal", "pinned": {"cuda-toolkit-12-2": "12.2.2-1"}, "stand_ins": ["cuda"]}
    )
    assert found["driver"] == "libcuda1 535.309.01-0"
    assert found["cuda"] == "cuda-toolkit-12-2 12.2.2-1"
    assert found["dcgm"] == ""
    assert found["stack_release"] == "rehearsal"
    assert found["stand_ins"] == ["cuda"]
    assert found["drift"] == []


@pytest.mark.parametrize(
    ("key", "rows", "package"),
    [
        ("cuda", ["cuda-toolkit-12-8-config-common 12.8.90-1", "cuda-toolkit-config-common 12.8.90-1"], ""),
        (
            "cuda",
            ["cuda-toolkit-12-4-config-common 12.4.127-1", "cuda-toolkit-12-8 12.8.1-1"],
            "cuda-toolkit-12-8 12.8.1-1",
        ),
        ("cuda", ["cuda-toolkit-13 13.0.2-1", "cuda-toolkit-13-0 13.0.2-1"], "cuda-toolkit-13 13.0.2-1"),
        ("dcgm", ["datacenter-gpu-manager 1:3.3.9"], "datacenter-gpu-manager 1:3.3.9"),
        ("slurm", ["slurm-smd 25.05.3-1", "slurm-smd-slurmd 25.05.3-1"], "slurm-smd-slurmd 25.05.3-1"),
        ("slurm", ["slurm-smd-slurmctld 25.05.3-1"], "slurm-smd-slurmctld 25.05.3-1"),
        ("fabric_manager", ["nvidia-fabricmanager-dev-570 570.133.20-1"], ""),
        ("fabric_manager", ["nvidia-fabricmanager-570 570.133.20-1"], "nvidia-fabricmanager-570 570.133.20-1"),
    ],
)
def test_a_component_is_its_own_package_and_no_other_of_that_name(dpkg, tmp_path, key, rows, package):
    dpkg(*(f"installed {row}" for row in rows))
    assert facts(tmp_path)[key] == package


@pytest.mark.parametrize(
    ("rows", "package"),
    [
        (["installed docker-ce 5:29.9.0-1~debian.12~bookworm"], "docker-ce 5:29.9.0-1~debian.12~bookworm"),
        (["installed docker.io 26.1.5+dfsg1-9"], "docker.io 26.1.5+dfsg1-9"),
        (["installed docker-compose-plugin 5.6.0-1"], ""),
    ],
)
def test_the_package_that_docker_is_from_is_told(dpkg, tmp_path, rows, package):
    dpkg(*rows)
    assert facts(tmp_path)["docker_package"] == package


def test_a_package_that_is_only_configured_away_is_not_installed(dpkg, tmp_path):
    dpkg("config-files libcuda1 535.309.01-0", "not-installed nvidia-container-toolkit ")
    assert facts(tmp_path)["driver"] == ""


def test_what_moved_or_went_since_provisioning_is_named(dpkg, tmp_path):
    dpkg("installed libnccl2 2.30.4-1+cuda13.0")
    found = facts(tmp_path, {"pinned": {"libnccl2": "2.19.3-1+cuda12.2", "cuda-toolkit-12-2": "12.2.2-1"}})
    assert found["drift"] == [
        {"package": "cuda-toolkit-12-2", "found": "", "provisioned": "12.2.2-1"},
        {"package": "libnccl2", "found": "2.30.4-1+cuda13.0", "provisioned": "2.19.3-1+cuda12.2"},
    ]


def test_a_reboot_that_waits_is_told_with_its_reason(dpkg, tmp_path):
    dpkg()
    assert facts(tmp_path, pending=[("kernel", "boot parameter iommu=pt is not in use\n")])["reboot_pending"] == [
        "boot parameter iommu=pt is not in use"
    ]


@pytest.mark.parametrize("record", [None, "", "[]", "{torn"])
def test_without_a_readable_record_nothing_is_claimed(dpkg, tmp_path, record):
    dpkg()
    found = facts(tmp_path, record)
    assert (found["stack_release"], found["stand_ins"], found["drift"]) == ("", [], [])


@pytest.mark.parametrize(
    ("text", "torch"),
    [
        ('{"horovod": "0.28.1", "torch": "2.7.0"}', "2.7.0"),
        ('== PyTorch ==\nNVIDIA Release 25.03\n{"horovod": "", "torch": "2.7.0"}\n', "2.7.0"),
        ('{"horovod": "", "torch": "2.7.0"}\nexit hook: container ends\n', "2.7.0"),
        ('{"horovod": "", "torch": "2.7.0"}\n{not JSON at all}\n', "2.7.0"),
        ('{"event": "start"}\n', None),
        ("", None),
    ],
)
def test_what_an_image_prints_beside_its_versions_costs_none(text, torch):
    assert node_facts._said_by_training(text).get("torch") == torch


def test_packages_of_another_architecture_are_not_this_machines_and_waiting_triggers_cost_none() -> None:
    listing = (
        "installed libnvidia-compute-535 535.183.01-0ubuntu1 i386\n"
        "installed libnvidia-compute-580 580.126.20-0ubuntu1 amd64\n"
        "triggers-awaited slurmd 24.11.5-1 amd64\n"
        "half-configured slurmctld 24.11.5-1 amd64\n"
        "installed nvidia-container-toolkit 1.18.0-1 all\n"
        "not-installed libcuda1  amd64\n"
    )
    found = installed.packages(listing, "x86_64")
    assert installed.component(found, installed.PACKAGES["driver"]) == "libnvidia-compute-580 580.126.20-0ubuntu1"
    assert installed.component(found, installed.PACKAGES["slurm"]) == "slurmd 24.11.5-1"
    assert "nvidia-container-toolkit" in found
    assert "libcuda1" not in found


@pytest.mark.parametrize(
    ("status", "offset"),
    [("Normal", -0.000012), ("Insert second", -0.000012), ("Not synchronised", None), ("", None)],
)
def test_a_clock_that_follows_none_has_no_offset(status: str, offset: float | None) -> None:
    said = f"Reference ID    : 00000000 ()\nLast offset     : -0.000012000 seconds\nLeap status     : {status}\n"
    assert node_facts.clock_offset_s(said) == offset
    assert node_facts.clock_offset_s("506 Cannot talk to daemon\n") is None
