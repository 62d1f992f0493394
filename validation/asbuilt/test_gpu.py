"""GPU servers: what roles nvidia_driver, cuda and dcgm promise."""

from __future__ import annotations

from validation.asbuilt.site import Host, Site, is_version, not_applicable


def _with_modules(site: Site) -> None:
    """Only where the driver's kernel modules are wanted."""
    site.only_with("nvidia_driver")
    if site.container:
        not_applicable("a container has the kernel modules of its host (elastic_ai_virtual)")
    if str(site.wants("nvidia_driver_user_space_only")).lower() == "true":
        not_applicable("nvidia_driver_user_space_only: no kernel module of the driver is wanted")


def test_driver_is_loaded_and_of_the_wanted_version(host: Host, site: Site) -> None:
    """The module that runs, not the package that is installed."""
    _with_modules(site)
    version = host.file("/sys/module/nvidia/version")
    assert version.exists, "the module nvidia is not loaded"
    found, wanted = version.content_string.strip(), site.version("nvidia_driver_version", "nvidia_driver")
    assert is_version(found, wanted), f"the driver that runs is {found}, wanted {wanted}"


def test_nouveau_is_not_loaded(host: Host, site: Site) -> None:
    """It would hold the GPUs."""
    site.only_with("kernel")
    if site.container:
        not_applicable("a container has the kernel modules of its host (elastic_ai_virtual)")
    if "kernel_nouveau_off" in site.variables and not site.get("kernel_nouveau_off"):
        not_applicable("kernel_nouveau_off is false in the inventory")
    assert not host.file("/sys/module/nouveau").exists, "nouveau is loaded"


def test_persistence_daemon_runs(host: Host, site: Site) -> None:
    """Without it the GPUs are set up anew for every job."""
    _with_modules(site)
    daemon = host.service("nvidia-persistenced")
    assert daemon.is_running, "nvidia-persistenced does not run"
    assert daemon.is_enabled, "nvidia-persistenced is not enabled"


def test_cuda_is_of_the_wanted_version(host: Host, site: Site) -> None:
    """The compiler is where the release's version says that it is."""
    site.only_with("cuda")
    wanted = site.version("cuda_version", "cuda", "toolkit")
    if not wanted:
        not_applicable("neither inventory nor release names a version of CUDA")
    major, minor = wanted.split(".")[:2]
    home = f"/usr/local/cuda-{major}.{minor}"
    assert host.file(f"{home}/bin/nvcc").exists, f"{home}/bin/nvcc is not there"
    package = host.package(f"cuda-toolkit-{major}-{minor}")
    assert package.is_installed, f"{package.name} is not installed"
    assert is_version(str(package.version), wanted), f"{package.name} is {package.version}, wanted {wanted}"


def test_dcgm_is_of_the_wanted_version(host: Host, site: Site) -> None:
    """Its package; whether it runs is another check."""
    site.only_with("dcgm")
    wanted = site.version("dcgm_version", "dcgm")
    package = host.package("datacenter-gpu-manager-4-core")
    assert package.is_installed, f"{package.name} is not installed"
    found = str(package.version).rpartition(":")[2]
    assert is_version(found, wanted), f"{package.name} is {found}, wanted {wanted}"


def test_dcgm_runs(host: Host, site: Site) -> None:
    """It watches the GPUs wherever there is a driver."""
    site.only_with("dcgm")
    _with_modules(site)
    daemon = host.service("nvidia-dcgm")
    assert daemon.is_running, "nvidia-dcgm does not run"
    assert daemon.is_enabled, "nvidia-dcgm is not enabled"
