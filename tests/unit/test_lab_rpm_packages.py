"""Data of the RPM stand-ins: what they take from stacks and from the deb stand-ins, and what is refused."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import yaml

from tests.support.node_modules import ROOT
from toolkit.errors import LabError
from toolkit.lab import rpm_packages
from toolkit.lab.fake_packages import load_fake_packages
from toolkit.lab.rpm_packages import RpmPackage, RpmRepository, Streams, load_rpm_packages, stream_of

PACKAGES = {p.name: p for one in load_rpm_packages() for p in one.packages if one.repo == "cuda"}


def test_the_version_that_the_stack_wants_is_among_them_in_its_form(monkeypatch: pytest.MonkeyPatch) -> None:
    stack = yaml.safe_load((ROOT / "stacks/current.yml").read_text(encoding="utf-8"))["stack_data"]["sets"]["el9"]
    wanted = f"{stack['nvidia_driver']['version']}-1.el9"
    assert wanted in PACKAGES["nvidia-driver-cuda"].every_version()
    monkeypatch.setattr(rpm_packages, "stack_version", lambda key, _: {"nvidia_driver.version": "595.1.2"}[key])
    assert PACKAGES["nvidia-driver-cuda"].every_version()[-1] == "595.1.2-1.el9"


def test_another_release_than_the_wanted_one_is_the_newest() -> None:
    """Else nothing would show that a role pins: every component has one that comes after the stack's."""
    for package in PACKAGES.values():
        if package.stack and package.name != "cuda-toolkit-13-0":
            numbers = [[int(n) for n in v.split("-")[0].split(".")] for v in package.every_version()]
            wanted = [int(n) for n in rpm_packages.stack_version(package.stack, "el9").split(".")]
            assert max(numbers) > wanted, package.name


def test_every_vendor_of_the_deb_stand_ins_has_rpms_too() -> None:
    """Whatever repository the roles may enable on a system of apt is there for EL, and EPEL. Of DOCA for EL 10 no
    version is on record."""
    vendors = {one.repo for one in load_fake_packages() if not one.of_system}
    assert {one.repo for one in load_rpm_packages() if not one.of_system} == {*vendors, "epel"}
    assert {one.repo for one in load_rpm_packages("el10") if not one.of_system} == {*vendors, "epel"} - {"doca"}


def test_a_branch_of_the_driver_has_a_stream_of_its_own() -> None:
    streams = Streams(module="nvidia-driver", default="open-dkms", named={"open-dkms": "610"}, apart="fabric")
    assert [stream_of(streams, v) for v in ("580.126.20-1.el9", "595.91.07-1.el9", "610.57.04-1.el9")] == [
        "580-open",
        "595-open",
        "open-dkms",
    ]


def test_files_are_those_of_the_deb_that_it_is_like() -> None:
    files = PACKAGES["nvidia-driver-cuda"].every_file()
    assert "stand-in" in str(files["/usr/bin/nvidia-smi"].content)
    with pytest.raises(LabError, match=r"like: cuda/nothing is in no vendor/cuda\.yml"):
        RpmPackage(name="one", versions=["1-1"], like="cuda/nothing").every_file()


@pytest.mark.parametrize(("left", "asked"), [("0", "disable --now slurmd.service\n"), ("1", "")])
def test_a_service_ends_with_its_package_and_not_with_an_upgrade(tmp_path: Path, left: str, asked: str) -> None:
    """rpm's argument is how many of the package there will be."""
    fake = tmp_path / "systemctl"
    words = 'for word; do case $word in --quiet|--no-reload) shift; esac; done; echo "$@"'
    fake.write_text(f"#!/bin/sh\n{{ {words}; }} > {tmp_path}/asked\nexit 1\n")
    fake.chmod(0o755)
    script = RpmPackage(name="one", versions=["1-1"], services=["slurmd.service"]).every_script()["preun"]
    done = subprocess.run(["bash", "-c", script, "preun", left], env={"PATH": f"{tmp_path}:/usr/bin:/bin"}, check=False)
    assert done.returncode == 0, "what systemd refuses keeps no package from going"
    assert ((tmp_path / "asked").read_text() if (tmp_path / "asked").exists() else "") == asked


def test_folders_are_of_the_packages_that_fill_them() -> None:
    one = RpmPackage(
        name="one", versions=["1-1"], files={"/etc/one.d/a/b.cnf": {"content": ""}, "/etc/c": {"content": ""}}
    )
    assert one.every_folder() == ["/etc/one.d", "/etc/one.d/a"]


def test_packages_of_el_10_are_those_of_el_9_with_its_suffix_and_its_own() -> None:
    before = {p.name for one in load_rpm_packages() if one.repo != "doca" for p in one.packages}
    found = {p.name: p for one in load_rpm_packages("el10") for p in one.packages}
    assert before - set(found) == {"nvlsm"}
    texts = [p.model_dump_json(exclude={"like"}) for p in found.values()]
    assert [text for text in texts if ".el9" in text] == []
    assert found["nvidia-driver-cuda"].every_version()[-2:] == ["580.178.04-1.el10", "610.57.04-1.el10"]
    assert found["kmod-nvidia-open-dkms"].system == "el10", "its stack is followed"
    assert found["rocky-release"].provides[0] == "system-release = 10.1-1.4.el10"
    assert [one.repo for one in load_rpm_packages("el10") if one.streams] == []


def test_a_package_that_is_left_out_of_what_is_taken_has_to_be_there() -> None:
    other = RpmRepository(repo="x1", source="s", packages=[RpmPackage(name="one", versions=["1-1"])])
    with pytest.raises(ValueError, match=r"without: two is not in vendor/el9/x1\.yml"):
        RpmRepository(repo="x1", source="s", takes="el9", without=["two"], packages=[]).with_those_of(other)


def test_what_no_stack_has_is_refused() -> None:
    with pytest.raises(LabError, match=r"current\.yml: el9 has no cuda\.nothing"):
        RpmPackage(name="one", versions=["1-1"], stack="cuda.nothing").every_version()


def test_a_version_without_release_or_given_twice_is_refused() -> None:
    with pytest.raises(ValueError, match="should match pattern"):
        RpmPackage(name="one", versions=["1"])
    twice = [RpmPackage(name="one", versions=["1-1"])] * 2
    with pytest.raises(ValueError, match="duplicate package: one"):
        RpmRepository(repo="x1", source="s", packages=twice)


def test_the_clock_reads_els_configuration_in_a_container_too() -> None:
    """The role's drop-in gives a container another command, with the options of the sysconfig file alone."""
    (chrony,) = [p for one in load_rpm_packages() if one.repo == "baseos" for p in one.packages if p.name == "chrony"]
    text = (ROOT / "roles/base/templates/chrony-container.conf.j2").read_text(encoding="utf-8")
    command = text.rpartition("ExecStart=!")[2].split()
    assert command == ["/usr/sbin/chronyd", "-x", "${{", "__base_system.clock.options", "}}"]
    (options,) = [line for line in chrony.files["/etc/sysconfig/chronyd"].content.splitlines() if line[0] != "#"]
    assert options == 'OPTIONS="-f /etc/chrony.conf"'
