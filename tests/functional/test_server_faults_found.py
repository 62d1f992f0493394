"""Faults of servers that no lab has, planted where the real probes read: found by their criterion, no other is named.

The servers' PCI trees are constructed (tests/support/trees.py); dpkg's database is read by the real dpkg-query, and the
emulated driver's libraries by the loader.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.engine_run import built
from tests.support.site import (
    BOM,
    REAL_FACTS,
    criterion,
    hardware,
    healthy,
    lab,
    node,
    plan_of,
    results_of,
    verdict_of,
    with_facts,
)
from tests.support.tree_case import ports_of, read
from tests.support.trees import SERVERS
from toolkit.engine import build
from toolkit.lab import devices, faults
from validation.model import Port, VerdictDoc
from validation.probes import gpudirect, gpulibs, installed

SERVER = SERVERS["XE9680"]
KERNEL = "6.8.0-137-generic"
OPEN = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.173.02  Release Build\n"
PROPRIETARY = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.173.02  Tue Oct  7 2026\n"
STACK = {
    "libnvidia-compute-580": "580.173.02-1ubuntu1", "nvidia-fabricmanager": "580.173.02-1",
    "cuda-toolkit-13-1": "13.1.1-1", "nvidia-container-toolkit": "1.19.1-1",
    "datacenter-gpu-manager-4-core": "1:4.6.0-1",
}  # fmt: skip
Plant = Callable[[Path], dict[str, Any]]


def switched_on(folder: Path) -> dict[str, Any]:
    """Access Control Services of a switch's lower port and of a port of the host's, in their configuration spaces."""
    tree = read(SERVER, folder, acs={"0000:17:04.0": 0x1D, "0000:38:00.0": 0x1})
    return {"pci": tree["pci"]}


def without_a_way(folder: Path) -> dict[str, Any]:
    """The maker's own kernel modules on a kernel that was built without peer-to-peer transfers."""
    return kernel(folder, PROPRIETARY, "CONFIG_PCI=y\n# CONFIG_PCI_P2PDMA is not set\n")


def kernel(folder: Path, module: str, options: str) -> dict[str, Any]:
    """What the probes read of the kernel and its NVIDIA module."""
    (folder / "boot").mkdir(parents=True)
    (folder / f"boot/config-{KERNEL}").write_text(options)
    return {"driver_module": gpulibs.module(module), "gpudirect": gpudirect.collect(folder, KERNEL)}


def below_their_floors(folder: Path) -> dict[str, Any]:
    """A driver, a CUDA toolkit and a container toolkit of last year."""
    old = {"libnvidia-compute-580": "580.126.20-1ubuntu1", "cuda-toolkit-13-1": "", "cuda-toolkit-13-0": "13.0.2-1",
           "nvidia-container-toolkit": "1.18.2-1"}  # fmt: skip
    return packages(folder, STACK | old) | {"driver_loaded": "580.126.20"}


def packages(folder: Path, versions: dict[str, str]) -> dict[str, Any]:
    """What dpkg-query tells of a database with these packages."""
    status = "".join(
        f"Package: {name}\nStatus: install ok installed\nArchitecture: amd64\nMaintainer: nobody <root@localhost>\n"
        f"Version: {version}\nDescription: nothing\n\n"
        for name, version in versions.items()
        if version
    )
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "status").write_text(status)
    said = subprocess.run(
        [installed._DEB[0], f"--admindir={folder}", *installed._DEB[1:]], capture_output=True, text=True, check=True
    ).stdout
    there = installed.packages(said, "x86_64")
    assert len(there) == len([version for version in versions.values() if version])
    return {name: installed.component(there, patterns) for name, patterns in installed.PACKAGES.items()}


FAULTS: dict[str, tuple[Plant, tuple[str, ...]]] = {
    "pf.acs": (switched_on, ("0000:17:04.0: SrcValid, ReqRedir, CmpltRedir, UpstreamFwd on (above rail0",
                             "0000:38:00.0: SrcValid on (above rail2")),
    "pf.dmabuf": (without_a_way, ("the proprietary kernel modules (580.173.02) have no dma-buf",
                                  "the kernel was built without CONFIG_PCI_P2PDMA")),
    "pf.secver": (below_their_floors, ("NVIDIA driver 580.126.20 is below 580.159.03 (NVIDIA 5821, 2026-05-19)",
                                       "CUDA toolkit cuda-toolkit-13-0 13.0.2-1 is below 13.1",
                                       "container toolkit nvidia-container-toolkit 1.18.2-1 is below 1.19.1")),
}  # fmt: skip


def well(folder: Path) -> dict[str, Any]:
    """What the probes say of a server that is as the roles make it."""
    tree = read(SERVER, folder / "tree")
    libraries = {path: text.replace("580.126.20", "580.173.02") if isinstance(text, str) else text
                 for path, text in tree.items()}  # fmt: skip
    return {
        **libraries, "driver_loaded": "580.173.02", "kernel": KERNEL, "os": "ubuntu 24.04", "docker": "", "runc": "",
        "docker_package": "", **packages(folder / "dpkg", STACK),
        **kernel(folder / "kernel", OPEN, "CONFIG_PCI_P2PDMA=y\nCONFIG_DMABUF_MOVE_NOTIFY=y\n"),
    }  # fmt: skip


def verdict(first: dict[str, Any], second: dict[str, Any]) -> VerdictDoc:
    """Of a site of two such servers on an RDMA fabric whose facts are these, and nothing else was measured."""
    bom = BOM.model_copy(update={"gpu_count": SERVER.gpus})
    nodes = []
    for place, name in enumerate(("gpu1", "gpu2")):
        ports = [
            Port(interface=port, address=f"192.0.2.{16 * place + i}", prefix=24)
            for i, port in enumerate(ports_of(SERVER), 1)
        ]
        nodes.append(node(name, place + 1, ports=tuple(ports), bom=bom, virtual=None))
    topology = hardware(("gpu1", "gpu2")).model_copy(update={"nodes": tuple(nodes)})
    plan = plan_of(topology, ["preflight"], "roce400")
    plan = plan.model_copy(
        update={"measurements": tuple(m for m in plan.measurements if m.kind == "facts"), "rounds": ()}
    )
    results = [
        with_facts(healthy(m, facts=REAL_FACTS), **(second if m.nodes == ("gpu2",) else first))
        for m in plan.measurements
    ]
    return verdict_of(topology, plan, results, fabric="roce400")


@pytest.mark.parametrize("id_", FAULTS)
def test_a_server_as_provisioned_is_blamed_for_nothing(id_: str, tmp_path: Path) -> None:
    found = criterion(verdict(well(tmp_path / "1"), well(tmp_path / "2")), id_)
    assert found.verdict == "pass", found.reason


@pytest.mark.parametrize("id_", FAULTS)
def test_a_planted_fault_is_found_and_its_server_named(id_: str, tmp_path: Path) -> None:
    plant, words = FAULTS[id_]
    document = verdict(well(tmp_path / "1"), well(tmp_path / "2") | plant(tmp_path / "planted"))
    of = {c: {str(j.subject): j for j in criterion(document, c).judgements} for c in FAULTS}
    assert {c for c, judged in of.items() if judged["gpu2"].verdict == "fail"} == {id_}
    assert {judged["gpu1"].verdict for judged in of.values()} == {"pass"}
    assert [part for part in words if part not in of[id_]["gpu2"].reason] == []


@pytest.mark.skipif(bool(build.missing_tools()), reason=f"no compiler here: {build.missing_tools()}")
def test_an_empty_library_of_the_driver_is_found_and_taken_back(tmp_path: Path) -> None:
    """On the lab's own libraries, by the fault's own script."""
    there = tmp_path / "lib"
    shutil.copytree(built() / "devices", there)

    def ask() -> dict[str, Any]:
        program = "import json, sys; from pathlib import Path; from validation.probes import gpulibs; "
        program += "print(json.dumps(gpulibs.collect([Path(sys.argv[1])])))"
        environment = {**os.environ, "LD_LIBRARY_PATH": str(there)}
        done = subprocess.run(
            [sys.executable, "-c", program, str(there)], env=environment, capture_output=True, text=True, check=True,
            cwd=Path(__file__).parents[2],
        )  # fmt: skip
        return {"driver_libraries": json.loads(done.stdout)}

    def judged(second: dict[str, Any], first: dict[str, Any]) -> dict[str, Any]:
        topology = lab(("gpu1", "gpu2"), emulated_gpus=4)
        plan = plan_of(topology, ("preflight",))

        def said(m: Any) -> Any:
            return healthy(m, facts=second if m.nodes == ("gpu2",) else first) if m.kind == "facts" else None

        document = verdict_of(topology, plan, results_of(plan, said))
        return {str(j.subject): j for j in criterion(document, "pf.gpulib").judgements}

    def act(script: str) -> None:
        subprocess.run(["sh", "-eu", "-c", script.replace(f"/{devices.LIBRARIES}", str(there))], check=True)

    clean = ask()
    assert {found.verdict for found in judged(clean, clean).values()} == {"pass"}
    act(faults.EMPTIED)
    bad = judged(ask(), clean)
    assert bad["gpu1"].verdict == "pass"
    assert (bad["gpu2"].verdict, bad["gpu2"].reason) == ("fail", f"{there}/libnvidia-opencl.so.1 is empty")
    act(faults.NOT_EMPTIED)
    assert ask() == clean
