"""Images of a mirror: copied by digest from a real docker-registry, kept, swept, and served by HTTPS to skopeo."""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.support.page_pool import certificate, free_port
from tests.support.tiny_image import tiny_image
from toolkit.errors import UsageFault
from toolkit.mirror import building, images, manifest, verifying
from toolkit.mirror.documents import Plan
from validation.base.project import ROOT
from validation.signing import ssh

TOOLS = ("skopeo", "docker-registry", "gpg", "ssh-keygen")
pytestmark = [
    pytest.mark.engines,
    pytest.mark.skipif(any(shutil.which(tool) is None for tool in TOOLS), reason=f"needs {', '.join(TOOLS)}"),
]


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Images by their words, in a registry of this machine: one, a later one of the same name, one for two machines."""
    folder = tmp_path_factory.mktemp("source")
    crt, key = certificate(folder)
    door = images.Door("127.0.0.1", free_port(), Path(crt), Path(key))
    with pytest.MonkeyPatch.context() as patch, images.registry(folder / "store", door) as address:
        patch.setenv("SSL_CERT_FILE", crt)
        made = {}
        for words, machines in (("one", ()), ("two", ()), ("both", ("amd64", "arm64"))):
            layout = tiny_image(folder / words, words, machines)
            name = f"{address}/team/tiny:{words}"
            copy = [
                "skopeo",
                "--insecure-policy",
                "copy",
                "--all",
                "--preserve-digests",
                f"oci:{layout}",
                f"docker://{name}",
            ]
            done = subprocess.run(copy, capture_output=True, text=True)
            assert done.returncode == 0, done.stderr
            raw = subprocess.run(
                ["skopeo", "inspect", "--raw", f"docker://{name}"], check=True, capture_output=True
            ).stdout
            made[words] = f"{address}/team/tiny@sha256:{hashlib.sha256(raw).hexdigest()}"
        yield made


def quiet(_: str) -> None:
    pass


def blobs(folder: Path) -> int:
    return len(list((folder / "images").rglob("blobs/sha256/*/*/data")))


def test_an_image_is_copied_once_and_one_that_is_no_longer_planned_goes(source: dict[str, str], tmp_path: Path) -> None:
    assert images.take_images([source["one"], source["both"]], tmp_path, quiet) == []
    assert images.missing([source["one"], source["both"]], tmp_path) == []
    assert not list(tmp_path.rglob("_uploads"))
    before, said = blobs(tmp_path), []
    assert before == 3 + 1 + 2 * 2 + 1, "manifest, configuration, layer; a list, two of both, and a layer of both"
    assert images.take_images([source["one"], source["both"]], tmp_path, said.append) == []
    assert said == [], "what is there is not copied again"

    assert images.take_images([source["both"], source["two"]], tmp_path, quiet) == []
    assert images.missing([source["one"]], tmp_path) == [source["one"]]
    assert images.missing([source["both"], source["two"]], tmp_path) == []
    assert blobs(tmp_path) == before
    assert images.take_images([], tmp_path, quiet) == []
    assert not (tmp_path / "images").exists()


def test_a_copy_that_breaks_off_is_gone_on_with_and_a_tag_is_refused(source: dict[str, str], tmp_path: Path) -> None:
    gone = source["one"][:-4] + "0000"
    with pytest.raises(UsageFault, match="skopeo failed: ") as said:
        images.take_images([source["two"], gone], tmp_path, quiet)
    assert "\n" not in str(said.value)
    assert images.missing([source["two"], gone], tmp_path) == [gone]
    assert images.take_images([source["two"], source["one"]], tmp_path, quiet) == []
    with pytest.raises(UsageFault, match=r"team/tiny:one: name the image by its digest"):
        images.take_images(["registry.example.net/team/tiny:one"], tmp_path, quiet)


@pytest.mark.parametrize(
    "odd", ["../../etc@sha256:", "a b@sha256:", "-x@sha256:", "/root@sha256:", "a//b@sha256:", "a/@sha256:"]
)
def test_a_name_that_could_leave_the_folder_is_refused(odd: str) -> None:
    with pytest.raises(UsageFault, match="by its digest"):
        images.image_of(odd + "0" * 64)


def test_without_its_tools_an_image_is_a_note(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(images.shutil, "which", lambda program: None)
    name = f"registry.example.net/team/tiny@sha256:{'0' * 64}"
    assert images.take_images([name], tmp_path, quiet) == [
        f"not included: {name}: skopeo and docker-registry not installed"
    ]
    assert images.missing([name], tmp_path) == [name]


def test_a_mirror_serves_its_image_by_https_and_says_so_to_the_inventory(
    source: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setattr(building.extras, "take_wheels", lambda folder, say: None)
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / "key"], check=True)
    medium = tmp_path / "medium"
    plan = Plan(site="hall", made="2026-11-28T00:00:00Z", release="0", repositories=(), images=(source["both"],))
    building.build(plan, medium, ssh.read_key(tmp_path / "key"), quiet)
    assert verifying.verify(medium, None, quiet).faults == ()

    crt, key = certificate(tmp_path)
    port = free_port()
    words = [sys.executable, "-m", "toolkit", "mirror", "serve", str(medium), "--listen", f"127.0.0.1:{port}",
             "--vars", str(tmp_path / "mirror.yml"), "--certificate", crt, "--private-key", key]  # fmt: skip
    process = subprocess.Popen(words, cwd=ROOT, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        for line in process.stderr:
            if line.startswith("serving") and "Ctrl-C" in line:
                break
        variables = yaml.safe_load((tmp_path / "mirror.yml").read_text())
        served = variables["horovod_image"]
        assert served == f"127.0.0.1:{port + 1}/team/tiny@{source['both'].rpartition('@')[2]}"
        assert variables["mirror_upstream"]["horovod_image"] == source["both"]
        (tmp_path / "certs").mkdir()
        shutil.copy(crt, tmp_path / "certs/ca.crt")
        tls = ["--src-cert-dir", str(tmp_path / "certs")]
        copy = ["skopeo", "--insecure-policy", "copy", "--all", *tls, f"docker://{served}", f"dir:{tmp_path / 'node'}"]
        done = subprocess.run(copy, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        got = hashlib.sha256((tmp_path / "node/manifest.json").read_bytes()).hexdigest()
        assert got == served.rpartition(":")[2]
        plain = subprocess.run([*copy[:4], f"docker://{served}", f"dir:{tmp_path / 'other'}"], capture_output=True)
        assert plain.returncode != 0, "its certificate is not trusted without being named"
        pushed = ["skopeo", "--insecure-policy", "copy", "--dest-cert-dir", str(tmp_path / "certs"),
                  f"dir:{tmp_path / 'node'}", f"docker://127.0.0.1:{port + 1}/team/tiny:evil"]  # fmt: skip
        assert subprocess.run(pushed, capture_output=True).returncode != 0, "nobody writes into it"
        asked = ["curl", "-sf", "--cacert", crt, f"https://localhost:{port}/plan.json"]
        assert subprocess.run(asked, capture_output=True, check=True).stdout == (medium / "plan.json").read_bytes()
    finally:
        process.send_signal(signal.SIGINT)
        assert process.wait(30) in (0, 130)
    until = time.monotonic() + 20
    while any(str(medium) in line for line in registries()):
        assert time.monotonic() < until, "its registry ends with it"
        time.sleep(0.1)
    assert verifying.verify(medium, None, quiet).faults == (), "serving writes nothing"
    assert manifest.read(medium, None).good


def registries() -> list[str]:
    """Settings of every docker-registry that runs here."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0")
                if Path(os.fsdecode(words[0])).name == "docker-registry":
                    found.append(Path(os.fsdecode(words[2])).read_text())
            except (OSError, IndexError):
                continue
    return found
