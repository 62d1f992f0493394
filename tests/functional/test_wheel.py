"""The wheel: what it brings, and what an installed toolkit does from an empty folder, with no checkout anywhere."""

from __future__ import annotations

import json
import platform
import re
import shutil
import subprocess
import sys
import zipfile
from importlib.metadata import version
from pathlib import Path

import pytest
import yaml

from tests.functional.test_check_mode_per_os import inventory
from tests.support.installed import Installed, build_wheel, files, pack
from toolkit.engine import host_modules
from toolkit.engine.build import build_engine, missing_tools, source_hash
from validation.rules.release import release

pytestmark = pytest.mark.systems

REPO = Path(__file__).parents[2]
COLLECTION = "ansible_collections/elastic_ai/toolkit/"
#: Folders and files of the tree that an installed toolkit works with.
WANTED = ("engine", "inventories", "meta", "playbooks", "plugins", "roles", "stacks", "toolkit", "tools", "validation")
FILES = ("ansible.cfg", "galaxy.yml", "pyproject.toml", "site.yml", "LICENSE")
#: Nodes that nobody reaches: what is shown is that everything up to the login is there.
SITE = """
all:
  children:
    heads: {hosts: {head: {ansible_host: 192.0.2.1, fabric_ports: [{interface: fab0, address: 10.80.0.1/24}]}}}
    gpu_servers: {hosts: {gpu1: {ansible_host: 192.0.2.2, fabric_ports: [{interface: fab0, address: 10.80.0.2/24}]}}}
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(tmp_path_factory.mktemp("built"))


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    return Installed(wheel, tmp_path_factory.mktemp("installed"))


def names_of(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def tracked(*names: str) -> list[str]:
    return [name for name in files(*names) if (REPO / name).exists()]


def test_every_file_that_an_installed_toolkit_works_with_is_in_the_wheel(wheel: Path) -> None:
    names = names_of(wheel)
    code = ("toolkit/", "validation/")
    listed = tracked(*WANTED, *FILES)
    assert len(listed) > 1000
    missing = [name for name in listed if (name if name.startswith(code) else COLLECTION + name) not in names]
    assert missing == []


def test_nothing_else_is_in_the_wheel(wheel: Path) -> None:
    known = {*tracked(*WANTED, *FILES, "NOTICE"), "built.json"}
    inside = {name.removeprefix(COLLECTION) for name in names_of(wheel) if ".dist-info/" not in name}
    assert inside - known == set()


def test_a_link_of_the_tree_is_a_file_of_the_wheel(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        select = archive.read(f"{COLLECTION}playbooks/group_vars/all/select.yml")
    assert select == (REPO / "stacks/select.yml").read_bytes()


def test_two_builds_are_the_same_bytes_whatever_lies_about(wheel: Path, tmp_path: Path) -> None:
    """Nothing of an earlier build, of another umask, and of a site's own inventory gets into the wheel."""
    tree = tmp_path / "tree"
    shutil.copytree(wheel.parents[1] / "tree", tree, symlinks=True)
    for mine in ("build/lib/toolkit/old.py", "roles/base/__pycache__/x.pyc", "inventories/ours/hosts.yml"):
        (tree / mine).parent.mkdir(parents=True, exist_ok=True)
        (tree / mine).write_text("mine\n", encoding="utf-8")
    shutil.rmtree(tree / "elastic_ai_toolkit.egg-info", ignore_errors=True)
    assert pack(tree, tmp_path / "wheels", umask=0o077).read_bytes() == wheel.read_bytes()


@pytest.mark.rest
def test_sources_without_git_make_the_same_wheel(wheel: Path, tmp_path: Path) -> None:
    """`python -m build` makes an archive of the sources, and the wheel of that."""
    words = [sys.executable, "-m", "build", "--no-isolation", "-o", str(tmp_path), str(wheel.parents[1] / "tree")]
    subprocess.run(words, check=True, capture_output=True)
    made = next(tmp_path.glob("*.whl"))
    assert names_of(made) == names_of(wheel)
    assert made.read_bytes() == wheel.read_bytes()


def test_sources_that_lack_a_part_make_no_wheel(wheel: Path, tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    shutil.copytree(wheel.parents[1] / "tree", tree, symlinks=True, ignore=shutil.ignore_patterns(".git", "stacks"))
    with pytest.raises(subprocess.CalledProcessError):
        pack(tree, tmp_path / "wheels")


def test_the_installed_toolkit_says_what_it_is(installed: Installed) -> None:
    said = installed.run("toolkit", "--version")
    assert (said.returncode, said.stderr) == (0, "")
    head = subprocess.run(["git", "-C", str(REPO), "rev-parse", "HEAD"], capture_output=True, text=True, check=True)
    lines = said.stdout.splitlines()
    assert lines[0] == f"toolkit, version {release()}"
    assert lines[1].startswith(f"installed: {installed.collection}, commit {head.stdout[:12]}")
    assert lines[2] == f"Python {platform.python_version()}, ansible-core {version('ansible-core')}"


def test_deploy_checks_a_node_from_an_empty_folder(installed: Installed, tmp_path: Path) -> None:
    """With what comes from beside the roles: modules of leases that go to nodes, and the wheel of the probes."""
    hosts = inventory("ubuntu2404", tmp_path / "site", {})
    said = installed.run(
        "toolkit", "deploy", "--check", "-i", str(hosts), "--", "--tags", "remoting_client,acceptance",
        ANSIBLE_CONNECTION_PLUGINS=str(REPO / "tests/plugins/connection"),
    )  # fmt: skip
    assert said.returncode == 0, said.stderr
    assert re.match(r"node1  ok: would change .*remoting_client \d.*acceptance \d", said.stdout)
    log = Path(said.stderr.partition("log: ")[2].splitlines()[0]).read_text(encoding="utf-8")
    assert "[DEPRECATION" not in log


def test_every_playbook_of_the_wheel_is_one(installed: Installed) -> None:
    (installed.desk / "hosts.yml").write_text(SITE, encoding="utf-8")
    names = [f"elastic_ai.toolkit.{path.stem}" for path in sorted((installed.collection / "playbooks").glob("*.yml"))]
    assert {"elastic_ai.toolkit.site", "elastic_ai.toolkit.teardown"} < {*names}
    said = installed.run("ansible-playbook", "-i", "hosts.yml", "--syntax-check", *names)
    assert said.returncode == 0, said.stdout + said.stderr


def test_validate_plans_from_an_empty_folder(installed: Installed) -> None:
    (installed.desk / "hosts.yml").write_text(SITE, encoding="utf-8")
    said = installed.run("toolkit", "validate", "-i", "hosts.yml", "--fabric", "tcp10", "--dry-run")
    assert said.returncode == 0, said.stderr
    assert "tcp" in said.stdout


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (("lab", "status"), 2, "there is no lab 'lab'"),
        (("lab", "up", "--help"), 0, "Usage: toolkit lab up"),
        (("deploy",), 2, "no lab is up: toolkit lab up"),
        (("gpus",), 2, "name the pool by -i"),
        (("check",), 2, "no lab is up: toolkit lab up"),
        (("validate", "--fabric", "tcp10"), 2, "no lab is up: toolkit lab up"),
        (("fabrics", "show", "tcp10"), 0, "tcp10"),
    ],
)
def test_commands_without_an_inventory_know_the_labs(
    installed: Installed, words: tuple[str, ...], code: int, told: str, tmp_path: Path
) -> None:
    said = installed.run("toolkit", *words, ELASTIC_AI_LAB_DIR=str(tmp_path))
    assert said.returncode == code, said.stderr
    assert told in said.stdout + said.stderr


def test_nodes_get_the_same_wheel_from_a_checkout_and_from_the_installed_files(
    wheel: Path, installed: Installed, tmp_path: Path
) -> None:
    answers = []
    for program in (wheel.parents[1] / "tree/tools/build_wheel.py", installed.collection / "tools/build_wheel.py"):
        for changed in (True, False):
            cache = tmp_path / f"{len(answers) // 2}"
            words = [sys.executable, str(program), "--cache", str(cache)]
            answer = json.loads(subprocess.run(words, check=True, capture_output=True, text=True).stdout)
            assert answer.pop("changed") is changed
            answers.append((answer["sha256"], answer["sources"], Path(answer["wheel"])))
    assert len({answer[:2] for answer in answers}) == 1
    names = names_of(answers[0][2])
    assert {name.split("/")[0] for name in names if ".dist-info" not in name} == {"toolkit", "validation"}
    words = [sys.executable, "-m", "pip", "install", "-q", "--no-index", "--no-deps", "--no-compile"]
    subprocess.run([*words, "--target", str(tmp_path / "node"), str(answers[0][2])], check=True)
    said = subprocess.run(
        ["/usr/bin/python3", "-m", "validation.probes", "--help"],
        cwd="/", env={"PYTHONPATH": str(tmp_path / "node")}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert said.returncode == 0, said.stderr


def test_roles_find_the_modules_that_they_put_on_nodes(installed: Installed) -> None:
    asked = (
        "import sys; sys.path.insert(0, sys.argv[1]); from plugins.plugin_utils.project import python_sources; "
        "print(python_sources(sys.argv[1] + '/roles/remoting_client'))"
    )
    for collection, code in ((installed.collection, installed.packages), (REPO, REPO)):
        said = installed.run("python", "-c", asked, str(collection)).stdout.strip()
        assert said == str(code)
        for role in ("remoting_client", "remoting_server"):
            variables = yaml.safe_load((collection / f"roles/{role}/vars/main.yml").read_text(encoding="utf-8"))
            missing = [name for name in variables[f"__{role}_modules"] if not (Path(said) / name).is_file()]
            assert missing == []


def test_a_copy_that_is_not_whole_says_so(installed: Installed, tmp_path: Path) -> None:
    site = installed.collection / "site.yml"
    site.rename(tmp_path / "site.yml")
    try:
        said = installed.run("toolkit", "deploy", "-i", "hosts.yml")
    finally:
        (tmp_path / "site.yml").rename(site)
    assert said.returncode == 2
    assert (
        said.stderr == f"error: {site}: no such file, so this copy of the toolkit is not whole; install its wheel "
        "again, or run toolkit from a whole checkout\n"
    )


@pytest.mark.skipif(bool(missing_tools()), reason=f"no compiler here: {missing_tools()}")
def test_an_installed_toolkit_builds_the_same_engine(installed: Installed, tmp_path: Path) -> None:
    """Its C sources come with the collection; the relay and the kernels of programs are found too."""
    made = installed.run("toolkit", "engine", "build", "--release", "1.2.3", "--output", str(tmp_path / "e.tar.gz"))
    assert made.returncode == 0, made.stderr
    assert f"sha256: {build_engine(tmp_path / 'own.tar.gz', '1.2.3').sha256}" in made.stdout
    asked = (
        "import sys; from pathlib import Path; from toolkit.engine import build, local_build, host_modules; "
        "print(build.source_hash(), *(path.name for path in host_modules.sources())); "
        "local_build.compile_relay(Path(sys.argv[1]))"
    )
    said = installed.run("python", "-c", asked, str(tmp_path))
    assert said.returncode == 0, said.stderr
    assert said.stdout.split() == [source_hash(), *(path.name for path in host_modules.sources())]
    assert (tmp_path / "elastic-ai-relay").is_file()
