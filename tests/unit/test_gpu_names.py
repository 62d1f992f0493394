"""Every package name of the GPU roles stands in a recorded index of the repository that it is to come from."""

from pathlib import Path

import pytest
import yaml

from tests.support.node_modules import load
from toolkit.lab.fake_packages import load_fake_packages

gpu = load("plugins/plugin_utils/gpu.py")

ROOT = Path(__file__).parents[2]
SYSTEMS = ("debian12", "debian13", "ubuntu2204", "ubuntu2404", "el9")
#: In place of a kernel's release: what the packages have in their names that follow the newest kernel, as indices do.
KERNEL = {"debian": "amd64", "ubuntu": "generic", "el": ""}


def role_vars(role):
    return yaml.safe_load((ROOT / f"roles/{role}/vars/main.yml").read_text())


def index(repo, os_key):
    """Recorded version by name."""
    lines = (ROOT / f"tests/data/indices/{repo}-{os_key}.txt").read_text().splitlines()
    rows = [line.split("  #")[0].split() for line in lines if line and not line.startswith("#")]
    return {row[0]: row[1] for row in rows}


def versions(os_key):
    """Driver and CUDA versions that the stack releases have for a system."""
    for path in sorted((ROOT / "stacks").glob("*.yml")):
        data = yaml.safe_load(path.read_text()).get("stack_data", {"sets": {}})
        parts = data["sets"].get(os_key, {"record": True})
        if not parts.get("record"):
            yield parts


def test_every_recorded_line_names_its_source():
    for path in (ROOT / "tests/data/indices").glob("*.txt"):
        for line in path.read_text().splitlines():
            assert not line or line.startswith("#") or len(line.split("  # ", 1)[-1]) > 5, (path.name, line)


@pytest.mark.parametrize("os_key", SYSTEMS)
def test_driver_names(os_key):
    kernel = next(word for system, word in KERNEL.items() if os_key.startswith(system))
    tables = role_vars("nvidia_driver")["__nvidia_driver_systems"]
    asked = {(p["nvidia_driver"]["provider"], p["nvidia_driver"]["version"]) for p in versions(os_key)}
    asked |= {("distribution", "580")} if os_key.startswith("ubuntu") else set()
    assert asked
    for provider, version in asked:
        known = index(provider, os_key)
        table = tables[os_key][provider]
        names = {name.removesuffix("-") for name in gpu.driver_candidates(table, version, kernel)}
        assert names <= set(known), (provider, version)
        if provider == "cuda":
            older = gpu.names_of(table, "fabric_manager", "570.133.20", kernel)
            newer = gpu.names_of(table, "user_space", "590.48.01", kernel)
            assert {*older, *newer} <= set(known)


@pytest.mark.parametrize("os_key", SYSTEMS)
def test_names_of_cuda_dcgm_and_container_toolkit(os_key):
    data = role_vars("cuda")
    for parts in versions(os_key):
        known = (data["__cuda_nccl_built_for"], data["__cuda_parts"])
        packages = gpu.cuda_packages(data["__cuda_systems"][os_key], parts["cuda"], *known)
        assert set(packages) <= set(index("cuda", os_key))
    assert "cuda-toolkit" in index("cuda", os_key)
    dcgm = gpu.dcgm_packages(role_vars("dcgm")["__dcgm_names"], "4.6.0", ["11", "12", "13"])
    assert dcgm.items() <= index("cuda", os_key).items()
    names = role_vars("nvidia_container_toolkit")["__nvidia_container_toolkit_names"]
    assert {name: "1.20.1-1" for name in names}.items() <= index("nvidia-container-toolkit", os_key).items()


@pytest.mark.parametrize("os_key", ["debian12", "debian13"])
def test_stand_ins_have_what_the_stack_releases_pin_and_an_older_driver(os_key):
    served = {(p.name, p.version) for s in load_fake_packages() for p in s.of(os_key)}
    data = role_vars("cuda")
    for parts in versions(os_key):
        known = (data["__cuda_nccl_built_for"], data["__cuda_parts"])
        wanted = gpu.cuda_packages(data["__cuda_systems"][os_key], parts["cuda"], *known)
        assert wanted.items() <= served, parts["cuda"]
    table = role_vars("nvidia_driver")["__nvidia_driver_systems"][os_key]["cuda"]
    switch = {"vendor": "0x10de", "device": "0x22a3", "class": "0x068000", "address": "0000:05:00.0", "numa_node": 0}
    card = {**switch, "device": "0x2330", "class": "0x030200"}
    for version in ("570.133.20", "580.95.05", "580.126.20"):
        for flavour in ("open", "proprietary"):
            options = {
                "flavour": flavour,
                "user_space_only": False,
                "mps": True,
                "kernel": "x",
                "in_container": True,
                "fabric_manager_version": "",
            }
            plan = gpu.driver_plan(table, version, [card, switch], options)
            assert {(n, v) for n, v in plan["packages"].items() if v} <= served
