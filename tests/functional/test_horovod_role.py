"""What role horovod computes on the controller, and its torchrun launcher without torch."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.errors import AnsibleFilterError
from jinja2 import Environment

from tests.support.node_modules import load
from tests.support.processes import command_line
from tests.support.warm import ansible

ROOT = Path(__file__).resolve().parents[2]
TORCHRUN = ROOT / "roles" / "horovod" / "files" / "torchrun.py"
VERSIONS = ROOT / "roles" / "horovod" / "files" / "versions.py"


horovod: Any = load("plugins/plugin_utils/horovod.py")
apt_sources_for = horovod.apt_sources_for
torchrun = load("roles/horovod/files/torchrun.py")

DEB822 = """# the distribution
Types: deb deb-src
URIs: http://mirror.example/debian
Suites: trixie trixie-updates
Components: main contrib non-free
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg

Types: deb
URIs: http://mirror.example/debian-security
Suites: trixie-security
Components: main
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg

Types: deb
URIs: http://mirror.example/debian
Suites: trixie-backports
Components: main
"""
ONE_LINE = """
deb [arch=amd64 signed-by=/usr/share/keyrings/k.gpg] http://mirror.example/debian bookworm main contrib # ours
deb-src http://mirror.example/debian bookworm main
deb http://elsewhere.example/tools stable main
"""


def test_mirrors_of_the_node_are_used_for_the_image_suite() -> None:
    text = apt_sources_for({"/etc/apt/sources.list.d/debian.sources": DEB822}, "trixie", "bookworm")
    first, second = text.strip().split("\n\n")
    assert "Suites: bookworm bookworm-updates" in first
    assert "Suites: bookworm-security" in second
    assert "Components: main\n" in first
    assert "Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg" in first
    assert "trixie" not in text
    assert "backports" not in text, "not every mirror has them"
    assert "deb-src" not in text


def test_one_line_sources_count_too() -> None:
    text = apt_sources_for({"/etc/apt/sources.list": ONE_LINE}, "bookworm", "bookworm")
    assert text == (
        "Types: deb\nURIs: http://mirror.example/debian\nSuites: bookworm\nComponents: main\n"
        "Signed-By: /usr/share/keyrings/k.gpg\n"
    )


def test_stanzas_as_ubuntu_installs_them_and_as_people_fold_them() -> None:
    """Ubuntu 24.04 lists its backports in the stanza of the suite itself."""
    ubuntu = (
        "Types: deb\nURIs: http://mirror.example/ubuntu/\nSuites: noble noble-updates noble-backports\n"
        "Components: main restricted universe multiverse\n"
        "Signed-By: /usr/share/keyrings/ubuntu-archive-keyring.gpg\n"
    )
    whole = apt_sources_for({"/etc/apt/sources.list.d/ubuntu.sources": ubuntu}, "noble", "noble")
    assert "Suites: noble noble-updates\nComponents: main universe\n" in whole
    folded = "Types:\n deb\nURIs:\n http://mirror.example/ubuntu/\nSuites:\n noble\n noble-updates\n"
    folded += "Components:\n main\n# more\n universe\nSigned-By:\n /usr/share/keyrings/ubuntu-archive-keyring.gpg\n"
    assert apt_sources_for({"/etc/apt/x.sources": folded}, "noble", "noble") == whole
    line = 'deb [signed-by="/usr/share/keyrings/k.gpg"] http://mirror.example/ubuntu noble main\n'
    assert apt_sources_for({"/etc/apt/x.list": line}, "noble", "noble").endswith(
        "\nSigned-By: /usr/share/keyrings/k.gpg\n"
    )


@pytest.mark.parametrize(
    "files",
    [
        {"/etc/apt/sources.list.d/x.sources": DEB822.replace("Types: deb", "Enabled: false\nTypes: deb")},
        {"/etc/apt/sources.list.d/x.sources": DEB822.replace("Types: deb", "Enabled: 0\nTypes: deb")},
        {},
        {"/etc/apt/sources.list.d/x.sources": DEB822.replace("Types: deb", "Enabled: no\nTypes: deb")},
        {"/etc/apt/sources.list.d/x.sources": "Types: deb\nURIs: http://vendor/\nSuites: ./\n"},
        {"/etc/apt/sources.list.d/x.sources.bak": DEB822},
    ],
)
def test_a_node_without_usable_sources_is_told_what_to_set(files: dict[str, str]) -> None:
    with pytest.raises(AnsibleFilterError, match="horovod_base"):
        apt_sources_for(files, "trixie", "bookworm")


def test_hosts_of_a_hostfile_and_of_the_command_line() -> None:
    assert torchrun.hosts_of("# ours\n10.0.0.1 slots=4\n10.0.0.2\n") == [("10.0.0.1", 4), ("10.0.0.2", 1)]
    assert torchrun.hosts_of("10.0.0.1:2,10.0.0.2:2") == [("10.0.0.1", 2), ("10.0.0.2", 2)]


def test_traffic_goes_over_the_interface_of_the_address() -> None:
    assert torchrun.interface_of("127.0.0.1") == "lo"
    assert torchrun.interface_of("192.0.2.77") == ""


def alive(mark: str) -> list[str]:
    return subprocess.run(["pgrep", "-f", mark], capture_output=True, text=True, check=False).stdout.split()


def ranks_of(mark: str) -> list[str]:
    """One that has just been started shows its parent's command line for a moment."""
    commands = {pid: command_line(pid) for pid in alive(mark)}
    return [pid for pid, words in commands.items() if words[1:2] == ["-c"] and "python" in words[0]]


@pytest.mark.parametrize(
    "end", ["launcher killed", "launcher interrupted", "leash killed", "program fails", "a rank dies"]
)
def test_ranks_end_with_whoever_started_them(tmp_path: Path, end: str) -> None:
    """`ssh` and torchrun are stood in for by scripts; processes, pipes and signals are real."""
    mark = f"98765.{os.getpid()}"
    ssh = tmp_path / "ssh"
    ssh.write_text('#!/bin/sh\nexec sh -c "$4"\n')
    ssh.chmod(0o755)
    package = tmp_path / "torch" / "distributed"
    elastic = package / "elastic" / "multiprocessing"
    elastic.mkdir(parents=True)
    for folder in (tmp_path / "torch", package, elastic.parent, elastic):
        (folder / "__init__.py").write_text("")
    (elastic / "api.py").write_text("class Std:\n    from_str = staticmethod(lambda text: text)\n")
    (package / "run.py").write_text(
        "import subprocess, sys, time\n"
        "def main(arguments):\n"
        "    looked = [word.partition('=')[2] for word in arguments if word.startswith('--monitor_interval=')]\n"
        f"    open({str(tmp_path / 'looked')!r}, 'w').write(' '.join(looked))\n"
        "    program = arguments[arguments.index('--no_python') + 1:]\n"
        "    ranks = [subprocess.Popen(program) for _ in range(2)]\n"
        "    while all(p.poll() is None for p in ranks):\n"
        "        time.sleep(0.05)\n"
        "    codes = [p.poll() for p in ranks]\n"
        "    sys.exit(next((abs(code) for code in codes if code), 0))\n"
    )
    code = "import sys; sys.exit(3)" if end == "program fails" else f"import time; time.sleep({mark})"
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "PYTHONPATH": str(tmp_path)}
    launcher = subprocess.Popen(
        [sys.executable, TORCHRUN, "-H", "127.0.0.1:2,127.0.0.1:2", "-c", code],
        env=environment,
        stdin=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        if end == "program fails":
            assert launcher.wait(30) == 3
            assert (tmp_path / "looked").read_text() == "0.1"  # by itself an older torchrun looks every 5 s
            return
        until = time.monotonic() + 30
        # two agents, and two ranks of each
        while not (len(alive(mark)) >= 7 and len(ranks := ranks_of(mark)) == 4):
            assert time.monotonic() < until
            time.sleep(0.1)
        if end == "a rank dies":
            os.kill(int(ranks[-1]), signal.SIGKILL)
        elif end == "leash killed":
            leash = subprocess.run(["pgrep", "-P", str(launcher.pid)], capture_output=True, text=True, check=True)
            os.kill(int(leash.stdout.split()[0]), signal.SIGKILL)
        else:
            os.kill(launcher.pid, signal.SIGKILL if end == "launcher killed" else signal.SIGINT)
        assert launcher.wait(30) != 0
        until = time.monotonic() + 10
        while alive(mark) and time.monotonic() < until:
            time.sleep(0.1)
        assert alive(mark) == []
    finally:
        launcher.kill()
        for pid in alive(mark):
            os.kill(int(pid), signal.SIGKILL)


def test_versions_are_told_where_nothing_is_installed() -> None:
    done = subprocess.run([sys.executable, "-I", VERSIONS], capture_output=True, text=True, check=True)
    for key in ("horovod", "torch", "openmpi", "nccl", "cudnn", "rdma_core", "abi", "os", "machine"):
        assert f'"{key}"' in done.stdout


def test_tensorflow_is_asked_in_a_process_without_torch(tmp_path: Path) -> None:
    """Both in one process fail in the image, where torch loads a library that TensorFlow's do not go with."""
    torch = "import types\n__version__ = '1.13.1'\nversion = types.SimpleNamespace(cuda=None)\n"
    tensorflow = (
        "import sys\nif 'torch' in sys.modules:\n    raise ValueError('Not a datatype')\n__version__ = '2.15.1'\n"
    )
    (tmp_path / "horovod").mkdir()
    for name, text in {
        "torch.py": torch + "backends = cuda = types.SimpleNamespace()\n",
        "tensorflow.py": tensorflow,
        "horovod/__init__.py": "__version__ = '0.28.1'\n",
        "horovod/torch.py": "import torch\nmpi_built = lambda: True\nnccl_built = lambda: 0\n",
        "horovod/tensorflow.py": "import tensorflow\nmpi_built = lambda: True\n",
    }.items():
        (tmp_path / name).write_text(text)
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run([sys.executable, VERSIONS], env=environment, capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    assert (found["torch"], found["horovod"], found["tensorflow"]) == ("1.13.1", "0.28.1", "2.15.1")


DOCKER = """#!/bin/sh
# What it was asked, and what it could read where.
echo "$*" >> {log}; echo "config $DOCKER_CONFIG" >> {log}
[ "$1" != login ] || (cat > {log}.password; touch "$DOCKER_CONFIG/config.json")
[ "$1" != pull ] || exit {code}
"""
PULL = """
- hosts: all
  gather_facts: false
  tasks:
    - ansible.builtin.include_tasks: {tasks}
      vars:
        horovod_image: registry.example.net:5000/training:1
        horovod_pulls: 20
        horovod_image_login: {{username: ops, password: se:cr et}}
"""


@pytest.mark.parametrize("code", [0, 1])
def test_a_login_for_the_pull_leaves_nothing_on_the_node(tmp_path: Path, code: int) -> None:
    """Whether the pull works or not: the password goes through stdin, shows nowhere, and the login is gone."""
    log, docker, play = tmp_path / "log", tmp_path / "bin" / "docker", tmp_path / "play.yml"
    docker.parent.mkdir()
    docker.write_text(DOCKER.format(log=log, code=code))
    docker.chmod(0o755)
    play.write_text(PULL.format(tasks=ROOT / "roles/horovod/tasks/pull.yml"))
    path = f"{docker.parent}:{os.environ['PATH']}"
    words = ["-i", "here,", "-c", "local", "-e", f"ansible_python_interpreter={sys.executable}", "-vvv", str(play)]
    ran = ansible("ansible-playbook", *words, PATH=path)
    assert (ran.returncode == 0) == (code == 0), ran.stdout
    login, config, pull, same = log.read_text().splitlines()
    assert login == "login --username ops --password-stdin registry.example.net:5000"
    assert pull == "pull --quiet registry.example.net:5000/training:1"
    assert (tmp_path / "log.password").read_text() == "se:cr et"
    assert "se:cr et" not in ran.stdout + ran.stderr + log.read_text()
    assert config == same
    assert not Path(config.removeprefix("config ")).exists()


def rendered(template: str, **variables: Any) -> str:
    """A template of the role, with the variables that it takes."""
    environment = Environment(trim_blocks=True, keep_trailing_newline=True)
    environment.filters |= {
        "quote": shlex.quote,
        "bool": bool,
        "hash": lambda text, kind: hashlib.new(kind, text.encode()).hexdigest(),
    }
    given = {
        "__horovod_etc": "/etc/elastic-ai/training",
        "__horovod_ports": [{"interface": "fab0", "address": "192.0.2.1"}],
        "__horovod_reference": "registry.example/image:1",
        "__horovod_rdma": False,
        "horovod_volumes": [],
        "horovod_ssh_port": 50000,
        "horovod_node": {"contents": {}},
    }
    text = (ROOT / "roles/horovod/templates" / template).read_text()
    return environment.from_string(text).render(**{**given, **variables})


@pytest.mark.parametrize("there", [(), ("nccl.conf",), ("nccl.conf", "ucx/ucx.conf")])
def test_containers_have_what_their_node_tells_nccl_and_ucx(tmp_path: Path, there: tuple[str, ...]) -> None:
    for name in there:
        (tmp_path / "etc" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "etc" / name).write_text("x")
    docker = tmp_path / "docker"
    docker.write_text('#!/bin/sh\necho "$*"\n')
    docker.chmod(0o755)
    script = rendered("training-container.j2")
    for path in ("/etc/nccl.conf ]", "nccl=/etc/nccl.conf", "/etc/ucx/ucx.conf ]"):
        assert script.count(path) == 1
        script = script.replace(path, path.replace("/etc", f"{tmp_path}/etc"))
    path = f"{tmp_path}:{os.environ['PATH']}"
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True, env={"PATH": path})
    own = "/etc/elastic-ai/training/nccl.conf"
    derived = f"{tmp_path}/etc/nccl.conf" if "nccl.conf" in there else own
    assert f"--volume {derived}:/etc/nccl.conf:ro" in done.stdout
    assert ("--volume /etc/ucx/ucx.conf:/etc/ucx/ucx.conf:ro" in done.stdout) == ("ucx/ucx.conf" in there)


def test_another_content_for_nccl_makes_a_new_container() -> None:
    same, other = ({"contents": {"/etc/nccl.conf": text}} for text in ("NCCL_IB_TC=106\n", "NCCL_IB_TC=104\n"))
    first = rendered("training-container.j2", horovod_node=same)
    assert first == rendered("training-container.j2", horovod_node=same)
    assert first != rendered("training-container.j2", horovod_node=other)


def test_launchers_leave_nccls_interface_to_each_nodes_own_file() -> None:
    """Of the environment one name, the launching node's, would hold on all of them."""
    assert "NCCL_SOCKET_IFNAME" not in rendered("elastic-ai-mpirun.j2")
    assert "NCCL_SOCKET_IFNAME" not in TORCHRUN.read_text()
    assert "\nNCCL_SOCKET_IFNAME==fab0\n" in rendered("nccl.conf.j2")
    assert "NCCL_SOCKET_IFNAME" not in rendered("nccl.conf.j2", __horovod_ports=[])


WHEELS = ["torch==2.14.1", "torchvision==0.29.1", "timm==1.0.31"]
NEWER = ["torch==2.15.0", "torchvision==0.29.2", "timm==1.0.31"]
#: By torch: its release of CUDA, and the compiler's.
COMPILERS = {WHEELS[0]: {"cuda-toolkit==13.0.3.0", "nvidia-cuda-nvcc==13.0.88"},
             NEWER[0]: {"cuda-toolkit==13.2.2", "nvidia-cuda-nvcc==13.2.86"}}  # fmt: skip
REQUIREMENT = re.compile(
    r"^([a-z0-9.-]+)==([^ ;]+)( ; [^\\]+)? \\\n((?:    --hash=sha256:[0-9a-f]{64}(?: \\)?\n)+)", re.MULTILINE
)


@pytest.mark.parametrize(
    ("wanted", "kind"),
    [(WHEELS, ""), (WHEELS, ".build"), (NEWER, ""), (NEWER, ".build"), (["tensorflow-cpu==2.15.1"], "")],
)
def test_every_wheel_of_the_releases_of_a_stack_has_its_checksums(wanted: list[str], kind: str) -> None:
    found = horovod.training_lock(wanted, kind=kind)
    text = Path(found["path"]).read_text()
    assert found["sha256"] == hashlib.sha256(text.encode()).hexdigest()
    rest = REQUIREMENT.sub("", text).strip()
    assert rest == "", "a line that is no requirement with its checksums"
    names = {f"{name}=={version}" for name, version, *_ in REQUIREMENT.findall(text)}
    assert set(wanted) <= names or kind
    assert not kind or COMPILERS[wanted[0]] <= names


def test_every_stack_that_names_torch_has_its_list() -> None:
    found = 0
    for path in (ROOT / "stacks").glob("*.yml"):
        sets = (yaml.safe_load(path.read_text()).get("stack_data") or {}).get("sets") or {}
        for one in sets.values():
            training = one.get("horovod") or {}
            if training.get("torch"):
                found += 1
                wanted = [f"{name}=={training[name]}" for name in ("torch", "torchvision", "timm")]
                assert horovod.training_lock(wanted)["path"], path
                assert horovod.training_lock(wanted, kind=".build")["path"], path
    assert found


def test_a_list_of_the_site_counts_alone_and_other_releases_have_none(tmp_path: Path) -> None:
    mine = tmp_path / "mine.lock"
    mine.write_text("x")
    assert horovod.training_lock(WHEELS, str(mine))["path"] == str(mine)
    assert horovod.training_lock(["torch==9.9.9"])["path"] == ""
    with pytest.raises(AnsibleFilterError, match=r"horovod_lock_build: /nowhere: No such file"):
        horovod.training_lock(WHEELS, "/nowhere", ".build")


RECORD, TAG = "/etc/image.json", "registry.example:5000/site/training:1"


def hosts_with(**digests: str) -> dict[str, Any]:
    def node(digest: str) -> dict[str, Any]:
        text = json.dumps({"reference": TAG, "digest": digest}) if digest else ""
        return {"horovod_node": {"contents": {RECORD: text}}}

    return {name: node(digest) for name, digest in digests.items()} | {"new": {}}


def test_a_tag_becomes_the_digest_that_nodes_have_on_record() -> None:
    one, other = f"sha256:{'1' * 64}", f"sha256:{'2' * 64}"
    digests = horovod.training_digests
    assert digests(["a", "b", "new"], hosts_with(a=one, b=""), RECORD, TAG) == [one]
    assert digests(["a", "b"], hosts_with(a=one, b=other), RECORD, TAG) == [one, other]
    assert digests(["a"], hosts_with(a=one), RECORD, "another:1") == []
    pinned = horovod.training_pinned
    assert pinned(TAG, [one]) == f"registry.example:5000/site/training@{one}"
    several = [f"mirror.example/x@{other}", f"registry.example:5000/site/training@{one}"]
    assert pinned(TAG, several) == f"registry.example:5000/site/training@{one}"
    assert pinned("ubuntu", [f"docker.io/library/ubuntu@{one}"]) == f"ubuntu@{one}"
    with pytest.raises(AnsibleFilterError, match="no digest is known of registry"):
        pinned(TAG, [])
