"""What Slurm is told about nodes, without a node."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from ansible.errors import AnsibleFilterError
from jinja2 import Environment

from tests.support.node_modules import ROOT, load, load_filters
from tests.support.package_indices import unrecorded

slurm = SimpleNamespace(**load_filters("slurm"), **load_filters("slurm_cores"))
code = load("plugins/plugin_utils/slurm.py")


def node(name: str, count: int = 4, kind: str = "v100", **more: Any) -> dict[str, Any]:
    gpus = slurm.slurm_gpus([], {"count": count, "type": kind}, True, False)
    base = {"host": name, "name": name.split(".")[0], "hostname": name.split(".")[0], "address": f"a-{name}"}
    topology = {"sockets": 1, "cores": 2, "threads": 1}
    return {**base, "topology": topology, "memory_mib": 1024, "gpus": gpus, "cgroups": True, **more}


def test_data_of_mariadb_are_of_others_where_somebody_else_has_a_database() -> None:
    """An installation may make `test`, as on EL; in a teardown it kept all of MariaDB's data on the node."""
    own = [f"/var/lib/mysql/{name}/db.opt" for name in ("mysql", "sys", "performance_schema", "slurm_acct_db", "test")]
    assert code.other_databases([*own, "/etc/slurm", "/var/lib/mysql"], "slurm_acct_db") == []
    for theirs in ("/var/lib/mysql/shop/db.opt", "/var/lib/mysql/test/orders.frm"):
        assert code.other_databases([*own, theirs], "slurm_acct_db") == [theirs.split("/")[4]]
    assert code.other_databases(own, "another") == ["slurm_acct_db"]


def test_a_teardown_keeps_the_folders_of_a_slurm_that_was_taken_over() -> None:
    """With its slurm.conf, whose original was put back just before."""
    ours = {"original": False, "package": "", "sha256": ""}
    files = {"/etc/slurm/gres.conf": ours, "/etc/munge/munge.key": {**ours, "original": True}}
    assert code.slurm_taken_over("") == code.slurm_taken_over(json.dumps({"files": files})) == []
    of_a_package = {**files, "/etc/slurm/slurm.conf": {**ours, "original": True, "package": "slurm"}}
    assert code.slurm_taken_over(json.dumps({"files": of_a_package})) == [], "it comes and goes with EPEL's package"
    theirs = {**files, "/etc/slurm/slurm.conf": {**ours, "original": True}}
    assert code.slurm_taken_over(json.dumps({"files": theirs})) == ["/etc/slurm/slurm.conf"]
    ledgers = {"packages": "/l/packages.json", "files": "/l/files.json"}
    contents = {"/l/packages.json": "{}", "/l/files.json": json.dumps({"files": theirs})}
    node = {"files": ["/etc/slurm", "/var/log/slurm"], "contents": contents}
    gone = load("plugins/plugin_utils/slurm_node.py").slurm_data_left
    assert gone(node, node["files"], ledgers, "slurm_acct_db") == []


@pytest.mark.parametrize(("system", "goes"), [("debian12", True), ("el9", False), ("unknown", False)])
def test_a_teardown_takes_the_folder_of_mysql_only_where_mariadbs_packages_have_it(system: str, goes: bool) -> None:
    data = yaml.safe_load((ROOT / "roles/slurm/vars/main.yml").read_text(encoding="utf-8"))
    systems = {"debian12": data["__slurm_debian"], "el9": data["__slurm_systems"]["el9"]}
    shown = Environment().from_string(str(data["__slurm_leftovers"])).render(__slurm_systems=systems, __slurm_os=system)
    assert ("'/etc/mysql'" in shown) == goes
    assert "'/var/lib/mysql'" in shown


@pytest.mark.parametrize(
    ("cpus", "threads", "package", "wanted"),
    [
        (112, "0,56", "0-27,56-83", {"sockets": 2, "cores": 28, "threads": 2}),
        (8, "0", "0-7", {"sockets": 1, "cores": 8, "threads": 1}),
        # A container that may use 2 of the machine's 56 threads.
        (2, "0,28", "0-55", {"sockets": 1, "cores": 2, "threads": 1}),
        (4, "", "", {"sockets": 1, "cores": 4, "threads": 1}),
    ],
)
def test_topology_of_real_machines_and_of_containers(
    cpus: int, threads: str, package: str, wanted: dict[str, int]
) -> None:
    assert slurm.slurm_topology(cpus, threads, package) == wanted


def test_memory_leaves_room_so_that_a_kernel_update_does_not_drain_the_node() -> None:
    assert slurm.slurm_memory_mib("MemTotal:  131072000 kB\nMemFree: 1 kB\n") == 121600
    assert slurm.slurm_memory_mib("MemTotal:  131060000 kB\n") == 121344
    with pytest.raises(AnsibleFilterError, match="MemTotal"):
        slurm.slurm_memory_mib("")


@pytest.mark.parametrize(
    ("model", "kind"),
    [("Tesla V100 SXM2 16GB", "v100"), ("H200 SXM 141GB", "h200"), ("L40S", "l40s"), ("NVIDIA 0x9999", "id9999")],
)
def test_class_of_gpu(model: str, kind: str) -> None:
    assert slurm.slurm_gpus([{"model": model}], {}, False, False)["type"] == kind


def test_gpus_on_the_bus_come_before_declared_ones_and_a_containers_bus_is_not_its_own() -> None:
    found = [{"model": "Tesla V100 SXM2 16GB"}] * 2
    real = slurm.slurm_gpus(found, {"count": 4, "type": ""}, False, False)
    assert (real["count"], real["type"], real["files"], real["stand_in"]) == (
        2,
        "v100",
        ["/dev/nvidia0", "/dev/nvidia1"],
        False,
    )
    assert slurm.slurm_gpus(found, {}, False, True)["autodetect"] == "nvml"
    inside = slurm.slurm_gpus(found, {"count": 1, "type": "T4"}, True, True)
    assert (inside["count"], inside["type"], inside["stand_in"], inside["autodetect"]) == (1, "t4", True, "off")
    assert slurm.slurm_gpus([], {}, False, True) == {
        "count": 0,
        "type": "",
        "files": [],
        "stand_in": False,
        "autodetect": "off",
    }


def test_two_classes_in_one_node_are_refused_unless_a_type_is_given() -> None:
    mixed = [{"model": "A40"}, {"model": "L40S"}]
    with pytest.raises(AnsibleFilterError, match=r"a40, l40s.*slurm_gpus"):
        slurm.slurm_gpus(mixed, {}, False, False)
    assert slurm.slurm_gpus(mixed, {"type": "mixed"}, False, False)["count"] == 2


def test_a_fleet_of_equal_nodes_is_one_line() -> None:
    cluster = slurm.slurm_cluster(
        [node(f"gpu{i}") for i in range(1, 1001)], [], [f"gpu{i}" for i in range(1, 1001)], 140
    )
    assert len(cluster["node_lines"]) == 1
    assert cluster["node_lines"][0].startswith("NodeName=gpu1,gpu2,gpu3,")
    assert "Gres=gpu:v100:4,shard:560 State" in cluster["node_lines"][0]
    assert cluster["memory_per_cpu_mib"] == 512
    # What every node is sent stays small.
    assert sum(len(line) for line in cluster["node_lines"] + cluster["gres_lines"]) < 50_000


def test_classes_are_partitions_and_gres_by_file_or_by_nvml() -> None:
    real = slurm.slurm_gpus([{"model": "H100 SXM5 80GB"}] * 8, {}, False, True)
    nodes = [node("gpu1"), node("gpu2", gpus=real), node("cpu1", 0)]
    cluster = slurm.slurm_cluster(nodes, [], ["gpu1", "gpu2", "cpu1"], 20)
    assert cluster["gres_lines"] == [
        "AutoDetect=off",
        "NodeName=gpu1 Name=gpu Type=v100 File=/var/lib/elastic-ai/stand-in-gpus/gpu[0-3]",
        "NodeName=gpu1 Name=shard Count=80",
        "NodeName=gpu2 AutoDetect=nvml Name=gpu Type=h100 Count=8",
        "NodeName=gpu2 Name=shard Count=160",
    ]
    assert [line.split(" Default")[0].split(" Max")[0] for line in cluster["partitions"].values()] == [
        "PartitionName=all Nodes=cpu1,gpu1,gpu2",
        "PartitionName=h100 Nodes=gpu2",
        "PartitionName=v100 Nodes=gpu1",
    ]
    assert "Gres" not in next(line for line in cluster["node_lines"] if "cpu1" in line)


def dell(sockets: int = 2, cores: int = 4, numa_of: Any = lambda cpu: cpu % 2) -> dict[str, str]:
    """sysfs of a server whose firmware numbers processors by turns: even ones on socket 0, odd ones on socket 1."""
    count = sockets * cores
    texts = {}
    nodes: dict[int, list[str]] = {}
    for cpu in range(2 * count):  # the second thread of core n is n + count
        folder = f"/sys/devices/system/cpu/cpu{cpu}/topology"
        texts[f"{folder}/thread_siblings_list"] = f"{cpu % count},{cpu % count + count}\n"
        texts[f"{folder}/physical_package_id"] = f"{cpu % sockets}\n"
        nodes.setdefault(numa_of(cpu), []).append(str(cpu))
    return texts | {f"/sys/devices/system/node/node{n}/cpulist": ",".join(cpus) for n, cpus in nodes.items()}


def on_numa(*nodes: int) -> list[dict[str, Any]]:
    return [{"model": "H100 SXM5 80GB", "address": f"0000:{n:02x}:00.0", "numa_node": of} for n, of in enumerate(nodes)]


def test_a_gpu_is_given_with_the_cores_of_its_socket_in_slurms_own_numbers() -> None:
    gpus = on_numa(0, 0, 1, 1)
    cores = slurm.slurm_gpu_cores(dell(), gpus, 16)
    assert cores == ["0-3", "0-3", "4-7", "4-7"]
    seen = node("gpu1", gpus=slurm.slurm_gpus(gpus, {}, False, False, cores))
    assert slurm.slurm_cluster([seen], [], ["gpu1"], 0)["gres_lines"] == [
        "AutoDetect=off",
        "NodeName=gpu1 Name=gpu Type=h100 File=/dev/nvidia[0-1] Cores=0-3",
        "NodeName=gpu1 Name=gpu Type=h100 File=/dev/nvidia[2-3] Cores=4-7",
    ]
    assert "cores" not in slurm.slurm_gpus(gpus, {}, False, True, cores)  # NVML tells Slurm itself
    # Two NUMA nodes on each socket (sub-NUMA clustering), and a driver that numbers the GPUs in another order.
    halves = dell(numa_of=lambda cpu: cpu % 4)
    told = {f"/proc/driver/nvidia/gpus/0000:0{n}:00.0/information": f"Device Minor: \t {3 - n}\n" for n in range(4)}
    assert slurm.slurm_gpu_cores({**halves, **told}, on_numa(0, 2, 1, 3), 16) == ["6-7", "4-5", "2-3", "0-1"]


def test_cores_are_left_out_where_they_are_not_known() -> None:
    assert slurm.slurm_gpu_cores(dell(), on_numa(0, -1), 16) == []
    assert slurm.slurm_gpu_cores(dell(), on_numa(0, 1), 8) == []  # not all processors may be used
    assert slurm.slurm_gpu_cores(dell(numa_of=lambda cpu: 0), on_numa(0, 0), 16) == []  # one NUMA node: no choice
    assert slurm.slurm_gpu_cores({}, [], 4) == []
    told = {"/proc/driver/nvidia/gpus/0000:00:00.0/information": "Device Minor: 1\n"}
    assert slurm.slurm_gpu_cores({**dell(), **told}, on_numa(0, 1), 16) == []  # one number for two GPUs


def test_without_shards_whole_gpus_only() -> None:
    cluster = slurm.slurm_cluster([node("gpu1")], [], ["gpu1"], 0)
    assert "shard" not in " ".join(cluster["node_lines"] + cluster["gres_lines"])


def test_a_node_that_this_run_does_not_reach_stays_as_it_was_and_one_that_left_the_inventory_goes() -> None:
    recorded = [node("gpu1", memory_mib=2048), node("gpu2"), node("gone")]
    cluster = slurm.slurm_cluster([node("gpu1")], recorded, ["gpu1", "gpu2", "gpu3"], 140)
    assert [n["name"] for n in cluster["nodes"]] == ["gpu1", "gpu2"]
    assert cluster["nodes"][0]["memory_mib"] == 1024
    assert cluster["unknown"] == ["gpu3"]
    assert "gone" not in " ".join(cluster["node_lines"])


def test_one_node_without_cgroups_decides_for_all() -> None:
    nodes = [node("gpu1"), node("gpu2", cgroups=False)]
    assert slurm.slurm_cluster(nodes, [], ["gpu1", "gpu2"], 0)["cgroups"] is False
    assert slurm.slurm_cluster([], [], [], 0)["cgroups"] is False


def test_two_hosts_of_one_short_name_are_refused() -> None:
    with pytest.raises(AnsibleFilterError, match=r"share a short name.*gpu1"):
        slurm.slurm_cluster([node("gpu1.a"), node("gpu1.b")], [], ["gpu1.a", "gpu1.b"], 0)


def test_a_host_name_that_is_not_the_inventorys_is_told() -> None:
    cluster = slurm.slurm_cluster([node("gpu1", hostname="r1u7")], [], ["gpu1"], 0)
    assert "NodeHostname=r1u7" in cluster["node_lines"][0]


def packages_of(system: str) -> set[str]:
    tables = yaml.safe_load((Path(__file__).parents[2] / "roles/slurm/vars/main.yml").read_text())
    entry = tables["__slurm_systems"][system]
    if isinstance(entry, str):  # a template over the tables of Debian
        entry = tables["__slurm_t64" if "__slurm_t64" in entry else "__slurm_debian"]
    return {name for names in entry["packages"].values() for name in names}


@pytest.mark.parametrize("system", ["debian12", "debian13", "ubuntu2204", "ubuntu2404", "el9"])
def test_every_package_name_is_one_that_the_system_has(system: str) -> None:
    names = packages_of(system)
    assert len(names) >= 7
    assert unrecorded("epel" if system == "el9" else "distribution", system, names) == []


@pytest.mark.parametrize(
    ("node", "fenced"),
    [({}, "yes"), ({"gpus": {"stand_in": False}}, "yes"), ({"gpus": {"stand_in": True}}, "no")],
)
def test_null_devices_are_not_fenced_off(node: dict[str, Any], fenced: str) -> None:
    """Seen on machines: a job without a GPU could not open /dev/null, which has the stand-ins' device number."""
    template = (Path(__file__).parents[2] / "roles/slurm/templates/cgroup.conf.j2").read_text(encoding="utf-8")
    lines = Environment(autoescape=False, trim_blocks=True).from_string(template).render(slurm_node=node).splitlines()
    assert f"ConstrainDevices={fenced}" in lines
