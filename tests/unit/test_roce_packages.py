"""Package names of the fabric's roles stand in the recorded repositories, and the lab's stand-ins are of these."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from tests.support.package_indices import index, unrecorded

ROOT = Path(__file__).parents[2]
OFED = yaml.safe_load((ROOT / "roles/ofed/vars/main.yml").read_text())
ROCE = yaml.safe_load((ROOT / "roles/roce/vars/main.yml").read_text())
SYSTEMS = ["debian12", "debian13", "ubuntu2204", "ubuntu2404", "el9"]


@pytest.mark.parametrize("system", SYSTEMS)
def test_names_of_the_distribution(system: str) -> None:
    names = [*OFED["__ofed_systems"][system]["inbox"], *ROCE["__roce_systems"][system], "opensm"]
    # The headers of a kernel have its release in their name.
    names += [name for name in OFED["__ofed_systems"][system]["headers"] if "{kernel}" not in name]
    assert unrecorded("distribution", system, names) == []


@pytest.mark.parametrize("system", SYSTEMS)
def test_names_of_doca(system: str) -> None:
    assert unrecorded("doca", system, ["doca-ofed", "doca-ofed-userspace"]) == []


@pytest.mark.parametrize("system", ["ubuntu2204", "ubuntu2404", "el9"])
def test_the_versions_of_the_releases_are_those_that_doca_has(system: str) -> None:
    builds = OFED["__ofed_doca_builds"]
    release = yaml.safe_load((ROOT / "stacks/current.yml").read_text())["stack_data"]["sets"][system]["ofed"]
    assert release["provider"] == "doca"
    recorded = {version for s in SYSTEMS for version in index("doca", s)["doca-ofed"]}
    assert f"{release['version']}-{builds[release['version']]}" in recorded
