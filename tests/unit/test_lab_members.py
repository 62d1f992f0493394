"""Nodes that join a lab and leave it: which are refused, what addresses they get, and that the others keep theirs."""

import os
from pathlib import Path

import pytest
import yaml

from tests.support.lab_folder import make_lab
from toolkit.errors import LabError
from toolkit.lab import frameworks, members
from toolkit.lab.debrepo import Served
from toolkit.lab.lab import load
from toolkit.lab.members import grown, shrunk
from toolkit.lab.spec import inventory_dir, make_spec
from toolkit.node.listed import listing


def test_a_node_that_joins_gets_addresses_that_nobody_has_and_the_others_keep_theirs():
    before = make_spec("x", 3, 4, 1)
    after = grown(before, "gpu3")
    assert after.nodes[:4] == before.nodes
    assert [after.management_address(n) for n in after.nodes][-1] == "10.77.3.15"
    assert after.node("gpu3").group == "gpu_servers"
    assert grown(before, "client2").node("client2").group == "clients"


def test_the_place_of_a_node_that_left_is_free_again():
    spec = shrunk(make_spec("x", 3, 4, 1), "gpu1")
    assert [n.name for n in spec.nodes] == ["head", "client1", "gpu2"]
    assert grown(spec, "gpu3").node("gpu3").number == 3


@pytest.mark.parametrize("name", ["head", "head2", "gpu", "gpu03", "GPU3", "gpu3 ", "../gpu3", "disk1", ""])
def test_a_name_that_no_node_can_have_is_refused(name):
    with pytest.raises(LabError, match="gpuN or clientN"):
        grown(make_spec("x", 0, 4, 1), name)


def test_a_node_that_is_there_a_full_lab_and_one_of_machines_are_refused():
    with pytest.raises(LabError, match="has gpu1 already; it has head, client1, gpu1, gpu2"):
        grown(make_spec("x", 0, 4, 1), "gpu1")
    with pytest.raises(LabError, match="60 at most"):
        grown(make_spec("x", 0, 60, 1), "gpu99")
    with pytest.raises(LabError, match="virtual machines"):
        grown(make_spec("x", 0, 4, 1, vms=True), "gpu3")


def test_the_head_the_last_gpu_server_and_a_stranger_do_not_leave():
    with pytest.raises(LabError, match="is the head"):
        shrunk(make_spec("x", 0, 4, 1), "head")
    with pytest.raises(LabError, match="last GPU server"):
        shrunk(make_spec("x", 0, 2, 1), "gpu1")
    with pytest.raises(LabError, match="has no node 'gpu9'"):
        shrunk(make_spec("x", 0, 4, 1), "gpu9")


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A lab on the disk whose nodes are files: what a container runs in is not there."""
    monkeypatch.setenv("ELASTIC_AI_LAB_DIR", str(tmp_path))
    make_lab("some", 7)
    served = Served(tmp_path / "vendor", ("cuda",), tmp_path / "labs/some/vendor.asc", "AB12")
    monkeypatch.setattr(members, "is_up", lambda name: True)
    monkeypatch.setattr(members, "check_ready", lambda vms: None)
    monkeypatch.setattr(members, "base_image", lambda release, say: tmp_path)
    monkeypatch.setattr(members, "emulation", lambda image, title, say: None)
    monkeypatch.setattr(members, "serve_vendors", lambda spec, say: served)
    monkeypatch.setattr(members.nodes, "stop", lambda *_: None)
    monkeypatch.setattr(members.network, "namespaces_of", lambda name: [])
    (tmp_path / "labs/some/id_ed25519.pub").write_text("a key\n")
    return "some"


def _hosts(name: str) -> dict[str, list[str]]:
    groups = yaml.safe_load((inventory_dir(name) / "hosts.yml").read_text())["all"]["children"]
    return {group: list(members["hosts"]) for group, members in groups.items()}


def _start(spec, node, *_):
    folder = spec.node_dir(node) / "root/etc/ssh"
    folder.mkdir(parents=True)
    (folder / "ssh_host_ed25519_key.pub").write_text(f"ssh-ed25519 KEY {node.name}\n")


def test_the_inventory_follows_and_stays_as_old_as_the_lab(lab: str, monkeypatch):
    hosts = inventory_dir(lab) / "hosts.yml"
    os.utime(hosts, (1000, 1000))
    monkeypatch.setattr(members, "_start", _start)
    members.add(lab, "gpu3", print)
    assert _hosts(lab)["gpu_servers"] == ["gpu1", "gpu2", "gpu3"]
    assert hosts.stat().st_mtime == 1000  # or this lab's deployments would count as an earlier lab's
    members.remove(lab, "gpu1", print)
    assert _hosts(lab)["gpu_servers"] == ["gpu2", "gpu3"]
    assert hosts.stat().st_mtime == 1000
    assert [n.name for n in load(lab).nodes] == ["head", "client1", "gpu2", "gpu3"]


def test_a_node_that_does_not_come_up_leaves_the_lab_as_it_was(lab: str, monkeypatch):
    def fail(*_):
        raise LabError("node gpu3 did not answer ssh")

    before = load(lab)
    monkeypatch.setattr(members, "_start", fail)
    with pytest.raises(LabError, match="did not answer"):
        members.add(lab, "gpu3", print)
    assert load(lab) == before
    assert _hosts(lab)["gpu_servers"] == ["gpu1", "gpu2"]


def test_what_a_killed_add_left_goes_first(lab: str, monkeypatch):
    def killed(*_):
        raise SystemExit

    monkeypatch.setattr(members, "_start", killed)
    with monkeypatch.context() as patch:
        patch.setattr(members, "_without", lambda spec, node: spec)  # kill -9: nobody clears up
        with pytest.raises(SystemExit):
            members.add(lab, "gpu3", print)
    assert [n.name for n in load(lab).nodes][-1] == "gpu3"
    monkeypatch.setattr(members, "_start", _start)
    said: list[str] = []
    members.add(lab, "gpu3", said.append)
    assert "clearing what is left of it" in said[0]
    assert [n.name for n in load(lab).nodes].count("gpu3") == 1


def test_a_node_that_was_taken_out_of_the_inventory_is_not_listed_again_by_the_next_that_joins(lab: str, monkeypatch):
    monkeypatch.setattr(members, "_start", _start)
    listing(inventory_dir(lab), "gpu1").take_out()  # as `toolkit node remove` does
    members.add(lab, "gpu3", print)
    assert _hosts(lab)["gpu_servers"] == ["gpu2", "gpu3"]
    members.add(lab, "gpu1", print)  # the machine is made anew
    assert _hosts(lab)["gpu_servers"] == ["gpu2", "gpu3", "gpu1"]


def test_the_engine_of_a_lab_stays_when_a_node_joins_for_leases_may_run_on_it(lab: str, monkeypatch):
    monkeypatch.setattr(members, "_start", _start)
    hosts = inventory_dir(lab) / "hosts.yml"
    archive = inventory_dir(lab) / ".lab/elastic-ai-reference-0.1.0-older.tar.gz"
    archive.parent.mkdir(exist_ok=True)
    archive.write_bytes(b"an archive")
    named = {"remoting_engine_artifact": str(archive), "remoting_engine_sha256": "ab" * 32}
    tree = yaml.safe_load(hosts.read_text())
    tree["all"]["vars"] |= named
    hosts.write_text(yaml.safe_dump(tree))
    members.add(lab, "gpu3", print)
    assert named.items() <= yaml.safe_load(hosts.read_text())["all"]["vars"].items()
    assert archive.read_bytes() == b"an archive"


def test_a_node_that_joins_has_the_pytorch_of_its_lab(lab: str, monkeypatch):
    monkeypatch.setattr(members, "_start", _start)
    home = load(lab).dir
    frameworks.give(home, [], {"torch": "older"})
    frameworks.give(home, [], {"torch": "newer"})
    spec = members.add(lab, "client2", lambda _: None)
    script = spec.node_dir(spec.node("client2")) / "root" / "usr/local/bin/python"
    assert frameworks.TORCH.python_of("newer") in script.read_text()
