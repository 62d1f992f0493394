"""What roles decide of a node and say of it: by functions, one role after the other."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml
from ansible.errors import AnsibleFilterError

from tests.support.node_modules import ROOT, load

chosen = load("plugins/plugin_utils/chosen.py").chosen
driver_missing = load("plugins/plugin_utils/driver.py").driver_missing
gpudirect_judged = load("plugins/plugin_utils/gpudirect.py").gpudirect_judged
ofed_judged = load("plugins/plugin_utils/ofed.py").ofed_judged
slurm = load("plugins/plugin_utils/slurm_node.py")
training = load("plugins/plugin_utils/training_role.py")
reboot = load("plugins/plugin_utils/reboot.py")
engine_refused = load("plugins/plugin_utils/remoting.py").engine_refused
preflight_image_mib = load("plugins/plugin_utils/preflight.py").preflight_image_mib
H100 = {"vendor": "0x10de", "device": "0x2330", "class": "0x030200", "address": "0000:3b:00.0", "numa_node": 0}


def test_a_table_of_conditions_takes_what_holds_in_its_order() -> None:
    table = [{"take": ["a"]}, {"when": False, "take": ["b"]}, {"when": True, "take": ["c", "d"]}]
    assert chosen(table) == ["a", "c", "d"]
    assert chosen([]) == []


@pytest.mark.parametrize("when", ["false", "yes", "", 0, None, []])
def test_a_condition_that_is_neither_true_nor_false_is_refused(when: object) -> None:
    with pytest.raises(AnsibleFilterError, match="neither true nor false"):
        chosen([{"when": when, "take": ["a"]}])


@pytest.mark.parametrize(
    ("container", "loaded", "waits", "why"),
    [
        (False, True, False, []),
        (False, True, True, ["x, the driver waits for a reboot"]),
        (False, False, False, ["x, the driver's kernel module is not loaded"]),
        (True, True, True, ["x, a container has no kernel modules of its own"]),
    ],
)
def test_why_something_that_needs_the_driver_does_not_run(
    container: bool, loaded: bool, waits: bool, why: list[str]
) -> None:
    node = {"in_container": container, "modules": {"nvidia": {"loaded": loaded}}}
    assert driver_missing(node, "x", waits) == why


def gpudirect(node: dict[str, Any], driver: dict[str, Any] | None = None, **options: Any) -> dict[str, Any]:
    bare = {
        "in_container": False,
        "pci": [H100],
        "files": {},
        "kernel": "6.1.0",
        "contents": {"/proc/driver/nvidia/version": ""},
        "modules": {"nvidia": {"version": ""}},
    }
    given = {"way": "auto", "acs_off": False, "guest": False, **options}
    ofed = given.pop("ofed", {})
    judged: dict[str, Any] = gpudirect_judged({**bare, **node}, driver or {}, ofed, **given)
    return judged


def test_memory_of_gpus_goes_by_what_the_driver_is() -> None:
    assert gpudirect({}, {"flavour": "open", "versions": {"driver": "580.126.20"}})["way"] == "dma-buf"
    read = {"contents": {"/proc/driver/nvidia/version": "NVIDIA UNIX Open Kernel Module for x86_64"}}
    assert gpudirect(read)["way"] == "dma-buf", "what is loaded tells where role nvidia_driver did not run"
    proprietary = {"flavour": "proprietary", "versions": {"driver": "580.126.20"}}
    assert gpudirect({}, proprietary)["way"] == "none"
    assert gpudirect({"files": {"/usr/bin/ofed_info": ""}}, proprietary)["way"] == "nvidia-peermem"
    assert gpudirect({}, proprietary, ofed={"provider": "doca"})["way"] == "nvidia-peermem"
    assert gpudirect({}, way="nvidia-peermem")["why"] == "set by gpudirect_way"


def test_gpudirect_says_what_does_not_apply() -> None:
    assert gpudirect({"pci": []}, way="dma-buf")["not_applicable"] == ["GPUDirect RDMA: no NVIDIA GPU on the PCI bus"]
    inside = gpudirect({"in_container": True}, acs_off=True)
    assert inside["not_applicable"] == [
        "GPUDirect RDMA: a container uses what its host has loaded",
        "ACS off: only on bare metal, this node is a container",
    ]
    guest = gpudirect({}, way="dma-buf", acs_off=True, guest=True)
    assert guest["not_applicable"] == [
        "ACS off: only on bare metal, this node is a virtual machine whose hypervisor owns the bridges"
    ]
    assert (guest["acs_off"], gpudirect({}, way="dma-buf", acs_off=True)["acs_off"]) == (False, True)


def ofed(node: dict[str, Any] | None = None, **options: Any) -> dict[str, Any]:
    bare = {
        "in_container": False,
        "kernel": "6.1.0",
        "modules_loadable": True,
        "modules": {"rdma_rxe": {"available": True}},
        "units": {},
        "files": {},
    }
    given = {"provider": "inbox", "profile": "doca-ofed", "soft_roce": False, "opensm": False}
    judged: dict[str, Any] = ofed_judged(
        {**bare, **(node or {})}, **{**given, "soft_roce_ports": (), "guids": (), **options}
    )
    return judged


def test_units_of_rdma_follow_ports_and_provider() -> None:
    assert ofed()["units"] == []
    assert ofed(provider="doca")["units"] == ["openibd.service"]
    assert ofed(provider="doca", profile="doca-ofed-userspace")["units"] == []
    there = {
        "units": {"elastic-ai-rxe@e0.service": {"enabled": False}},
        "files": {"/etc/systemd/system/multi-user.target.wants/elastic-ai-opensm@0x1.service": ""},
    }
    both = ofed(there, soft_roce=True, soft_roce_ports=["e0"], opensm=True, guids=["0x1"])
    assert both["units"] == ["elastic-ai-opensm@0x1.service", "elastic-ai-rxe@e0.service"]
    assert both["units_off"] == ["elastic-ai-rxe@e0.service"]


def test_rdma_says_what_does_not_apply() -> None:
    assert ofed()["not_applicable"] == []
    assert ofed({"in_container": True}, provider="doca")["not_applicable"] == [
        "RDMA kernel modules: a container uses those of its host",
        "drivers of DOCA-OFED: its user space alone is of use in a container",
    ]
    unloadable = ofed({"modules_loadable": False}, soft_roce=True, soft_roce_ports=["e0"], opensm=True)
    assert unloadable["not_applicable"] == [
        "RDMA kernel modules: none of the running kernel 6.1.0 can be loaded",
        "soft-RoCE: this node cannot load rdma_rxe",
        "subnet manager: no InfiniBand port on this node",
    ]
    assert unloadable["units"] == []


SYSTEM = {"job_submit": True, "shards": True}
CGROUP = {"/sys/fs/cgroup/cgroup.controllers": ""}


def slurm_node(kind: str = "compute", files: dict[str, str] | None = None, **options: Any) -> dict[str, Any]:
    node = {"in_container": options.pop("in_container", False), "files": CGROUP if files is None else files}
    system = options.pop("system", SYSTEM)
    given = {"os_key": "debian12", "gpus": None, "shards": 0, "sysfs_root": "/sys", "database": "/db"}
    judged: dict[str, Any] = slurm.slurm_judged(node, kind, system, **{**given, **options})
    return judged


def test_jobs_of_nodes_that_compute_are_confined_or_it_is_said_why() -> None:
    assert slurm_node()["unconfined"] == []
    assert slurm_node(files={})["unconfined"] == ["jobs are not confined by cgroups: this node has no cgroup v2"]
    inside = slurm_node(files={}, in_container=True, os_key="ubuntu2204")
    assert inside["not_applicable"] == [
        "jobs are not confined by cgroups: a container does not own its control groups",
        "jobs are not confined by cgroups: Slurm of ubuntu2204 does not know cgroup v2",
    ]
    assert slurm_node("client", files={}, in_container=True)["not_applicable"] == []


def test_gpus_that_are_not_there_or_stand_ins_are_said() -> None:
    real = {"stand_in": False, "files": ["/dev/nvidia0", "/dev/nvidia1"]}
    waiting = slurm_node(files={**CGROUP, "/dev/nvidia0": ""}, gpus=real)
    assert waiting["devices_missing"] == ["/dev/nvidia1"]
    assert waiting["not_applicable"] == ["slurmd waits for the driver: /dev/nvidia1 not there"]
    null = slurm_node(gpus={"stand_in": True, "files": ["/x/gpu0"]}, sysfs_root="/planted")
    assert null["not_applicable"] == ["GPUs are not fenced off from jobs without them: they are null devices"]
    assert null["stand_ins"] == [
        "GPUs declared in the inventory (null devices)",
        "hardware (sysfs root /planted)",
    ]
    assert (null["missing"]["gpus"], waiting["missing"]["gpus"]) == (["/x/gpu0"], [])


def test_what_slurm_of_a_system_lacks_is_said_where_it_matters() -> None:
    old = {"job_submit": False, "shards": False}
    (head,) = slurm_node("head", system=old, shards=4)["not_applicable"]
    assert "whether Slurm of debian12 has the plugin job_submit/lua is not known" in head
    assert slurm_node(system=old, shards=4)["not_applicable"] == [
        "no parts of GPUs: Slurm of debian12 has no gres/shard"
    ]
    assert slurm_node(system=old)["not_applicable"] == []


def test_a_head_that_is_a_gpu_server_is_judged_as_both() -> None:
    old = {"job_submit": False, "shards": False}
    both = slurm_node("head", files={}, system=old, shards=4, compute=True)
    assert len(both["not_applicable"]) == 3
    assert both["unconfined"] == ["jobs are not confined by cgroups: this node has no cgroup v2"]
    assert both["missing"]["database"] == ["/db"]
    assert slurm_node("head", files={}, compute=False)["unconfined"] == []


def test_links_and_database_are_made_where_they_are_missing() -> None:
    library = "/usr/lib/x86_64-linux-gnu/pmix2/lib/libpmix.so"
    head = slurm_node("head", files={f"{library}.2": ""})["missing"]
    assert (head["pmix"], head["database"]) == ([library], ["/db"])
    done = slurm_node("head", files={library: "", f"{library}.2": "", "/db": ""})["missing"]
    assert (done["pmix"], done["database"]) == ([], [])
    assert slurm_node("client", files={})["missing"]["database"] == []


LEDGERS = {"packages": "/l/slurm.packages.json", "files": "/l/slurm.files.json"}
FOLDERS = ["/etc/slurm", "/var/log/slurm", "/var/lib/mysql"]


def left(contents: dict[str, str], *more: str) -> list[str]:
    node = {"files": dict.fromkeys([*FOLDERS, *more], ""), "contents": contents}
    folders: list[str] = slurm.slurm_data_left(node, FOLDERS, LEDGERS, "slurm_acct_db")
    return folders


def test_folders_go_with_the_role_that_brought_them() -> None:
    ours = {LEDGERS["packages"]: '{"packages": {"mariadb-server": ""}}'}
    assert left({}) == []
    assert left(ours) == FOLDERS
    assert left(ours, "/var/lib/mysql/shop/db.opt") == ["/etc/slurm", "/var/log/slurm"]
    assert left({LEDGERS["packages"]: "{}"}) == ["/etc/slurm", "/var/log/slurm"], "MariaDB was here before"
    assert left({**ours, "/l/other.packages.json": '"mariadb-server"'}) == ["/etc/slurm", "/var/log/slurm"]
    theirs = json.dumps({"files": {"/etc/slurm/slurm.conf": {"original": "x", "package": ""}}})
    assert left({**ours, LEDGERS["files"]: theirs}) == ["/var/lib/mysql"]


def wanted(**changed: Any) -> dict[str, Any]:
    fit = {
        "name": "training", "uid": 5950, "builds": True, "for_gpus": True, "tensorflow": False,
        "tensorflow_version": "", "torch": "2.9", "base": "bootstrap", "distribution": "Debian",
        "registry": ["docker-registry"], "require_hashes": True,
        "unlocked": False, "wheels": ["torch==2.9"], "version": "0.28.1", "sdist_sha256": "aa",
    }  # fmt: skip
    return {**fit, **changed}


def faults(user: dict[str, Any] | None = None, head: bool = True, docker: bool = True, **changed: Any) -> list[str]:
    user = user or {"owner": "training", "number": 5950}
    said: list[str] = training.training_faults(wanted(**changed), user=user, head=head, docker=docker)
    return said


@pytest.mark.parametrize(
    ("changed", "part", "head_alone"),
    [
        ({"registry": [], "distribution": "Rocky", "base": "x"}, "Rocky has no docker-registry", True),
        ({"distribution": "Rocky"}, "only a Debian or Ubuntu node can bootstrap the image", True),
        ({"torch": ""}, "this stack release names no torch for these GPUs", False),
        ({"tensorflow": True, "tensorflow_version": "2"}, "TensorFlow goes into an image for processors alone", False),
        ({"tensorflow": True, "for_gpus": False}, "this stack release names no TensorFlow", False),
        ({"unlocked": True}, "no list of checksums is there for torch==2.9; make one", True),
        ({"sdist_sha256": ""}, "no checksum is known of horovod 0.28.1", True),
    ],
)
def test_an_image_that_cannot_be_built_says_what_to_do(changed: dict[str, Any], part: str, head_alone: bool) -> None:
    (said,) = faults(**changed)
    assert said.startswith(part)
    assert faults(head=False, **changed) == ([] if head_alone else [said])
    assert faults(builds=False, **changed) == [], "an image that is named is not built"


def test_user_and_engine_are_asked_for_with_every_image() -> None:
    assert faults() == []
    assert faults(docker=False, builds=False) == ["docker does not run; run playbooks/containers.yml first"]
    (said,) = faults({"owner": "other", "number": 77}, builds=False)
    assert said == (
        "user number 5950 has to be training's, but here it is other's, and training is number 77; set horovod_uid"
    )


def test_numbers_of_the_training_user_are_those_of_the_nodes_name_service() -> None:
    found = {"5950": {"name": "other", "uid": 5950}, "training": {"name": "training", "uid": 77}}
    assert training.training_user(found, "training", 5950) == {"owner": "other", "number": 77}
    nobody = training.training_user({"5950": {}, "training": {}}, "training", 5950)
    assert nobody == {"owner": "training", "number": 5950}


def test_names_of_what_an_image_is_made_of() -> None:
    assert training.training_wheels({"torch": "2.9", "timm": ""}) == ["torch==2.9"]
    built_on = {"os": "debian 12", "machine": "x86_64", "abi": ["cp311", "", "gnu"], "torch": "2.9", "cuda": "13.0"}
    key = training.training_wheel_key(built_on, "0.28.1", ["tensorflow", "2.1"])
    assert key == "horovod_0.28.1_debian_12_x86_64_cp311_2.9-cuda13.0_gnu_tensorflow_2.1"
    digests = ["other:5000/x@sha256:a", "head:5000/x@sha256:b"]
    assert training.training_pushed(digests, "head:5000/x") == "head:5000/x@sha256:b"
    assert training.training_pushed(None, "head:5000/x") == training.training_pushed(digests, "head:5000/") == ""
    ports = [{"interface": "e0", "address": "10.0.0.1/24"}]
    assert training.training_principals("n1", "192.0.2.1", ports) == ["n1", "192.0.2.1", "10.0.0.1", "n1-e0"]


def test_what_is_not_as_before_a_reboot() -> None:
    node = {"kernel": "6.1", "kernels": ["6.1"], "in_container": False, "contents": {}, "reboot_hints": []}
    before = {"active": "a.service x\nb.service x\n", "failed": "c.service x\n"}
    after = {"active_now": "a.service x\n", "failed_now": "c.service x\nd.service x\n"}
    waits = {**node, "contents": {"/run/elastic-ai/reboot-required/ofed": "a new build\n"}}
    assert reboot.reboot_faults(node, waits, {**before, **after}) == [
        "b.service was active before and is not",
        "d.service has failed",
        "ofed: a new build (still there)",
    ]
    same = {"active_now": before["active"], "failed_now": before["failed"]}
    assert reboot.reboot_faults(node, node, {**before, **same}) == []


def test_an_account_of_reboots_names_every_node_once() -> None:
    said = reboot.reboot_account(["n1", "n2", "n3", "n4"], ["n1"], ["n3"], "n2")
    assert said == "Rebooted and verified: n1. In this batch: n2, n3. Not touched: n4."
    assert reboot.reboot_account([], [], [], "n1").endswith("In this batch: n1. Not touched: none.")


def test_the_archive_of_an_engine_is_the_declared_one() -> None:
    there = {"exists": True, "checksum": "a" * 64}
    assert engine_refused("/e", "A" * 64, there) == engine_refused("https://x/e", "a" * 64, {}) == []
    assert "is not set (64 hex digits)" in engine_refused("/e", "", there)[0]
    assert engine_refused("/e", "a" * 64, {"exists": False}) == ["remoting_engine_artifact: /e is not on this machine"]
    assert engine_refused("/e", "", {}, "remoting_engine_torch")[0].startswith(
        "remoting_engine_torch_sha256 is not set"
    )
    assert f"has the checksum {'a' * 64}, and" in engine_refused("/e", "b" * 64, there)[0]
    assert "has the checksum of a folder" in engine_refused("/e", "b" * 64, {"exists": True})[0]


def test_room_for_an_image_is_asked_for_where_one_comes() -> None:
    room = {"head": 40000, "node": 16000}
    assert preflight_image_mib(room, comes=False, makes=True, pulls=True) == 0
    assert preflight_image_mib(room, comes=True, makes=True, pulls=True) == 40000
    assert preflight_image_mib(room, comes=True, makes=False, pulls=True) == 16000
    assert preflight_image_mib(room, comes=True, makes=False, pulls=False) == 0


def test_key_files_are_called_as_their_repositories() -> None:
    files = load("plugins/plugin_utils/openpgp.py").openpgp_files
    assert files(["/k/cuda.asc", "/k/nvidia-container-toolkit.asc"]) == {
        "cuda": "/k/cuda.asc",
        "nvidia-container-toolkit": "/k/nvidia-container-toolkit.asc",
    }


def test_roles_read_what_their_functions_ask_for() -> None:
    def variables(role: str) -> dict[str, Any]:
        read: dict[str, Any] = yaml.safe_load((ROOT / f"roles/{role}/vars/main.yml").read_text(encoding="utf-8"))
        return read

    assert variables("kernel")["__kernel_reads"] == [*load("plugins/plugin_utils/kernel.py").READS]
    overrides = load("plugins/plugin_utils/stack.py").OVERRIDES
    assert sorted(variables("preflight")["__preflight_names"]) == sorted(overrides)


def settings(cgroups: bool = True, **changed: Any) -> dict[str, Any]:
    wanted = {
        "name": "pool", "host": "head", "address": "192.0.2.1", "shards": 0, "job_submit": False,
        "prolog": "", "epilog": "", "policies": {}, "extra": {},
    }  # fmt: skip
    conf = load("plugins/plugin_utils/slurm_conf.py").slurm_conf
    lines: dict[str, Any] = conf({"cgroups": cgroups, "memory_per_cpu_mib": 2000}, {**wanted, **changed})
    return lines


def test_settings_of_slurm_follow_from_the_cluster() -> None:
    bare = settings(cgroups=False)
    assert (bare["SlurmctldHost"], bare["ProctrackType"]) == ("head(192.0.2.1)", "proctrack/linuxproc")
    assert (bare["GresTypes"], bare["AccountingStorageTRES"]) == ("gpu", "gres/gpu")
    assert not {"PrologFlags", "JobSubmitPlugins", "Prolog", "Epilog", "PrologEpilogTimeout"} & set(bare)
    parts = settings(shards=4, job_submit=True, prolog="/p")
    assert (parts["GresTypes"], parts["AccountingStorageTRES"]) == ("gpu,shard", "gres/gpu,gres/shard")
    assert (parts["PrologFlags"], parts["Prolog"], parts["BatchStartTimeout"]) == ("Alloc,Contain", "/p", 150)
    assert (parts["JobSubmitPlugins"], "Epilog" in parts) == ("lua", False)


def test_policies_win_over_settings_and_the_site_over_both() -> None:
    both = settings(policies={"InactiveLimit": 7, "SlurmdTimeout": 8}, extra={"SlurmdTimeout": 9, "Own": "x"})
    assert (both["InactiveLimit"], both["SlurmdTimeout"], list(both)[-1]) == (7, 9, "Own")
