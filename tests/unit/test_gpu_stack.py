"""CUDA, DCGM and GPUDirect: package versions by their makers' rules, and the way chosen for peer memory."""

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.support.node_modules import load

gpu = load("plugins/plugin_utils/gpu.py")

ROOT = Path(__file__).parents[2]
PARTS = yaml.safe_load((ROOT / "roles/cuda/vars/main.yml").read_text())["__cuda_parts"]
V100, H100 = (
    {"address": "0000:3b:00.0", "vendor": "0x10de", "device": d, "class": "0x030200", "numa_node": 0, "driver": ""}
    for d in ("0x1db5", "0x2330")
)


def cuda(os_key, toolkit, cudnn, nccl):
    data = yaml.safe_load((ROOT / "roles/cuda/vars/main.yml").read_text())
    versions = {"toolkit": toolkit, "cudnn": cudnn, "nccl": nccl}
    return gpu.cuda_packages(data["__cuda_systems"][os_key], versions, data["__cuda_nccl_built_for"])


def test_cuda_packages_have_their_makers_versions():
    assert cuda("debian12", "13.0.2", "9.13.0.50", "2.30.4") == {
        "cuda-toolkit-13-0": "13.0.2-1",
        "libcudnn9-cuda-13": "9.13.0.50-1",
        "libcudnn9-dev-cuda-13": "9.13.0.50-1",
        "libcudnn9-headers-cuda-13": "9.13.0.50-1",
        # NCCL is built for one CUDA release of a major version, here not the toolkit's.
        "libnccl2": "2.30.4-1+cuda13.2",
        "libnccl-dev": "2.30.4-1+cuda13.2",
    }
    assert cuda("debian12", "12.2.2", "8.9.7.29", "2.19.3") == {
        "cuda-toolkit-12-2": "12.2.2-1",
        "libcudnn8": "8.9.7.29-1+cuda12.2",
        "libcudnn8-dev": "8.9.7.29-1+cuda12.2",
        "libnccl2": "2.19.3-1+cuda12.2",
        "libnccl-dev": "2.19.3-1+cuda12.2",
    }
    assert cuda("ubuntu2204", "12.9.1", "9.10.2.21", "2.30.4")["libnccl2"] == "2.30.4-1+cuda12.9"
    assert cuda("el9", "13.0.2", "9.13.0.50", "2.30.4")["libcudnn9-devel-cuda-13"] == "9.13.0.50-1"
    assert cuda("el9", "13.0.2", "9.13.0.50", "2.30.4")["libcudnn9-headers-cuda-13"] == "9.13.0.50-1"
    assert "libcudnn9-headers-cuda-12" not in cuda("debian13", "12.4.1", "9.1.1.17", "2.21.5")


def test_a_cuda_release_without_its_last_number_is_not_pinned_and_none_means_any():
    assert cuda("debian12", "13.0", "", "") == {"cuda-toolkit-13-0": ""}
    assert cuda("debian12", "", "9.13.0.50", "2.30.4") == {"cuda-toolkit": "", "libnccl2": "", "libnccl-dev": ""}


def test_every_stack_release_pins_what_the_role_can_name():
    for path in sorted((ROOT / "stacks").glob("*.yml")):
        data = yaml.safe_load(path.read_text()).get("stack_data", {"sets": {}})
        for os_key, parts in data["sets"].items():
            if not parts.get("record"):
                packages = cuda(os_key, parts["cuda"]["toolkit"], parts["cuda"]["cudnn"], parts["cuda"]["nccl"])
                headers = gpu.numbers(parts["cuda"]["cudnn"]) >= gpu.numbers("9.10")
                assert len(packages) == 5 + headers, (path.name, os_key)
                known = PARTS.get(parts["cuda"]["toolkit"], {})
                assert known or path.name.startswith("rehearsal"), "parts of any update"
                assert all(packages.values()), (path.name, os_key)


def test_cuda_13_is_refused_on_volta():
    assert "12.9 is the last" in gpu.cuda_generation_faults([V100], "13.0.2")[0]
    assert gpu.cuda_generation_faults([V100], "12.9.1") == []
    assert gpu.cuda_generation_faults([H100], "13.0.2") == []


@pytest.mark.parametrize(
    ("driver", "pci", "majors"),
    [
        ("580.126.20", [H100], ["13"]),
        ("580.126.20", [V100], ["12", "13"]),
        ("535", [V100], ["12"]),
        ("550", [], ["12"]),
        ("", [H100], ["13"]),
    ],
)
def test_dcgm_follows_the_drivers_cuda_and_volta_gets_both(driver, pci, majors):
    assert gpu.dcgm_cuda_majors_of(driver, pci) == majors


def test_dcgm_packages_carry_their_epoch():
    names = yaml.safe_load((ROOT / "roles/dcgm/vars/main.yml").read_text())["__dcgm_names"]
    assert gpu.dcgm_packages(names, "4.6.0", ["12", "13"]) == {
        "datacenter-gpu-manager-4-core": "1:4.6.0-1",
        "datacenter-gpu-manager-4-cuda12": "1:4.6.0-1",
        "datacenter-gpu-manager-4-cuda13": "1:4.6.0-1",
        "datacenter-gpu-manager-4-proprietary": "1:4.6.0-1",
        "datacenter-gpu-manager-4-proprietary-cuda12": "1:4.6.0-1",
        "datacenter-gpu-manager-4-proprietary-cuda13": "1:4.6.0-1",
    }
    assert gpu.upstream_version("1:4.6.0-1") == "4.6.0"


@pytest.mark.parametrize(
    ("flavour", "kernel", "ofed", "way", "why"),
    [
        ("open", "6.1.0-37-amd64", False, "dma-buf", "open kernel modules"),
        ("open", "5.4.0-1-generic", False, "none", "kernel 5.12"),
        ("open", "5.4.0-1-generic", True, "nvidia-peermem", "peer-memory"),
        ("proprietary", "6.1.0-37-amd64", True, "nvidia-peermem", "peer-memory"),
        ("proprietary", "6.1.0-37-amd64", False, "none", "have no dma-buf"),
        ("", "6.1.0-37-amd64", False, "none", "no NVIDIA kernel modules"),
    ],
)
def test_peer_memory_by_modules_kernel_and_ofed(flavour, kernel, ofed, way, why):
    found = gpu.peer_memory(flavour, 580, kernel, ofed)
    assert found["way"] == way
    assert why in found["why"]


GOOD = '{"features": {"cdi": true}, "runtimes": {"nvidia": {"path": "nvidia-container-runtime", "args": []}}}'


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", "missing"),
        ("{", "not valid JSON"),
        (GOOD.replace("true", "false"), "features.cdi"),
        (GOOD.replace("nvidia-container-runtime", "runc"), "runtimes.nvidia"),
        (GOOD.replace("nvidia-container-runtime", "my-nvidia-container-runtime"), "runtimes.nvidia"),
        ("[]", "no JSON object"),
        ('{"features": null, "runtimes": null}', "features.cdi is not true; runtimes.nvidia"),
        ('{"features": {"cdi": true}, "runtimes": {"nvidia": null}}', "runtimes.nvidia"),
    ],
)
def test_faults_of_the_docker_configuration_are_named(text, fault):
    assert gpu.daemon_gpu_faults(GOOD) == []
    assert gpu.daemon_gpu_faults(GOOD.replace('"nvidia-', '"/usr/bin/nvidia-')) == [], "as others write it"
    assert fault in "; ".join(gpu.daemon_gpu_faults(text))


def plant(root, path, vendor, kind):
    device = root / "devices" / path
    device.mkdir(parents=True)
    (device / "vendor").write_text(vendor + "\n")
    (device / "class").write_text(kind + "\n")
    link = root / "bus/pci/devices" / device.name
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(os.path.relpath(device, link.parent))


@pytest.fixture
def acs(tmp_path):
    """A machine with a GPU below two bridges, an adapter below one, a disk below another; a setpci that notes."""
    for path, vendor, kind in (
        ("pci0000:3a/0000:3a:00.0", "0x8086", "0x060400"),
        ("pci0000:3a/0000:3a:00.0/0000:3b:00.0", "0x10b5", "0x060400"),
        ("pci0000:3a/0000:3a:00.0/0000:3b:00.0/0000:3c:00.0", "0x10de", "0x030200"),
        ("pci0000:5a/0000:5a:00.0", "0x8086", "0x060400"),
        ("pci0000:5a/0000:5a:00.0/0000:5b:00.0", "0x15b3", "0x020700"),
        ("pci0000:7a/0000:7a:00.0", "0x8086", "0x060400"),
        ("pci0000:7a/0000:7a:00.0/0000:7b:00.0", "0x144d", "0x010802"),
    ):
        plant(tmp_path / "sys", path, vendor, kind)
    shim = tmp_path / "bin/setpci"
    shim.parent.mkdir()
    shim.write_text(
        '#!/bin/sh\nf="$(dirname "$0")/$2"\ncase "$2" in 0000:3a*) echo "Capability not found" >&2; exit 1;; esac\n'
        'case "$3" in *=0000) echo 0000 > "$f";; *) cat "$f" 2>/dev/null || echo 001d;; esac\n'
    )
    shim.chmod(shim.stat().st_mode | stat.S_IXUSR)

    def run(*arguments):
        command = [sys.executable, ROOT / "roles/gpudirect/files/elastic-ai-acs-off", "--sysfs", tmp_path / "sys"]
        path = f"{shim.parent}:{os.environ['PATH']}"
        return subprocess.run(
            [*command, *arguments], capture_output=True, text=True, check=False, env={**os.environ, "PATH": path}
        )

    return run


def test_acs_goes_off_on_the_bridges_above_gpus_and_adapters_only(acs):
    before = acs("--check")
    assert (before.returncode, before.stderr) == (1, "ACS is on at 0000:3b:00.0, 0000:5a:00.0\n")
    done = acs()
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "0000:3b:00.0: ACS control 001d -> 0000\n0000:5a:00.0: ACS control 001d -> 0000\n"
    assert acs("--check").returncode == 0
    assert acs().stdout == ""
