"""Programs of leases in containers: what root gives Docker for a user, and which images are looked for where."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support import lease_forms
from tests.support.lease_forms import instance, leased_gpu
from tests.support.lease_host import FakeHost, FakeSlurm
from toolkit.lease import LeaseError
from toolkit.lease.client import images, ranks
from toolkit.lease.container_forms import HELPER, ContainerWish, ImageNames, parse_wish, wish_words
from toolkit.lease.engines import LeasedGpu
from toolkit.lease.instance_record import Instance
from toolkit.lease.server import container

NOBODY = pwd.getpwnam("nobody")
ONE, OTHER = "sha256:" + "a" * 64, "sha256:" + "b" * 64
ASKS = "srun --immediate=10 --nodelist="
NEEDS_ROOT = pytest.mark.skipif(os.getuid() != 0, reason="needs root: it opens files as another user")
DOCKER = """#!/bin/sh
case "$1 $2" in
"image inspect") [ "$5" = there:1 ] && echo {one} || {{ echo "Error: No such image: $5" >&2; exit 1; }} ;;
"ps --all") [ -e {folder}/removed ] || echo c1 ;;
"rm --force") echo "$@" >> {log}; touch {folder}/removed ;;
create*) echo made; {{ printf '%s\\n' "$@"; echo; env; echo; cat {folder}/leases/41/environment-*
        ls {folder}/lease-folders/41/*; }} > {log} ;;
start*) exit 7 ;;
esac
"""


@pytest.fixture
def host(tmp_path: Path) -> FakeHost:
    return FakeHost(folder=tmp_path, slurm=FakeSlurm())


def lease(host: FakeHost, where: str = "server") -> Instance:
    """The folder of a lease with one emulated GPU."""
    device = leased_gpu(2)
    found = instance(owner_uid=NOBODY.pw_uid, where=where, devices=(device,), job_memory_mib=512)
    (host.run_dir / "41").mkdir(parents=True)
    found.write(host.run_dir / "41")
    return found


def wish_of(environment: str, folder: Path = Path("/")) -> ContainerWish:
    return ContainerWish("41", "there:1", str(folder), environment, False, ("true",))


@pytest.fixture
def docker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Docker that writes down what it was told; and the emulated GPUs of a lab."""
    log = tmp_path / "log"
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "docker").write_text(DOCKER.format(one=ONE, log=log, folder=tmp_path))
    (tmp_path / "bin" / "docker").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    monkeypatch.setattr(container, "PATH", os.environ["PATH"])
    (tmp_path / "linker").write_text("/opt/emulated/lib\n")
    monkeypatch.setattr(container, "EMULATED_LINKER", tmp_path / "linker")
    return log


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder that every user may enter."""
    folder = Path(tempfile.mkdtemp(dir="/dev/shm", prefix="elastic-ai-container-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


def users_file(tmp_path: Path, text: str) -> str:
    path = tmp_path / "environment"
    path.write_text(text)
    os.chown(path, NOBODY.pw_uid, NOBODY.pw_gid)
    path.chmod(0o400)
    return str(path)


@pytest.mark.parametrize(
    ("job", "caller", "more"),
    [
        ("41", 12345, {}),
        ("41", NOBODY.pw_uid, {"where": "client"}),
        ("42", NOBODY.pw_uid, {}),
        ("../41", NOBODY.pw_uid, {}),
        ("", NOBODY.pw_uid, {}),
    ],
)
def test_a_container_is_for_the_owner_of_a_lease_with_a_program_here(
    host: FakeHost, job: str, caller: int, more: dict[str, Any]
) -> None:
    lease(host, **more)
    with pytest.raises(LeaseError, match="no lease of yours"):
        container.lease_of(host, job, caller)


def test_an_owner_has_his_lease(host: FakeHost) -> None:
    assert lease(host) == container.lease_of(host, "41", NOBODY.pw_uid)


@NEEDS_ROOT
def test_docker_gets_nothing_of_the_users_but_image_command_and_a_file_of_variables(
    host: FakeHost, docker: Path, tmp_path: Path, place: Path
) -> None:
    """Variables in its own environment would be obeyed by Docker's client, as root."""
    lease(host)
    mine = place / "mine"
    mine.mkdir()
    (mine / "inside").touch()
    os.chown(mine, NOBODY.pw_uid, NOBODY.pw_gid)
    mine.chmod(0o700)
    told = users_file(place, json.dumps({"RANK": "0", "DOCKER_CONFIG": "/tmp/mine", "PATH": "/tmp/mine"}))
    wish = ContainerWish("41", "there:1", str(mine), told, False, ("python", "--privileged"))
    assert container.run(host, wish, NOBODY.pw_uid) == 7
    words, environment, rest = (part.splitlines() for part in docker.read_text().split("\n\n"))
    at = words.index(ONE)
    assert words[at + 1 :] == ["python", "--privileged"]
    options = words[:at]
    assert {f"--user={NOBODY.pw_uid}:{NOBODY.pw_gid}", "--cap-drop=ALL", "--security-opt=no-new-privileges"} <= set(
        options
    )
    assert {"--memory=512m", "--pull=never", "--rm"} <= set(options)
    assert {"--label=elastic-ai-lease=41", f"--workdir={mine}"} <= set(options)
    assert not [
        word for word in options if word.startswith(("--env=", "--privileged", "--volume=/opt/emulated/lib:/x"))
    ]
    assert not [line for line in environment if line.startswith(("DOCKER_CONFIG", "RANK", "PATH=/tmp/mine"))]
    assert {"RANK=0", "DOCKER_CONFIG=/tmp/mine", "LD_LIBRARY_PATH=/opt/emulated/lib", "inside"} <= set(rest)
    assert list((tmp_path / "lease-folders" / "41").iterdir()) == []
    assert not list((host.run_dir / "41").glob("environment-*"))
    assert "lease-folders" not in Path("/proc/mounts").read_text()
    assert (mine / "inside").exists()
    assert container.remove(host, "41") == []
    assert "rm --force --volumes c1" in docker.read_text()
    assert not (tmp_path / "lease-folders" / "41").exists()


@NEEDS_ROOT
@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"A B": "1"}', "none that Docker reads"),
        ('{"A": "1\\nLD_PRELOAD=/x"}', "none that Docker reads"),
        ("no JSON", "cannot be read"),
    ],
)
def test_variables_that_are_none_start_nothing(
    host: FakeHost, docker: Path, place: Path, text: str, words: str
) -> None:
    lease(host)
    with pytest.raises(LeaseError, match=words):
        container.run(host, wish_of(users_file(place, text)), NOBODY.pw_uid)
    assert not docker.exists()


@NEEDS_ROOT
def test_what_the_user_may_not_open_is_not_mounted(host: FakeHost, docker: Path, place: Path) -> None:
    lease(host)
    roots = place / "roots"
    roots.mkdir(mode=0o700)
    told = users_file(place, "{}")
    for folder in (roots, place / "none", Path(told)):
        with pytest.raises(LeaseError, match=r"Permission denied|No such file|Not a directory"):
            container.run(host, wish_of(told, folder), NOBODY.pw_uid)
    secret = place / "secret"
    secret.write_text("{}")
    secret.chmod(0o600)
    with pytest.raises(LeaseError, match="Permission denied"):
        container.run(host, wish_of(str(secret)), NOBODY.pw_uid)
    assert os.geteuid() == 0
    assert not docker.exists()


def test_an_image_that_is_not_there_is_said(docker: Path) -> None:
    assert container.identity("there:1") == ONE
    with pytest.raises(LeaseError, match="has no image other:1; the administrator"):
        container.identity("other:1")
    for name in ("--help", "a b", "", "x" * 300, "a\n"):
        with pytest.raises(LeaseError, match="not the name of an image"):
            container.identity(name)


def test_real_gpus_go_in_by_their_names_and_with_the_servers_own_device_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A device file that Docker makes would have no access list, and be closed to the owner."""
    gpu = LeasedGpu(2, "MIG-1", "H200", 64, 40, 140, gpu_uuid="GPU-2", device_files=("/dev/nvidia-caps/c12",))
    monkeypatch.setattr(container, "SPECIFICATIONS", (tmp_path / "nvidia.yaml",))
    with pytest.raises(LeaseError, match="no CDI specification"):
        container.gpu_words([gpu])
    (tmp_path / "nvidia.yaml").touch()
    assert container.gpu_words([gpu], Path("/dev"))[0] == [
        "--device=nvidia.com/gpu=MIG-1",
        *(f"--volume={path}:{path}" for path in ("/dev/nvidiactl", "/dev/nvidia2", "/dev/nvidia-caps/c12")),
    ]


@pytest.mark.parametrize(
    ("answers", "found"),
    [
        ((ONE, ONE), (ONE, ["gpu1", "gpu2"])),
        ((ONE, (125, "gpu2 has no image x:1")), (ONE, ["gpu1"])),
        (((1, "srun: error: Unable to allocate resources"), ONE), (ONE, ["gpu1", "gpu2"])),  # asked again at the start
        (((1, "srun: error: x"), (1, "srun: error: x")), ("", ["gpu1", "gpu2"])),
        (((125, "gpu1 has no image x:1"), (125, "gpu2 has no Docker")), "gpu1 has no image x:1; gpu2 has no Docker"),
        ((ONE, OTHER), "different images of that name"),
    ],
)
def test_images_are_looked_for_on_all_servers_before_anything_is_leased(
    host: FakeHost, answers: Any, found: Any
) -> None:
    told = [ImageNames(answer).text() if isinstance(answer, str) else answer for answer in answers]
    host.slurm.answers = {f"{ASKS}gpu{number} ": answer for number, answer in enumerate(told, 1)}
    if isinstance(found, str):
        with pytest.raises(LeaseError, match=found):
            images.find(host, "x:1", ["gpu1", "gpu2"])
    else:
        assert images.find(host, "x:1", ["gpu1", "gpu2"]) == found
    assert not host.slurm.submitted


CONFIG, MANIFEST, INDEX = ("sha256:" + letter * 64 for letter in "cde")
REPO, MIRROR = "registry.example.net/train", "mirror.example.net:5000/train"
MET = {"Cmd": ["bash"], "Env": ["PATH=/usr/bin"], "WorkingDir": "/work", "Entrypoint": None, "Labels": {}}


def inspected(
    identity: str, *repositories: str, layers: tuple[str, ...] = ("sha256:1",), **more: Any
) -> dict[str, Any]:
    """What `docker image inspect` says."""
    base = {"Architecture": "amd64", "Os": "linux", "RootFS": {"Type": "layers", "Layers": list(layers)}}
    return {"Id": identity, "RepoDigests": list(repositories), "Config": MET, **base, **more}


def look(said: dict[str, Any], folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> str:
    """What the helper answers on a server where Docker says so of the image."""
    (folder / "said.json").write_text(json.dumps([said]))
    program = folder / "docker"
    program.write_text(
        f'#!/bin/sh\n[ "$3" = --format ] && echo {said["Id"]} || cat {folder}/said.json\n',
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    monkeypatch.setattr("sys.argv", ["container", "look", "x:1"])
    assert container.main() == 0
    return str(capsys.readouterr().out)


#: Docker before 29, which keeps images by their configuration; later ones, or those with containerd's way.
OLD = inspected(CONFIG, f"{REPO}@{INDEX}")
NEW = inspected(INDEX, f"{REPO}@{INDEX}", Descriptor={"digest": INDEX})


@pytest.mark.parametrize(
    ("servers", "found"),
    [
        ((OLD, OLD), CONFIG),
        ((NEW, NEW), INDEX),
        ((OLD, NEW), f"{REPO}@{INDEX}"),
        ((NEW, OLD), f"{REPO}@{INDEX}"),
        ((OLD, inspected(CONFIG, f"{MIRROR}@{INDEX}")), CONFIG),
        # of several repositories; of one each; identity of one that is a digest of the other
        ((inspected(CONFIG, f"{MIRROR}@{MANIFEST}", f"{REPO}@{INDEX}"), NEW), f"{REPO}@{INDEX}"),
        ((inspected(CONFIG, f"{MIRROR}@{INDEX}"), NEW), "x:1"),
        ((OLD, inspected(INDEX, Descriptor={"digest": INDEX})), "x:1"),
        # one of another platform's manifest: pulled by the manifest there, by the index here, with the same content
        ((OLD, inspected(MANIFEST, f"{REPO}@{MANIFEST}")), "x:1"),
        # built or loaded, so that no registry has given a digest; later releases leave out what is empty
        ((inspected(CONFIG), inspected(MANIFEST, Config={"Cmd": ["bash"], "Env": ["PATH=/usr/bin"],
                                                         "WorkingDir": "/work"}, RepoDigests=None)), "x:1"),
        ((inspected(CONFIG), inspected(MANIFEST, layers=("sha256:2",))), None),
        ((inspected(CONFIG), inspected(MANIFEST, Architecture="arm64")), None),
        ((inspected(CONFIG), inspected(MANIFEST, Config={**MET, "Cmd": ["sh"]})), None),
        ((OLD, inspected(OTHER, f"{REPO}@{OTHER}", layers=("sha256:2",))), None),
        ((OLD, NEW, inspected(OTHER, f"{REPO}@{OTHER}", layers=("sha256:2",))), None),
    ],
)  # fmt: skip
def test_an_image_is_the_same_in_both_of_dockers_stores(
    host: FakeHost, servers: Any, found: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    names = [f"gpu{number}" for number in range(1, len(servers) + 1)]
    told = [look(said, tmp_path, monkeypatch, capsys) for said in servers]
    host.slurm.answers = {f"{ASKS}{name} ": answer for name, answer in zip(names, told, strict=True)}
    if found is None:
        with pytest.raises(LeaseError, match="different images of that name"):
            images.find(host, "x:1", names)
    else:
        assert images.find(host, "x:1", names) == (found, names)


def test_a_server_of_another_release_is_named_and_not_guessed_at(host: FakeHost) -> None:
    host.slurm.answers = {ASKS: f"{ONE}\ncontent@{OTHER}\n"}
    with pytest.raises(LeaseError, match=r"what gpu1 says of the image is not JSON: .*; run site\.yml"):
        images.find(host, "x:1", ["gpu1"])


def test_a_wish_for_a_container_is_read_as_it_was_written() -> None:
    told = [
        *wish_words("41", "train:3"),
        "--folder=/a b",
        "--environment=/proc/1/fd/3",
        "--tty",
        "--",
        "sh",
        "--",
        "-c",
    ]
    wish = ContainerWish("41", "train:3", "/a b", "/proc/1/fd/3", True, ("sh", "--", "-c"))
    assert parse_wish(told[4:]) == wish
    for words, said in (
        (["41", "train:3", "/", "no", "/e", "true"], "'41' is unknown; the caller is of another release"),
        (["--job=41", "--job=42", "--", "true"], "'--job' is unknown"),
        (["--privileged", "--", "true"], "'--privileged' is unknown"),
        (["--job=41", "--image=", "--folder=/", "--environment=/e", "--", "true"], "no --image"),
        (["--job=41", "--image=a", "--folder=/", "--environment=/e", "--"], "no program"),
        (["--job=41", "--image=a", "--folder=/", "--environment=/e"], "no program"),
        ([], "no --job, --image, --folder, --environment"),
    ):
        with pytest.raises(LeaseError, match=f"container run: {said}"):
            parse_wish(words)


def test_the_parent_of_a_program_passes_on_a_wish_that_the_helper_reads(tmp_path: Path) -> None:
    """HOLD runs by itself on the server; what it adds is read by another release's root perhaps."""
    told = json.loads(ranks.plan([lease_forms.endpoint(where="server")], "server", "", "train:3", ["MODEL"]))
    stand_in = [
        sys.executable,
        "-c",
        "import json, sys; print(json.dumps([sys.argv[1:], open(sys.argv[5][14:]).read()]))",
    ]
    told["helper"] = [*stand_in, *told["helper"][len(HELPER) :]]
    words = [sys.executable, "-I", "-c", ranks.HOLD, json.dumps(told), "sh", "=:", "--"]
    done = subprocess.run(words, cwd=tmp_path, env={"MODEL": "r50"}, capture_output=True, text=True, check=False)
    argv, environment = json.loads(done.stdout)
    wish = parse_wish(argv[1:])
    assert (wish.job, wish.image, wish.folder, wish.tty) == ("41", "train:3", str(tmp_path), False)
    assert wish.program == ("sh", ":", "--")
    assert json.loads(environment)["MODEL"] == "r50"


def test_what_is_no_name_asks_nobody(host: FakeHost) -> None:
    with pytest.raises(LeaseError, match="not the name of an image"):
        images.find(host, "--help", ["gpu1"])
    assert not host.slurm.commands


def test_here_the_engines_library_and_endpoint_are_put_into_the_container(
    docker: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(images.shutil, "which", lambda name: f"{tmp_path}/bin/docker" if name == "docker" else None)
    with pytest.raises(LeaseError, match="other:1: docker on this machine: Error: No such image"):
        images.here("other:1")
    found = images.here("there:1", ["MODEL"])
    monkeypatch.chdir(tmp_path)
    words = found.command(["python", "x.py"], {"LUPINE_SERVER": "10.0.0.1:1"}, [Path("/opt/engine/current")])
    assert words[-3:] == [ONE, "python", "x.py"]
    assert {"--env=LUPINE_SERVER", "--env=MODEL", "--volume=/opt/engine/current:/opt/engine/current:ro"} <= set(words)
    assert {f"--user={os.getuid()}:{os.getgid()}", f"--workdir={tmp_path}", "--network=host"} <= set(words)
    monkeypatch.setattr(images.shutil, "which", lambda _name: None)
    with pytest.raises(LeaseError, match="neither Podman nor Docker"):
        images.here("there:1")


@pytest.mark.parametrize("marked", [True, False])
def test_a_docker_that_does_not_answer_leaves_an_epilog_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, marked: bool
) -> None:
    """Slurm ends an Epilog after 120 s, and the end of its lease takes some of them."""
    asked: list[float] = []

    def hangs(*_words: str, timeout_s: float = container.DOCKER_S) -> None:
        asked.append(timeout_s)
        raise LeaseError(f"Docker did not answer within {timeout_s:.0f} s")

    monkeypatch.setattr(container, "docker", hangs)
    monkeypatch.setattr(container.shutil, "which", lambda _name: "/usr/bin/docker")
    monkeypatch.setattr(container.container_limits, "remove", lambda _job: None)
    host = FakeHost(folder=tmp_path)
    (host.run_dir / "41").mkdir(parents=True)
    if marked:
        (host.run_dir / "41" / container.MARK).touch()
    assert bool(container.remove(host, "41")) == marked
    assert 0 < sum(asked) <= 40
