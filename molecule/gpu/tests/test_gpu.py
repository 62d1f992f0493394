"""What the GPU roles promise, seen from outside. The driver's user space is Debian's own; NVIDIA's are stand-ins."""

import pytest

pytestmark = pytest.mark.usefixtures("gpu_server")


@pytest.fixture
def gpu_server(host):
    if host.backend.get_hostname() == "head":
        pytest.skip("no GPU server")


def sets(host):
    release = host.file("/etc/os-release").content_string
    return {"12": ("535.", "12.2.2-1", "12-2"), "13": ("550.", "12.4.1-1", "12-4")}[
        release.split('VERSION_ID="')[1].split('"')[0]
    ]


def test_driver_is_the_distributions_and_of_one_version(host):
    branch = sets(host)[0]
    versions = {host.package(n).version for n in ("libcuda1", "libnvidia-ml1", "nvidia-smi")}
    assert len(versions) == 1
    assert versions.pop().startswith(branch)
    assert host.package("nvidia-cuda-mps").is_installed
    # The real tool with its own library, not that of the lab's emulated GPUs: there is no driver to talk to.
    own = host.check_output("dirname $(dpkg -L libnvidia-ml1 | grep -m1 'libnvidia-ml.so.1$')")
    said = host.run("LD_LIBRARY_PATH=%s nvidia-smi; true", own).stdout
    assert "couldn't communicate with the NVIDIA driver" in said


def test_no_kernel_modules_in_a_container_and_no_unit_has_failed(host):
    names = host.check_output("dpkg-query -W -f '${Package}\n'").split()
    assert [n for n in names if "dkms" in n or n.startswith("linux-headers")] == []
    assert host.check_output("systemctl is-system-running --wait") == "running"
    assert not host.service("nvidia-persistenced").is_running


def test_the_daemon_stays_off_at_boot_too(host):
    assert host.ansible("ansible.builtin.reboot", "reboot_timeout=60", check=False)["rebooted"]
    assert host.check_output("systemctl is-system-running --wait") == "running"


def test_toolkit_and_libraries_are_pinned_and_held(host):
    _, version, dashed = sets(host)
    assert host.package(f"cuda-toolkit-{dashed}").version == version
    held = host.check_output("apt-mark showhold").split()
    assert {f"cuda-toolkit-{dashed}", "libnccl2", "libnccl-dev", "nvidia-container-toolkit"} <= set(held)
    assert {"datacenter-gpu-manager-4-core", "datacenter-gpu-manager-4-cuda12"} <= set(held)
    assert host.check_output("bash -lc 'command -v nvcc'") == f"/usr/local/cuda-{dashed.replace('-', '.')}/bin/nvcc"


def test_container_toolkit_is_of_one_version(host):
    names = ("nvidia-container-toolkit", "nvidia-container-toolkit-base", "libnvidia-container-tools")
    assert {host.package(n).version for n in (*names, "libnvidia-container1")} == {"1.19.1-1"}


def test_dcgm_is_there_and_does_not_run_without_a_driver(host):
    assert host.package("datacenter-gpu-manager-4-core").version == "1:4.6.0-1"
    assert not host.service("nvidia-dcgm").is_running


def test_nothing_waits_for_a_reboot(host):
    assert not host.file("/run/elastic-ai/reboot-required/nvidia_driver").exists
