"""Who may open the GPUs of a server: units of leases, and native jobs as far as the policy says so."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.lease_host import FakeHost
from tests.support.lease_texts import jobs_of, slurm_job
from toolkit.lease import LeaseError
from toolkit.lease.machine import fence, unit
from toolkit.lease.server import hooks, instance, native, sweep
from toolkit.lease.server_conf import ServerConf, read_server_conf

BOB = 2002


def run(monkeypatch: pytest.MonkeyPatch, hook: Any, host: FakeHost, number: int) -> int:
    monkeypatch.setenv("SLURM_JOB_ID", str(number))
    code: int = hook(host)
    return code


def jobs(host: FakeHost, *said: Any) -> None:
    host.slurm.said = [[job for one in said for job in one]]


def bobs(number: int, gres: str, **more: Any) -> Any:
    return slurm_job(number, name="train", comment="", gres=gres, user="bob", uid=BOB, **more)


WHOLES, PART = "gpu:v100:2(IDX:1-2)", "shard:v100:1(IDX:2)"


@pytest.mark.parametrize(
    ("policy", "account", "gres", "users"),
    [
        ("whole", "", WHOLES, {1: {BOB}, 2: {BOB}}),
        ("whole", "research", PART, {}),
        ("none", "research", WHOLES, {}),
        ("none", "research", PART, {}),
        (["research"], "research", WHOLES, {1: {BOB}, 2: {BOB}}),
        (["research"], "research", PART, {2: {BOB}}),
        (["research"], "teaching", WHOLES, {}),
        (["research"], "", PART, {}),
    ],
)
def test_a_native_job_has_what_the_policy_gives_it(
    host: FakeHost, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
    policy: object, account: str, gres: str, users: dict[int, set[int]],
) -> None:  # fmt: skip
    host.serve()
    told = json.loads(host.server_conf.read_text()) | {"native_jobs": policy}
    host.server_conf.write_text(json.dumps(told))
    jobs(host, bobs(50, gres, account=account))
    assert run(monkeypatch, hooks.prolog, host, 50) == 0
    assert (host.fence.users, host.fence.closed) == (users, True)
    assert ("its owner cannot open its GPUs" in capsys.readouterr().err) == (not users)
    assert run(monkeypatch, hooks.epilog, host, 50) == 0
    assert host.fence.users == {}


def test_the_owner_of_a_lease_is_let_in_by_none_of_its_jobs(host: FakeHost, monkeypatch: pytest.MonkeyPatch) -> None:
    """A step in a lease's job is a program of its owner's on the server."""
    host.serve()
    jobs(host, slurm_job(41, uid=os.getuid(), gres="gpu:v100:1(IDX:0)"))
    assert run(monkeypatch, hooks.prolog, host, 41) == 0
    assert (set(host.systemd.units), host.fence.users, host.fence.closed) == ({"41"}, {}, True)
    wanted = f"SupplementaryGroups={fence.GROUP}"
    assert wanted in unit.properties(host.systemd.units["41"], Path("/x"))


def test_a_job_that_has_to_give_way_is_not_let_in(host: FakeHost, monkeypatch: pytest.MonkeyPatch) -> None:
    conf = host.serve()
    instance.start(host, jobs_of(slurm_job(41, uid=os.getuid(), gres="shard:v100:70(IDX:2)"))[0], conf)
    jobs(host, bobs(50, WHOLES))
    assert run(monkeypatch, hooks.prolog, host, 50) == 0
    assert host.fence.users == {}


def test_a_lease_is_not_given_a_gpu_that_a_native_job_has(host: FakeHost, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever Slurm thinks: bob opens that GPU's device. Who may share it natively shares it with leases."""
    conf = host.serve(native_jobs=["research"])
    lease = slurm_job(41, uid=os.getuid(), gres="shard:v100:70(IDX:2)")
    jobs(host, bobs(50, WHOLES, account="research"), bobs(51, PART, account="research"))
    assert run(monkeypatch, hooks.prolog, host, 50) == 0
    with pytest.raises(LeaseError, match="GPU 2 is job 50's, which is no lease"):
        instance.start(host, jobs_of(lease)[0], conf)
    assert host.endpoint(41)["again"] is True
    assert run(monkeypatch, hooks.epilog, host, 50) == 0
    assert run(monkeypatch, hooks.prolog, host, 51) == 0
    assert host.fence.users == {2: {BOB}}
    instance.start(host, jobs_of(lease)[0], conf)
    assert set(host.systemd.units) == {"41"}


def test_the_end_of_a_job_takes_nothing_from_another_of_its_owner(
    host: FakeHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    host.serve()
    jobs(host, bobs(50, "gpu:v100:1(IDX:1)"), bobs(51, WHOLES))
    for number in (50, 51):
        assert run(monkeypatch, hooks.prolog, host, number) == 0
    run(monkeypatch, hooks.epilog, host, 51)
    assert host.fence.users == {1: {BOB}}
    host.slurm.answers["squeue"] = "52 RUNNING Unknown N/A\n"  # 50 is gone, and its Epilog never ran
    assert sweep.sweep(host) == 0
    assert (host.fence.users, native.known(host)) == ({}, set())


def test_an_epilog_drains_where_a_device_stays_open(
    host: FakeHost, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    host.serve()
    jobs(host, bobs(50, WHOLES))
    run(monkeypatch, hooks.prolog, host, 50)
    host.fence.left = ["/dev/nvidia1: Operation not permitted"]
    assert run(monkeypatch, hooks.epilog, host, 50) == 1
    assert "may still open its GPUs: /dev/nvidia1" in capsys.readouterr().err


def test_a_server_that_does_not_close_its_devices_says_so(host: FakeHost) -> None:
    conf = host.serve()
    job = jobs_of(slurm_job(41, uid=os.getuid()))[0]
    host.fence.holes = ["/dev/nvidia0 is open to all users"]
    instance.start(host, job, conf)
    assert any("does not hold parts" in note and "nvidia0" in note for note in host.endpoint(41)["notes"])
    host.fence.holes = []
    instance.start(host, job, conf)
    assert not any("does not hold parts" in note for note in host.endpoint(41)["notes"])
    instance.start(host, job, replace(conf, fence=False))
    assert any("are not closed" in note for note in host.endpoint(41)["notes"])
    given = unit.properties(host.systemd.units["41"], Path("/x"))
    assert not [word for word in given if "SupplementaryGroups" in word]


def test_a_policy_that_cannot_be_read_is_no_policy(host: FakeHost) -> None:
    host.serve()
    told = json.loads(host.server_conf.read_text())
    for wrong in ("all", 1, [1]):
        host.server_conf.write_text(json.dumps(told | {"native_jobs": wrong}))
        with pytest.raises(LeaseError, match="native_jobs is"):
            read_server_conf(host.server_conf)


@pytest.fixture
def dev(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Files of two GPUs that stand in for their devices; other users may look into the folder."""
    folder = Path(tempfile.mkdtemp(dir="/dev/shm", prefix="elastic-ai-fence-"))
    folder.chmod(0o755)
    for name in ("nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm", "emulated"):
        (folder / name).touch()
        (folder / name).chmod(0o666)
    monkeypatch.setattr(fence, "DEV", folder)
    monkeypatch.setattr(fence, "EMULATED", folder / "emulated")
    monkeypatch.setattr(fence, "PARAMS", folder / "params")
    monkeypatch.setattr(fence, "_is_device", lambda path: path.exists())
    monkeypatch.setattr(fence.grp, "getgrnam", lambda _name: SimpleNamespace(gr_gid=3003))
    yield folder
    shutil.rmtree(folder)


def opened(folder: Path, uid: int, group: int = 4004) -> set[str]:
    """The files that a process of that user opens for reading and writing."""
    reads, writes = os.pipe()
    child = os.fork()
    if child == 0:
        os.setgroups([group])
        os.setgid(4004)
        os.setuid(uid)
        for path in folder.iterdir():
            with suppress(PermissionError):
                os.open(path, os.O_RDWR)
                os.write(writes, f"{path.name} ".encode())
        os._exit(0)
    os.close(writes)
    with os.fdopen(reads) as said:
        found = said.read().split()
    assert os.waitpid(child, 0)[1] == 0
    return set(found)


@pytest.mark.skipif(os.getuid() != 0, reason="needs root: files are given to a group and opened by other users")
def test_device_files_open_to_the_group_and_to_those_who_are_let_in(dev: Path) -> None:
    (dev / "params").write_text("ModifyDeviceFiles: 1\nDeviceFileGID: 0\nDeviceFileMode: 438\n")
    assert len(fence.gaps()) == 5
    assert fence.keep({1: [BOB], 0: []}, [990]) == []
    everything = {"nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm", "emulated"}
    alone = {"nvidia-uvm"}
    assert opened(dev, 2001) == alone
    assert opened(dev, BOB) == alone | {"nvidia1", "nvidiactl", "emulated"}
    assert opened(dev, 990) == opened(dev, 64_000, group=3003) == everything
    assert fence.gaps() == ["the driver opens device files to all users until it is reloaded (restart the server)"]
    (dev / "params").write_text("ModifyDeviceFiles: 1\nDeviceFileGID: 3003\nDeviceFileMode: 432\n")
    assert fence.gaps() == []
    changed = {path.name: path.stat().st_ctime_ns for path in dev.iterdir()}
    assert fence.keep({1: [BOB]}, [990]) == []
    assert {path.name: path.stat().st_ctime_ns for path in dev.iterdir()} == changed, "a second look changes nothing"
    assert fence.keep({}) == []
    assert opened(dev, BOB) == opened(dev, 990) == alone
    assert fence.open_again() == []
    (dev / "params").unlink()
    assert opened(dev, 2001) == everything


@pytest.mark.skipif(os.getuid() != 0, reason="needs root: files are given to a group and opened by other users")
def test_files_of_mig_instances_open_to_those_alone_who_have_the_instance(
    dev: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The driver is told that nvidia-modprobe, which any user may run, is not to open them again."""
    monkeypatch.setattr(fence, "CAPABILITIES", tmp_path)
    caps = dev / "nvidia-caps"
    caps.mkdir()
    places = {21: "gi1", 22: "gi1/ci0", 30: "gi2", 99: "gi3"}

    def describe() -> None:
        """As the driver does. What is written there changes one line of what it says next, here the whole file."""
        for minor, place in places.items():
            access = tmp_path / "gpu0/mig" / place / "access"
            access.parent.mkdir(parents=True, exist_ok=True)
            access.write_text(f"DeviceFileMinor: {minor}\nDeviceFileMode: 292\nDeviceFileModify: 1\n")

    describe()
    for minor in (21, 22, 30):  # of the fourth nobody has made it yet
        (caps / f"nvidia-cap{minor}").touch()
        (caps / f"nvidia-cap{minor}").chmod(0o444)
    config = tmp_path / "gpu0/mig/config"
    config.write_text("DeviceFileMinor: 1\n")
    mine = {f"{caps}/nvidia-cap21": [BOB], f"{caps}/nvidia-cap22": [BOB]}
    assert fence.keep_instances(mine) == []
    assert opened(caps, BOB) == {"nvidia-cap21", "nvidia-cap22"}
    assert opened(caps, 2001) == set()
    assert opened(caps, 64_000, group=3003) == {"nvidia-cap21", "nvidia-cap22", "nvidia-cap30"}
    assert "DeviceFileModify: 0" in (tmp_path / "gpu0/mig/gi2/access").read_text()
    assert config.read_text() == "DeviceFileMinor: 1\n"
    describe()
    assert fence.open_again() == []
    assert {path.stat().st_mode & 0o777 for path in caps.iterdir()} == {0o444}
    assert "DeviceFileModify: 1" in (tmp_path / "gpu0/mig/gi2/access").read_text()


def test_no_link_and_no_file_of_a_users_is_a_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fence, "DEV", tmp_path)
    monkeypatch.setattr(fence, "EMULATED", tmp_path / "emulated")
    (tmp_path / "target").touch()
    (tmp_path / "nvidia0").symlink_to(tmp_path / "target")
    (tmp_path / "emulated").symlink_to(tmp_path / "target")
    (tmp_path / "nvidia1").touch()
    assert fence.files() == {}


def test_without_the_group_nothing_is_touched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fence, "GROUP", "elastic-ai-no-such-group")
    assert fence.keep({}) == ["there is no group elastic-ai-no-such-group on this server; run site.yml again"]


def test_a_server_that_fences_nothing_asks_for_nothing(host: FakeHost) -> None:
    conf: ServerConf = replace(host.serve(), fence=False)
    assert native.grant(host, jobs_of(bobs(50, WHOLES))[0], conf) == []
    assert native.refresh(host, conf) == []
    assert (host.fence.closed, native.known(host)) == (False, {"50"}), "what he has is known all the same"
