"""The artefact, and what a lab makes of it: contents, checksum, names, what is missing, the files of a node."""

from __future__ import annotations

import hashlib
import json
import stat
import subprocess
import tarfile
import uuid
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tests.support import answers
from toolkit.cli import cli
from toolkit.engine import build, host_modules
from toolkit.exits import Exit
from toolkit.lab import cpio, devices, inventory
from toolkit.lab.devices import Emulation, emulation
from toolkit.lab.spec import LabSpec, make_spec

needs_compiler = pytest.mark.skipif(bool(build.missing_tools()), reason=f"no compiler here: {build.missing_tools()}")


@needs_compiler
def test_artefact(tmp_path: Path):
    made = build.build_engine(tmp_path / "one.tar.gz", "1.2.3")
    assert made.sha256 == hashlib.sha256(made.path.read_bytes()).hexdigest()
    with tarfile.open(made.path) as tar:
        assert tar.getnames() == [
            "engine.json",
            "bin/elastic-ai-refserver",
            "lib/libcuda.so.1",
            "client/lib/libnvidia-ml.so.1",
            "client/bin/nvidia-smi",
        ]
        assert [m.mode for m in tar] == [0o644, *[0o755] * 4]
        tar.extractall(tmp_path / "x")  # our own
    about = json.loads((tmp_path / "x/engine.json").read_text())
    assert (about["engine"], about["release"], about["protocol"]) == ("reference", "1.2.3", "6")
    said = subprocess.run([tmp_path / "x/bin/elastic-ai-refserver", "--version"], capture_output=True, text=True)
    assert said.stdout == "1.2.3\n"
    header = (build.SOURCES / "reference/wire.h").read_text()
    assert f"#define WIRE_PROTOCOL {about['protocol']}\n" in header
    assert build.build_engine(tmp_path / "two.tar.gz", "1.2.4").sha256 != made.sha256


@needs_compiler
def test_command(tmp_path: Path):
    done = CliRunner().invoke(cli, ["engine", "build", "--output", str(tmp_path / "e.tar.gz"), "--json"])
    assert done.exit_code == 0, done.output
    said = answers.check(done.stdout, "engine")
    assert said["sha256"] == hashlib.sha256((tmp_path / "e.tar.gz").read_bytes()).hexdigest()
    assert said["release"] == build.default_release()
    text = CliRunner().invoke(cli, ["engine", "build", "--output", str(tmp_path / "e.tar.gz")]).output
    assert f"sha256: {said['sha256']}" in text, "the same each time"


@pytest.mark.parametrize("release", ["", "a b", "-x", "a/b", 'a"b', "x" * 64, "../x"])
def test_a_release_is_a_name(tmp_path: Path, release: str):
    with pytest.raises(build.BuildError, match="letters, digits"):
        build.compile_engine(tmp_path, release)


def test_no_compiler_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(build.BuildError, match="apt-get install gcc"):
        build.build_engine(tmp_path / "e.tar.gz")
    done = CliRunner().invoke(cli, ["engine", "build", "--output", str(tmp_path / "e.tar.gz")])
    assert done.exit_code == Exit.USAGE
    assert "apt-get install gcc" in done.output
    said: list[str] = []
    assert emulation(tmp_path, "debian 12", said.append) is None
    assert said == [f"no emulated GPUs and no reference engine in this lab: {build.missing_tools()}"]
    assert not (tmp_path / "e.tar.gz").exists()


def test_a_source_that_does_not_compile_leaves_no_artefact(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(build, "SERVER", ("reference/nothing.c",))
    with pytest.raises(build.BuildError, match=r"nothing\.c|missing packages"):
        build.build_engine(tmp_path / "e.tar.gz", "x")
    assert not list(tmp_path.iterdir())


def test_glibc_of_nodes(tmp_path: Path):
    libc = tmp_path / "libc.so.6"
    libc.write_bytes(b"\0GLIBC_2.2.5\0GLIBC_2.36\0GLIBC_2.4\0GLIBC_PRIVATE\0")
    assert build.runs_with("2.34", libc)
    assert build.runs_with("2.36", libc)
    assert not build.runs_with("2.38", libc)
    assert not build.runs_with("3.0", libc)


@pytest.fixture
def spec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LabSpec:
    monkeypatch.setenv("ELASTIC_AI_LAB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("ELASTIC_AI_LAB_DIR", str(tmp_path / "state"))
    return make_spec("x", 3, 4, 1, vms=True)


@pytest.fixture
def made(tmp_path: Path) -> Emulation:
    (tmp_path / "lib").mkdir()
    for name in ("libcuda.so.1", "libnvidia-ml.so.1", "nvidia-smi"):
        (tmp_path / "lib" / name).write_text(name)
    info = build.EngineInfo("reference", "7", "1", "2.34", "x86_64")
    return Emulation(tmp_path / "lib", tmp_path / "engine.tar.gz", "abc", info)


@needs_compiler
def test_lab_builds_once_and_refuses_nodes_that_are_too_old(tmp_path: Path, spec: LabSpec):
    libc = tmp_path / "image/usr/lib/x86_64-linux-gnu/libc.so.6"
    libc.parent.mkdir(parents=True)
    libc.write_bytes(b"GLIBC_2.99\0")
    said: list[str] = []
    first = emulation(tmp_path / "image", "debian 12", said.append)
    again = emulation(tmp_path / "image", "debian 12", said.append)
    assert first == again
    assert len(said) == 1
    assert hashlib.sha256(first.artefact.read_bytes()).hexdigest() == first.sha256
    found = sorted(p.name for p in first.libraries.iterdir())
    assert found[-3:] == ["libcuda.so.1", "libnvidia-ml.so.1", "nvidia-smi"]
    kernels = 0 if host_modules.lacks_compiler() else len(host_modules.sources())
    assert len([name for name in found if name.startswith("elastic-ai-kernels-")]) == kernels == len(found) - 3
    libc.write_bytes(b"GLIBC_2.17\0")
    assert emulation(tmp_path / "image", "debian 9", said.append) is None
    assert "nodes of debian 9 have an older one" in said[-1]


def test_gpu_servers_alone_get_devices(spec: LabSpec, made: Emulation):
    for name in ("head", "client1"):
        assert devices.node_files(spec, spec.node(name), made) == {}
    assert devices.node_files(spec, spec.node("gpu1"), None) == {}
    files = devices.node_files(spec, spec.node("gpu1"), made)
    assert files["opt/elastic-ai-emulated/lib/libcuda.so.1"] == (b"libcuda.so.1", 0o755)
    assert files["usr/local/bin/nvidia-smi"] == (b"nvidia-smi", 0o755)
    assert "opt/elastic-ai-emulated/lib/nvidia-smi" not in files
    described = json.loads(files["etc/elastic-ai-emulated/gpus.json"][0])["gpus"]
    assert len(described) == inventory.POOL_GPUS["count"]
    assert all(g["name"].startswith("Emulated") for g in described)
    assert len({g["pci_bus_id"] for g in described}) == len(described)
    uuids = {g["uuid"] for n in ("gpu1", "gpu2") for g in devices.describe_gpus(spec, spec.node(n))}
    assert len(uuids) == 8
    assert all(uuid.UUID(u.removeprefix("GPU-")) for u in uuids)
    assert described == devices.describe_gpus(spec, spec.node("gpu1")), "the same when the lab is made again"


def test_installing_replaces_files_that_are_in_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    ran: list[Any] = []
    monkeypatch.setattr(devices, "run", ran.append)
    devices.install(tmp_path, {})
    assert ran == []
    devices.install(tmp_path, {"a/b.so": (b"old", 0o755)})
    with (tmp_path / "a/b.so").open("rb") as in_use:
        devices.install(tmp_path, {"a/b.so": (b"new", 0o755)})
        assert in_use.read() == b"old"
    assert (tmp_path / "a/b.so").read_bytes() == b"new"
    assert (tmp_path / "a/b.so").stat().st_mode & 0o777 == 0o755
    assert ran == [["chroot", str(tmp_path), "ldconfig"]] * 2
    assert [p.name for p in (tmp_path / "a").iterdir()] == ["b.so"]


def test_machines_run_ldconfig_by_themselves():
    assert devices.machine_files({}) == {}
    text, _ = devices.machine_files({"a": (b"", 0o644)})[f"etc/systemd/system/{devices.UNIT}"]
    assert b"ExecStart=/sbin/ldconfig\n" in text


def test_links_in_the_initial_ram_disk():
    archive = cpio.archive([cpio.link("a/l", "../target")])
    assert archive[:6] == b"070701"
    mode, size, name_size = (int(archive[at : at + 8], 16) for at in (14, 54, 94))
    assert stat.S_ISLNK(mode)
    assert archive[110 : 110 + name_size] == b"a/l\0"
    data = (110 + name_size + 3) // 4 * 4
    assert archive[data : data + size] == b"../target"


def test_engine_in_the_inventory(made: Emulation):
    assert inventory.engine_variables(made, Path("/x/e.tar.gz")) == {
        "remoting_engine_artifact": "/x/e.tar.gz",
        "remoting_engine_sha256": "abc",
    }
