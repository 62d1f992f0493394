"""The lab's pure parts: names, addresses, rates, the machine's package sources, the inventory."""

import json
import shutil
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import yaml

from toolkit.errors import LabError
from toolkit.lab import host, image, inventory, network, nodes
from toolkit.lab import lab as labs
from toolkit.lab.debrepo import Served
from toolkit.lab.network import free_index
from toolkit.lab.sh import run
from toolkit.lab.sources import RELEASES, Release, distribution_sources, os_key, release_for, served, sources_for
from toolkit.lab.spec import counted_rate_bps, lab_dir, make_spec, node_groups
from toolkit.pool_policy import check_pool

DEB822 = """Types: deb deb-src
# a remark inside the stanza
URIs: http://mirror.example/debian
Suites: bookworm bookworm-updates
Components: main
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg

Types: deb
URIs: http://mirror.example/security
Suites: bookworm-security
Components: main

Types: deb
Enabled: no
URIs: http://off.example/debian
Suites: bookworm
Components: main

Types: deb
URIs: https://vendor.example/node
Suites: nodistro
Components: main
"""


def test_four_nodes_have_a_client_and_two_have_not():
    assert [n for n, _ in node_groups(4)] == ["head", "client1", "gpu1", "gpu2"]
    assert node_groups(2) == [("head", "heads"), ("gpu1", "gpu_servers")]


@pytest.mark.parametrize("count", [0, 1, 61])
def test_a_lab_size_out_of_range_is_refused(count):
    with pytest.raises(LabError, match="2 to 60"):
        node_groups(count)


@pytest.mark.parametrize("name", ["", "UPPER", "../x", "a" * 30, "1lab", "a-gpu1"])
def test_a_name_that_cannot_be_a_path_or_interface_is_refused(name):
    with pytest.raises(LabError, match="--name"):
        lab_dir(name)


def test_rate_out_of_range_is_refused():
    with pytest.raises(LabError, match="--rate"):
        make_spec("x", 0, 4, 0)


def test_counted_rate_makes_the_payload_that_of_a_wire():
    # A full packet of MTU 1500 takes 1538 bytes on the wire and 1514 in a queueing discipline.
    assert counted_rate_bps(1.0, mtu=1500) == round(1e9 * 1514 / 1538)


def test_addresses_of_one_lab_are_distinct():
    spec = make_spec("x", 3, 60, 1)
    addresses = [spec.management_address(n) for n in spec.nodes] + [spec.fabric_address(n) for n in spec.nodes]
    assert len(set(addresses)) == 120


def test_only_the_distributions_own_sources_reach_a_node(tmp_path: Path):
    parts = tmp_path / "sources.list.d"
    parts.mkdir()
    (parts / "debian.sources").write_text(DEB822)
    (parts / "cloud.list").write_text("deb https://vendor.example/apt cloud-sdk-bookworm main\n")
    text = distribution_sources("bookworm", tmp_path)
    assert "mirror.example/debian" in text
    assert "bookworm-security" in text
    assert "vendor.example" not in text
    assert "off.example" not in text
    assert "deb-src" not in text
    assert "remark" not in text


def test_one_line_sources_with_options(tmp_path: Path):
    (tmp_path / "sources.list").write_text(
        "# deb http://old.example/ jammy main\ndeb [arch=amd64 signed-by=/k.gpg] http://a.example/u jammy main\n"
        "deb http://a.example/u jammy-updates main\ndeb-src http://a.example/u jammy main\n"
    )
    lines = distribution_sources("jammy", tmp_path).splitlines()
    assert len(lines) == 2


def test_no_source_for_the_release_is_an_error(tmp_path: Path):
    with pytest.raises(LabError, match="trixie"):
        distribution_sources("trixie", tmp_path)


def test_sources_of_another_debian_release_come_from_the_machines_own(tmp_path: Path):
    (tmp_path / "sources.list.d").mkdir()
    (tmp_path / "sources.list.d/debian.sources").write_text(DEB822)
    text = sources_for(RELEASES["debian13"], RELEASES["debian12"], tmp_path)
    assert "Suites: trixie trixie-updates" in text
    assert "Suites: trixie-security" in text
    assert "bookworm" not in text
    assert text.count("Components: main contrib non-free non-free-firmware") == 2


def test_one_line_sources_of_another_debian_release(tmp_path: Path):
    (tmp_path / "sources.list").write_text(
        "deb [signed-by=/k.gpg] http://bookworm.example/debian bookworm main\n"
        "deb http://a.example/security bookworm-security main contrib\n"
    )
    lines = sources_for(RELEASES["debian13"], RELEASES["debian12"], tmp_path).splitlines()
    everything = "main contrib non-free non-free-firmware"
    assert lines == [
        f"deb [signed-by=/k.gpg] http://bookworm.example/debian trixie {everything}",
        f"deb http://a.example/security trixie-security {everything}",
    ]


def test_the_machines_own_sources_of_the_release_are_preferred(tmp_path: Path):
    (tmp_path / "sources.list").write_text(
        "deb http://old.example/debian bookworm main\ndeb http://new.example/debian trixie main\n"
    )
    text = sources_for(RELEASES["debian13"], RELEASES["debian12"], tmp_path)
    assert text.startswith("deb http://new.example/debian trixie main contrib")
    assert "old.example" not in text


def test_a_machine_of_another_distribution_cannot_make_debian_nodes(tmp_path: Path):
    (tmp_path / "sources.list").write_text("deb http://a.example/u noble main universe\n")
    ubuntu = Release("ubuntu", "24.04", "noble")
    with pytest.raises(
        LabError, match=r"--os debian12: this machine runs ubuntu 24.04 and has no apt source of debian"
    ):
        sources_for(RELEASES["debian12"], ubuntu, tmp_path)
    assert sources_for(ubuntu, ubuntu, tmp_path) == "deb http://a.example/u noble main universe\n"


def test_only_components_that_every_mirror_serves_are_asked_for():
    there = {"trixie": {"main", "contrib", "non-free"}, "trixie-security": {"main", "contrib"}}
    text = served(
        "Types: deb\nURIs: http://m.example/debian\nSuites: trixie\nComponents: main contrib non-free\n\n"
        "Types: deb\nURIs: http://m.example/s\nSuites: trixie-security\nComponents: main contrib non-free\n",
        lambda _uri, suite: there[suite],
    )
    assert text.count("Components: main contrib\n") == 2


def test_an_unknown_release_is_named_with_those_that_exist():
    with pytest.raises(LabError, match="there are debian12, debian13"):
        release_for("debian11")


def test_keys_of_tables():
    assert [os_key("debian 12"), os_key("ubuntu 24.04")] == ["debian12", "ubuntu2404"]


def test_a_taken_network_is_not_given_twice():
    first = free_index(set())
    assert free_index({first}) > first


def test_a_lab_does_not_own_what_belongs_to_one_with_a_longer_name():
    listed = ["eai-a", "eai-a-b", "eai-a-b-gpu1", "eai-a-client1", "eai-a-gpu12", "eai-ab"]
    assert network.namespaces_of("a", listed) == ["eai-a", "eai-a-client1", "eai-a-gpu12"]


def test_a_failing_command_says_which_and_why():
    with pytest.raises(LabError, match=r"ip netns delete no-such-namespace.*failed"):
        run(["ip", "netns", "delete", "no-such-namespace"])


def test_inventory_declares_the_lab():
    spec = make_spec("x", 0, 4, 2.5, "debian 13")
    served = Served(Path("/v"), ("cuda", "docker"), Path("/v/key.asc"), "AB12")
    document = inventory.inventory_document(spec, Path("/k"), Path("/h"), served, Path("/keys"))
    assert document["all"]["vars"]["docker_daemon_config"]["default-runtime"] == "lab-runc"
    assert document["all"]["vars"]["stack"]["os"] == "debian 13"
    assert document["all"]["vars"]["repos_fingerprints"] == {"cuda": "AB12", "docker": "AB12"}
    assert document["all"]["vars"]["elastic_ai_stand_ins"] == ["cuda", "docker"]
    assert document["all"]["vars"]["lab_link"]["rate_gbps"] == 2.5
    gpus = document["all"]["children"]["gpu_servers"]["hosts"]
    assert sorted(gpus) == ["gpu1", "gpu2"]
    assert yaml.safe_load(yaml.safe_dump(document)) == document


@pytest.mark.parametrize(("engine", "gpus"), [({"remoting_engine_artifact": "/a"}, 4), (None, None)])
def test_inventory_declares_the_emulated_gpus_that_the_lab_truly_has(engine: dict[str, str] | None, gpus: int | None):
    served = Served(Path("/v"), ("cuda", "docker"), Path("/v/key.asc"), "AB12")
    places = (Path("/k"), Path("/h"), served, Path("/keys"))
    groups = inventory.inventory_document(make_spec("x", 0, 4, 1.0), *places, engine)["all"]["children"]
    assert groups["gpu_servers"]["hosts"]["gpu1"].get("elastic_ai_emulated_gpus") == gpus
    assert all("elastic_ai_emulated_gpus" not in host for host in groups["clients"]["hosts"].values())


def test_who_leases_in_a_lab_takes_nothing_back_unless_asked_for():
    """The policy is one as any site has, of users whom every node has; where nobody leases there is none."""
    places = (Path("/k"), Path("/h"), Served(Path("/v"), ("cuda",), Path("/v/key.asc"), "AB12"), Path("/keys"))
    named = {"remoting_engine_artifact": "/a", "remoting_engine_sha256": "b"}

    def policy(count: int, engine: dict[str, str] | None) -> Any:
        return inventory.inventory_document(make_spec("x", 0, count, 1.0), *places, engine)["all"]["vars"].get(
            "slurm_pool"
        )

    assert policy(2, named) is None
    assert policy(4, None) is None
    pool = check_pool(policy(4, named))
    for user in image.USERS:
        first = next(name for name, users in pool.users.items() if user in users.users)
        assert pool.users[first].preempts == ()
    (urgent,) = (users for users in pool.users.values() if users.preempts)
    assert set(urgent.users) == {*image.USERS}
    assert pool.preemption.grace_s >= 60  # the servers look at their leases every half minute


def test_every_node_has_the_lab_s_users_with_the_same_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "etc/ssh").mkdir(parents=True)
    (tmp_path / "usr/sbin").mkdir(parents=True)
    (tmp_path / "usr/sbin/sshd").touch()
    ran: list[list[str]] = []
    monkeypatch.setattr(image, "run", ran.append)
    monkeypatch.setattr(image, "CA_FOLDER", tmp_path / "none")
    image._customise(tmp_path, "")
    added = {words[-1]: words[words.index("--uid") + 1] for words in ran if "useradd" in words}
    assert added == {user: str(number) for user, number in image.USERS.items()}
    assert all(words[:2] == ["chroot", str(tmp_path)] for words in ran)


def test_a_lab_of_another_release_of_the_toolkit_can_be_read(tmp_path, monkeypatch):
    monkeypatch.setenv("ELASTIC_AI_LAB_DIR", str(tmp_path))
    spec = make_spec("other", 7, 2, 1.0)
    written = asdict(spec) | {"later": True}
    written["nodes"] = [n | {"later": "x"} for n in written["nodes"]]
    spec.dir.mkdir(parents=True)
    (spec.dir / "spec.json").write_text(json.dumps(written))
    assert labs.load("other") == spec
    assert network.free_index(labs._taken()) != 7


def test_the_base_image_can_be_built_before_anything_of_ours_is_installed():
    root = Path(__file__).resolve().parents[2]
    words = [sys.executable, "-S", "-c", "import toolkit.lab.image"]  # -S: without what is installed
    done = subprocess.run(words, cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def _proc(root: Path, held: dict[int, int], limit: int) -> Path:
    """A /proc: process -> inotify instances that it holds."""
    (root / "sys/fs/inotify").mkdir(parents=True)
    (root / "sys/fs/inotify/max_user_instances").write_text(f"{limit}\n")
    for pid, count in held.items():
        (root / f"{pid}/fd").mkdir(parents=True)
        (root / f"{pid}/fd/0").symlink_to("/dev/null")
        for number in range(count):
            (root / f"{pid}/fd/{number + 3}").symlink_to("anon_inode:inotify")
    return root


@pytest.mark.parametrize(
    ("held", "nodes", "limit"), [({1: 1, 2: 3}, 4, 128), (dict.fromkeys(range(100, 158), 2), 4, 220), ({7: 9}, 30, 581)]
)
def test_a_lab_does_not_want_for_inotify_instances(tmp_path: Path, held: dict[int, int], nodes: int, limit: int):
    """58 agents of gpg held 116 of the 128 that root may have: not one node of a lab booted."""
    proc = _proc(tmp_path, held, 128)
    assert host.inotify_in_use(proc) == sum(held.values())
    host.raise_inotify(nodes, proc)
    assert int((proc / "sys/fs/inotify/max_user_instances").read_text()) == limit
    host.raise_inotify(0, proc)
    assert int((proc / "sys/fs/inotify/max_user_instances").read_text()) == limit, "it is never lowered"


@pytest.mark.parametrize(("name", "one", "most"), [("cpu.shares", 1024, 262144), ("cpu.weight", 100, 10000)])
def test_each_node_of_all_labs_has_a_programs_share_of_the_processors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, one: int, most: int
) -> None:
    """On a host without systemd labs are in one group, which had the share of one program for all of their nodes."""
    monkeypatch.setattr(nodes, "CGROUP", tmp_path)
    top = tmp_path / "cpu" / "elastic-ai-lab"
    for group in (top, top / "a", top / "b", *(top / lab / f"n{n}" for lab in "ab" for n in range(2))):
        group.mkdir(parents=True, exist_ok=True)
        (group / name).write_text(str(one))
    (tmp_path / "cpu/cgroup.procs").touch()

    def weights() -> list[int]:
        return [int((group / name).read_text()) for group in (top, top / "a", top / "b")]

    nodes._make_cgroups("a", "n1")
    assert weights() == [4 * one, 2 * one, 2 * one]
    assert (top / "a/n1" / name).read_text() == str(one)
    shutil.rmtree(top / "b/n1")  # as the kernel does, where a folder with files goes by rmdir
    nodes.remove_cgroups("b", "n1")
    assert weights() == [3 * one, 2 * one, one]
    for n in range(300):
        (top / "a" / f"m{n}").mkdir()
    nodes._make_cgroups("a", "n1")
    assert weights() == [most, most, one]
