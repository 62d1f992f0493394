"""The archive of Lupine, made from its publisher's files: here constructed ones, small programs with the same names."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tests.support import answers
from tests.support.node_modules import load
from toolkit.cli import cli
from toolkit.engine import build, elf, pack
from toolkit.errors import BuildError
from toolkit.exits import Exit

pytestmark = pytest.mark.skipif(bool(build.missing_tools()), reason=f"no compiler here: {build.missing_tools()}")
MACHINE = elf.read_file(Path("/proc/self/exe").resolve()).machine
SERVER_TEXT = 'const char *const knows[] = {"lupinecr_get_lupine_provider_v1", "x-lupine-session"};'
artefact: Any = load("plugins/modules/engine_artefact.py")


def cc(target: Path, source: str, *options: str) -> bytes:
    target.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run(["gcc", "-o", target, "-xc", "-", "-xnone", *options], input=source, text=True, check=True)
    return target.read_bytes()


@pytest.fixture(scope="module")
def binaries(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """A release's files; `new` is a client for a glibc that no system has."""
    folder = tmp_path_factory.mktemp("made")
    (folder / "versions").write_text("GLIBC_2.99 { global: later; };")
    later = ["-shared", "-nostdlib", "-Wl,-soname,libc.so.6", f"-Wl,--version-script={folder}/versions"]
    cc(folder / "new/libc.so.6", "int later(void) { return 1; }", *later)
    client = 'extern int %s; const char *const LUPINE = "LUPINE_SERVER"; int cuInit(unsigned f) { return %s; }'
    library = ("-shared", "-fPIC", "-Wl,-soname,libcuda.so.1")
    return {
        "server": cc(folder / "server", f"#include <stdio.h>\n{SERVER_TEXT} int main(void) {{ puts(knows[0]); }}"),
        "client": cc(folder / "client", client % ("puts(const char *)", 'puts("")'), *library),
        "new": cc(
            folder / "client2",
            client % ("later(void)", "later()"),
            *library,
            "-nostdlib",
            str(folder / "new/libc.so.6"),
        ),
        "open": cc(folder / "open", 'const char *const port = "LUPINE_PORT"; int main(void) { return !port; }'),
        "second": cc(
            folder / "second",
            f'{SERVER_TEXT} const char *const w = "x-lupine-wire-identity"; int main() {{ return !w; }}',
        ),
    }


def zipped(folder: Path, name: str, files: dict[str, bytes], sums: bool = True) -> Path:
    """A zip as the publisher's: bare files and their checksums."""
    path = folder / f"{name}.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for inside, data in files.items():
            archive.writestr(inside, data)
        if sums:
            lines = [f"{hashlib.sha256(data).hexdigest()}  {inside}\n" for inside, data in files.items()]
            archive.writestr("SHA256SUMS", "".join(lines))
    return path


def pair(folder: Path, binaries: dict[str, bytes], client: str = "client") -> list[Path]:
    return [
        zipped(folder, "lupine-server-cuda-13.0.2-ubuntu24.04-x86_64", {pack.SERVER: binaries["server"]}),
        zipped(folder, "lupine-client-cuda-13.0.2-ubuntu24.04-x86_64", {pack.CLIENT: binaries[client]}),
    ]


def call(output: Path, sources: list[Path], *more: str) -> Any:
    words = ["engine", "pack", "lupine", "--output", str(output), *more]
    return CliRunner().invoke(cli, [*words, *(word for path in sources for word in ("--from", str(path)))])


def test_two_zips_make_an_archive_that_says_what_it_needs(tmp_path: Path, binaries: dict[str, bytes]) -> None:
    done = call(tmp_path / "a.tar.gz", pair(tmp_path, binaries, "new"), "--release", "1.0.0", "--json")
    assert done.exit_code == 0, done.output
    said = answers.check(done.stdout, "engine-pack")
    assert said["sha256"] == hashlib.sha256((tmp_path / "a.tar.gz").read_bytes()).hexdigest()
    with tarfile.open(tmp_path / "a.tar.gz") as tar:
        assert tar.getnames() == ["engine.json", f"bin/{pack.SERVER}", "lib/libcuda.so.1", pack.GATE]
        assert [member.mode for member in tar] == [0o644, 0o755, 0o755, 0o755]
        tar.extractall(tmp_path / "x")  # our own
    about = json.loads((tmp_path / "x/engine.json").read_text())
    assert (about["engine"], about["release"], about["cuda"]) == ("lupine", "1.0.0-cuda13.0", "13.0")
    assert (about["machine"], about["glibc"], about["client"]["glibc"]) == (MACHINE, "2.99", "2.99")
    assert about["client"]["libraries"] == {"libc.so.6": ["GLIBC_2.99"]}
    assert about["server"]["glibc"] != "2.99", "server and client apart"
    assert about["sha256"]["lib/libcuda.so.1"] == hashlib.sha256(binaries["new"]).hexdigest()
    again = call(tmp_path / "b.tar.gz", pair(tmp_path, binaries, "new"), "--release", "1.0.0")
    assert said["sha256"] in again.output, "the same each time"


def test_versions_are_those_that_binutils_reads(tmp_path: Path, binaries: dict[str, bytes]) -> None:
    for name in ("server", "client", "new"):
        path = tmp_path / name
        path.write_bytes(binaries[name])
        needs = elf.read_file(path)
        assert elf.glibc_of([needs]).startswith(build.needed_glibc([path])), name  # which takes 2.2.5 for 2.2
        said = subprocess.run(["objdump", "-p", path], capture_output=True, text=True, check=True).stdout
        needed = {line.split()[1] for line in said.splitlines() if line.split()[:1] == ["NEEDED"]}
        assert needed <= set(needs.libraries)


def test_an_unpacked_image_with_a_driver_of_its_own(tmp_path: Path, binaries: dict[str, bytes]) -> None:
    """The base image has NVIDIA's libcuda.so.1 too, which is not the client."""
    for inside, data in {
        "opt/lupine/bin/lupine_driver_server": binaries["server"],
        "opt/lupine/lib/libcuda.so.1": binaries["client"],
        "usr/local/cuda/compat/libcuda.so.1": b"\x7fELF of another maker",
    }.items():
        (tmp_path / "image" / inside).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "image" / inside).write_bytes(data)
    made = call(tmp_path / "a.tar.gz", [tmp_path / "image"], "--release", "1.0.0", "--cuda", "12.4")
    assert made.exit_code == 0, made.output
    with tarfile.open(tmp_path / "a.tar.gz") as tar:
        client = tar.extractfile("lib/libcuda.so.1")
        assert client is not None
        assert client.read() == binaries["client"]


def refusals(folder: Path, binaries: dict[str, bytes]) -> dict[str, tuple[list[Path], list[str], str]]:
    """name -> what is given, options, and the words of the one error."""
    release = ["--release", "1.0.0"]
    server, client = pair(folder, binaries)
    cut = folder / "lupine-server-cuda-13.0.2-ubuntu22.04-x86_64.zip"
    cut.write_bytes(server.read_bytes()[:-200])
    turned = folder / "turned/lupine-server-cuda-13.0.2-ubuntu24.04-x86_64.zip"
    turned.parent.mkdir()
    data = bytearray(server.read_bytes())
    data[200] ^= 0xFF
    turned.write_bytes(data)
    other = zipped(folder, "lupine-client-cuda-12.9.1-ubuntu24.04-x86_64", {pack.CLIENT: binaries["client"]})
    wheel = folder / "lupine-2.0.1-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("lupine/_libs/linux-x86_64/libcuda.so.1", binaries["client"])
    (folder / "sums").mkdir()
    wrong = folder / "sums/lupine-server-cuda-13.0.2-ubuntu24.04-x86_64.zip"
    with zipfile.ZipFile(wrong, "w") as archive:
        archive.writestr(pack.SERVER, binaries["server"])
        archive.writestr("SHA256SUMS", f"{'0' * 64}  {pack.SERVER}\n")
    named = {
        part: zipped(folder, f"lupine-server-cuda-13.0.1-{part}1-x86_64", {pack.SERVER: content}, sums=False)
        for part, content in {
            "open": binaries["open"],
            "second": binaries["second"],
            "text": b"#!/bin/sh\n",
            "short": binaries["server"][:400],
        }.items()
    }
    nothing = folder / "nothing"
    nothing.mkdir()
    return {
        "not there": ([folder / "none.zip"], release, "not there"),
        "empty folder": ([nothing], release, "no server (lupine_driver_server)"),
        "client alone": ([client], release, "no server (lupine_driver_server)"),
        "wheel alone": ([wheel], release, "the publisher's wheels have clients alone"),
        "server alone": ([server], release, "no client (libcuda.so.1)"),
        "cut short": ([cut, client], release, "no zip, or a damaged one"),
        "turned bits": ([turned, client], release, "damaged"),
        "another checksum": ([wrong, client], release, "has not the checksum of the publisher's SHA256SUMS"),
        "two CUDA versions": (
            [server, other],
            release,
            "different CUDA versions (server: CUDA 13.0, client: CUDA 12.9)",
        ),
        "CUDA given otherwise": ([server, client], [*release, "--cuda", "12.4"], "different CUDA versions"),
        "no release": ([server, client], [], "give --release"),
        "a release that is no name": ([server, client], ["--release", "../x"], "letters, digits"),
        "a server that anybody may use": ([named["open"], client], release, "knows no sessions and providers"),
        "the next protocol": ([named["second"], client], release, "from 2.0 on"),
        "no program": ([named["text"], client], release, "not a 64-bit program"),
        "a program cut short": ([named["short"], client], release, "damaged, or not for this kind of machine"),
        "two servers": ([server, named["second"], client], release, "in different versions"),
    }


def test_what_makes_no_archive_is_one_error_and_leaves_nothing(tmp_path: Path, binaries: dict[str, bytes]) -> None:
    output = tmp_path / "out/a.tar.gz"
    for name, (sources, options, words) in refusals(tmp_path, binaries).items():
        done = call(output, sources, *options)
        assert done.exit_code == Exit.USAGE, (name, done.output, done.exception)
        assert words in done.output, name
        assert len(done.output.strip().splitlines()) == 1, (name, done.output)
        assert not output.exists(), name
    assert call(output, pair(tmp_path, binaries), "--release", "1.0.0").exit_code == 0, "the same with nothing wrong"


def test_a_server_for_another_machine(tmp_path: Path, binaries: dict[str, bytes]) -> None:
    other = bytearray(binaries["server"])
    other[18:20] = (183 if MACHINE == "x86_64" else 62).to_bytes(2, "little")
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / pack.SERVER).write_bytes(other)
    (tmp_path / "x" / pack.CLIENT).write_bytes(binaries["client"])
    with pytest.raises(BuildError, match=rf"no server .* for {MACHINE} \(only for "):
        pack.choose(pack.look([tmp_path / "x"]), MACHINE)


class Node:
    """A node by its libraries and its driver's CUDA."""

    def __init__(self, cuda: str = "13.0", lacks: str = "", machine: str = MACHINE) -> None:
        self.machine, self._cuda, self._lacks = machine, cuda, lacks
        list_all = [shutil.which("ldconfig") or "/sbin/ldconfig", "-p"]
        self._real = artefact.Node(lambda: str(subprocess.check_output(list_all, text=True)))

    def library(self, soname: str) -> Path | None:
        found: Path | None = None if soname == self._lacks else self._real.library(soname)
        return found

    def cuda(self) -> str:
        return self._cuda


def test_a_node_that_lacks_something_is_refused_before_anything_is_unpacked(
    tmp_path: Path, binaries: dict[str, bytes]
) -> None:
    fits, new = tmp_path / "fits.tar.gz", tmp_path / "new.tar.gz"
    for path, client in ((fits, "client"), (new, "new")):
        assert call(path, pair(tmp_path, binaries, client), "--release", "1.0.0").exit_code == 0

    def install(path: Path, node: Node, server: bool) -> Any:
        sha = hashlib.sha256(path.read_bytes()).hexdigest()
        return artefact.install(path, sha, tmp_path / "root", node, server)

    for path, node, server, words in (
        (new, Node(), False, r"it needs GLIBC_2\.99 of libc\.so\.6, which the node's \(.*\) has not"),
        (fits, Node(cuda="12.4"), True, r"built for CUDA 13\.0, and the node's driver has CUDA 12\.4"),
        (fits, Node(lacks="libc.so.6"), False, r"the node has no libc\.so\.6"),
        (fits, Node(machine="riscv64"), False, f"it is for {MACHINE}, and the node is riscv64"),
    ):
        with pytest.raises(artefact.Refused, match=words):
            install(path, node, server)
        assert not list((tmp_path / "root").iterdir()), "nothing of it is there"
    assert install(fits, Node(cuda="12.4"), False)["engine"] == "lupine", "a client needs no driver"
    assert install(fits, Node(cuda=""), True)["engine"] == "lupine", "a driver that is not there says nothing"
