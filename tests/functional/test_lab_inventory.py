"""inventories/lab through the real Ansible: the lab that is up, and one error where there is none."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.lab_folder import environment, make_lab
from tests.support.warm import command
from toolkit.inventory import read_site
from toolkit.lab.inventory import RTT_MAX_US
from toolkit.lab_inventory import is_of_a_lab, listed_lab
from validation.model.load import ConfigError

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
NO_LAB = "no lab is up: toolkit lab up"


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder for labs."""
    folder = tmp_path / "state"
    monkeypatch.setenv("ELASTIC_AI_LAB_DIR", str(folder))
    return folder


def run(name: str, *arguments: str, env: dict[str, str], cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    words = [BIN / name, *arguments]
    return subprocess.run(words, cwd=cwd, env=env, capture_output=True, text=True, check=False, timeout=300)


def hosts_of(inventory: str, env: dict[str, str]) -> dict[str, dict[str, object]]:
    """Host -> its variables, as Ansible has them."""
    done = run("ansible-inventory", "-i", inventory, "--list", env=env)
    assert done.returncode == 0, done.stderr
    hosts: dict[str, dict[str, object]] = json.loads(done.stdout)["_meta"]["hostvars"]
    return hosts


@pytest.mark.parametrize("playbook", ["site.yml", "playbooks/teardown.yml"])
def test_without_a_lab_ansible_ends_with_one_error(state: Path, playbook: str) -> None:
    done = run("ansible-playbook", playbook, "-i", "inventories/lab", env=environment(state))
    assert done.returncode == 1
    assert (done.stdout, done.stderr) == ("", f"[ERROR]: {NO_LAB}\n")


def test_without_a_lab_the_toolkit_says_the_same(state: Path, tmp_path: Path) -> None:
    for words in (("validate", "--fabric", "tcp10"), ("deploy",), ("deploy", "-i", str(ROOT / "inventories/lab"))):
        for folder in (ROOT, tmp_path):
            done = command(folder, words, environment(state) | {"XDG_STATE_HOME": str(tmp_path)})
            assert (done.returncode, done.stdout, done.stderr) == (2, "", f"error: {NO_LAB}\n")
    assert not list(tmp_path.glob("elastic-ai-toolkit"))


def test_the_lab_that_is_up_is_listed_with_what_stands_beside_the_inventory(state: Path, tmp_path: Path) -> None:
    leg = make_lab("lab", 7)
    site = shutil.copytree(ROOT / "inventories/lab", tmp_path / "mine")
    (site / "group_vars").mkdir()
    (site / "group_vars/gpu_servers.yml").write_text('---\ntraining_slots: 5\nours: "{{ inventory_dir }}"\n')
    hosts = hosts_of("inventories/lab", environment(state, leg))
    assert set(hosts) == {"head", "client1", "gpu1", "gpu2"}
    assert hosts["gpu2"]["ansible_host"] == "10.77.7.14"
    key = state / "labs/lab/inventory/.lab/id_ed25519"
    assert hosts["gpu2"]["ansible_ssh_private_key_file"] == str(key)
    assert key.stat().st_mode & 0o777 == 0o600
    assert hosts["gpu2"]["lab_link"] == {"rate_gbps": 1.0, "rtt_max_us": RTT_MAX_US}
    mine = hosts_of(str(site), environment(state, leg))["gpu2"]
    assert (mine["training_slots"], mine["ours"]) == (2, "{{ inventory_dir }}"), "a host's own variable weighs more"
    listed = run("ansible-playbook", "site.yml", "-i", "inventories/lab", "--list-hosts", env=environment(state, leg))
    assert listed.returncode == 0, listed.stderr
    assert "hosts (4):" in listed.stdout


def test_a_plan_is_made_of_the_lab_from_any_folder(state: Path, tmp_path: Path) -> None:
    leg = make_lab("lab", 7)
    words = ("validate", "--fabric", "tcp10", "--dry-run", "--json")
    done = run("toolkit", *words, env=environment(state, leg), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert {node for m in json.loads(done.stdout)["plans"][0]["measurements"] for node in m["nodes"]} >= {
        "head",
        "gpu2",
    }


def test_of_several_labs_the_one_that_is_named_is_listed(state: Path, tmp_path: Path) -> None:
    one, two = make_lab("lab", 7), make_lab("other", 8, count=2)
    both = environment(state, one, two)
    assert len(hosts_of("inventories/lab", both)) == 4
    assert hosts_of(str(state / "labs/other/inventory"), both)["gpu1"]["ansible_host"] == "10.77.8.12"
    site = shutil.copytree(ROOT / "inventories/lab", tmp_path / "mine")
    with (site / "hosts.yml").open("a") as file:
        file.write("lab: other\n")
    assert set(hosts_of(str(site), both)) == {"head", "gpu1"}
    done = run("ansible", "all", "-i", "inventories/lab", "--list-hosts", env=environment(state, two))
    assert done.returncode == 1
    where = state / "labs/other/inventory"
    assert done.stderr == f"[ERROR]: no lab 'lab' is up: toolkit lab up; 'other' is up: -i {where}\n"
    done = run("ansible", "all", "-i", str(site), "--list-hosts", env=environment(state))
    assert done.stderr == "[ERROR]: no lab 'other' is up: toolkit lab up --name other\n"


def test_what_a_restart_of_the_machine_left_is_no_lab(state: Path) -> None:
    make_lab("lab", 7)
    done = run("ansible", "all", "-i", "inventories/lab", "--list-hosts", env=environment(state))
    assert (done.returncode, done.stderr) == (1, f"[ERROR]: {NO_LAB}\n")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("plugin: elastic_ai.toolkit.lab\nlabs: other\n", "hosts.yml:2: labs: unknown key"),
        ("plugin: elastic_ai.toolkit.lab\nlab: [other]\n", "hosts.yml:2: lab: "),
        ("plugin: elastic_ai.toolkit.lab\nlab: OTHER\n", "--name 'OTHER': use up to 21 lower-case letters"),
    ],
)
def test_a_fault_of_the_inventory_is_one_line(state: Path, tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "hosts.yml").write_text(text)
    done = run("toolkit", "validate", "--fabric", "tcp10", "-i", str(tmp_path), env=environment(state))
    assert done.returncode == 2
    assert words in done.stderr
    assert done.stderr.count("\n") == 1


def test_an_inventory_of_a_site_lists_no_lab(tmp_path: Path) -> None:
    assert listed_lab(ROOT / "inventories/xe9680") is None
    (tmp_path / "hosts.yml").write_text("plugin: netbox.netbox.nb_inventory\n")
    assert listed_lab(tmp_path) is None
    assert listed_lab(ROOT / "inventories/lab") == "lab"


def test_a_folder_without_the_inventory_is_told_where_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(
        ConfigError, match=rf"^inventories/lab: no such file; the lab's inventory is {ROOT}/inventories/lab$"
    ):
        read_site(Path("inventories/lab"))


def test_the_inventory_of_a_lab_itself_is_no_real_site(state: Path, tmp_path: Path) -> None:
    make_lab("other", 8, count=2)
    own = state / "labs/other/inventory"
    assert listed_lab(own) is None
    assert is_of_a_lab(own)
    assert is_of_a_lab(ROOT / "inventories/lab")
    assert not is_of_a_lab(ROOT / "inventories/xe9680")
    assert not is_of_a_lab(tmp_path)
