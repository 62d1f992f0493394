"""A pool in a Slurm of the site's own: what is refused, and what its administrator is asked for, one by one."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.joined_case import HOOKS, JOIN, NODES, PARTITIONS, SCRIPTS, answers, cluster, wanted
from tests.support.lease_texts import node_text
from tests.support.node_modules import ROOT, load_filters
from toolkit.errors import UsageFault
from toolkit.joined.cluster import BY_DOCUMENTS, READ, RUN, Answer, read_cluster, refusals
from toolkit.joined.missing import Missing, missing
from toolkit.lease.jobs.lease_job import Held
from toolkit.lease.jobs.slurm_json import parse_jobs
from toolkit.pool_policy import Join, check_pool
from validation.model.load import ConfigError

LIMITS = {"research": {"Priority": "100", "MaxTRESPU": "billing=5040", "MaxWall": "1-00:00:00"}}


def lacks(scripts: Any = SCRIPTS, want: Any = None, **given: Any) -> list[Missing]:
    return missing(cluster(**given), want or wanted(), scripts)


def one(**given: Any) -> Missing:
    (found,) = lacks(**given)
    return found


def test_a_cluster_that_has_everything_lacks_nothing() -> None:
    assert lacks() == []
    assert lacks(want=wanted(classes=LIMITS)) == []
    assert refusals(cluster(), Join.model_validate(JOIN)) == []


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"ClusterName": "other"}, "the cluster here is other, slurm_pool.join names prod"),
        ({"SlurmctldHost[0]": "ctl99(192.0.2.9)"}, "has the controllers ctl99, 192.0.2.9, slurm_pool.join names ctl01"),
        ({"SLURM_VERSION": "21.08.8"}, "runs Slurm 21.08.8; leases are known to work with 22.05 (run by us)"),
        ({"SLURM_VERSION": "26.05.1"}, "by Slurm's documents, 23.02"),
        ({"SLURM_VERSION": None}, "an unknown release"),
    ],
)
def test_another_cluster_and_a_release_that_nobody_knows_are_refused(config: dict[str, Any], words: str) -> None:
    (said,) = refusals(cluster(config=config), Join.model_validate(JOIN))
    assert words in said


@pytest.mark.parametrize("release", [*RUN, *READ, *BY_DOCUMENTS])
def test_known_releases_are_joined(release: str) -> None:
    assert refusals(cluster(config={"SLURM_VERSION": f"{release}.3"}), Join.model_validate(JOIN)) == []


def recorded(name: str) -> bytes:
    return (ROOT / "tests/data/lease" / f"slurm-24.11.5-{name}").read_bytes()


def test_the_answers_of_debian_13s_slurm_are_read() -> None:
    """Its own, of a controller and a node with four GPUs; accounting it had none."""
    texts = {name: Answer(recorded(f"{name}.txt").decode()) for name in ("config", "nodes", "partitions")}
    none = Answer("", "You are not running a supported accounting_storage plugin")
    found = read_cluster({**texts, "accounts": none, "qos": none})
    assert (found.name, found.release, found.controllers) == ("prod", READ[0], ("gpu1", "192.0.2.7"))
    assert found.words("GresTypes") == {"gpu", "shard"}
    assert found.scripts == ("/etc/slurm/prolog.sh", "/etc/slurm/epilog.sh")
    assert found.members("lease") == ("gpu1",)
    assert found.qos is None
    node = found.nodes["gpu1"]
    assert (node.gpus, node.shards, node.gpu_class, node.state) == (4, 20160, "v100", "IDLE")
    join = Join.model_validate({**JOIN, "controllers": ["gpu1"]})
    assert refusals(found, join) == []


def test_leases_of_debian_13s_slurm_are_read_with_their_parts_of_gpus() -> None:
    """Its JSON has another form than that of 22.05: numbers as objects, states as lists."""
    jobs = {job.id: job for job in parse_jobs(recorded("jobs.json"))}
    assert {number: job.state for number, job in jobs.items()} == {
        1: "RUNNING", 2: "RUNNING", 3: "PENDING", 4: "PENDING", 5: "RUNNING",
    }  # fmt: skip
    assert [jobs[n].held for n in (1, 5, 2)] == [(Held("gpu1", index, 5040, 0),) for index in (0, 1, 2)]
    assert (jobs[5].array, jobs[5].task, jobs[2].task) == (2, 0, 1)
    assert (jobs[1].time_limit_s, jobs[1].memory_mib, jobs[3].reason) == (1800, 16, "Resources")
    assert jobs[1].comment == 'elastic-ai {"clients": ["10.0.0.2"]}'


@pytest.mark.parametrize("controller", ["CTL01.example.org", "192.0.2.7", "ctl01"])
def test_a_controller_is_known_by_name_or_address(controller: str) -> None:
    assert refusals(cluster(), Join.model_validate({**JOIN, "controllers": ["other", controller]})) == []


def test_a_cluster_that_does_not_answer_is_a_fault_and_one_without_accounting_is_not() -> None:
    with pytest.raises(UsageFault, match="scontrol show node: Unable to contact slurm controller"):
        read_cluster(answers(nodes=Answer("", "Unable to contact slurm controller")))
    assert lacks(qos=Answer("", "sacctmgr: not found")) == []
    found = one(qos=Answer("", "Access/permission denied"), want=wanted(classes=LIMITS))
    assert (found.needed, "Access/permission denied" in found.what) == (False, True)


BARE = "\n".join(node_text(name, "IDLE", "(null)") for name in ("gpu1", "gpu2"))
ONE_GPU = "\n".join(node_text(name, "IDLE", "gpu:v100:4").replace(",gres/shard=560", "") for name in ("gpu1", "gpu2"))
OTHERS = "\n".join(node_text(name, "IDLE", "gpu:v100:4,shard:v100:16") for name in ("gpu1", "gpu2"))


@pytest.mark.parametrize(
    ("given", "needed", "what", "todo"),
    [
        ({"config": {"SelectType": "select/linear"}}, True, "SelectType is select/linear", "select/cons_tres"),
        ({"config": {"GresTypes": "gpu,mps"}}, False, "GresTypes has no shard", "GresTypes=gpu,mps,shard"),
        ({"config": {"GresTypes": "(null)"}}, True, "no gpu and no shard", "GresTypes=gpu,shard"),
        ({"config": {"PrologFlags": "(null)"}}, True, "does not run when a job gets its nodes", "PrologFlags=Alloc"),
        ({"config": {"PrologFlags": "Serial"}}, True, "does not run when a job gets", "PrologFlags=Serial,Alloc"),
        ({"config": {"Prolog": "(null)"}}, True, "it has no Prolog; until then no lease starts", "elastic-ai-prolog"),
        ({"config": {"PrologEpilogTimeout": "30 sec"}}, False, "PrologEpilogTimeout is 30 s", "=120 or more"),
        ({"config": {"PrivateData": "jobs,usage"}}, False, "users do not see jobs of others", "PrivateData"),
        ({"partitions": PARTITIONS.splitlines()[0]}, True, "no partition lease", "Include elastic-ai-partitions.conf"),
        ({"partitions": PARTITIONS.replace("gpu[1-2]", "gpu1")}, True, "partition lease lacks gpu2", "take over"),
        ({"partitions": PARTITIONS.replace("gpu[1-2]", "gpu[1-3]")}, True, "not the pool's (gpu3)", "of their own"),
        ({"partitions": PARTITIONS.replace("=NO", "=EXCLUSIVE")}, True, "gives whole nodes", "OverSubscribe"),
        ({"partitions": PARTITIONS.replace("=NO", "=FORCE:4")}, True, "forces jobs to share cores", "OverSubscribe"),
    ],
)
def test_each_thing_that_is_missing_is_said_with_what_to_add(
    given: dict[str, Any], needed: bool, what: str, todo: str
) -> None:
    found = one(**given)
    assert found.needed is needed
    assert what in found.what
    assert todo in found.todo


@pytest.mark.parametrize(
    ("nodes", "needed", "what", "todo"),
    [
        (node_text("gpu1", "IDLE", "gpu:v100:4,shard:20160"), True, "gpu2 is no node of it", "NodeName=gpu2 "),
        (BARE, True, "gpu1 has 4 GPUs, and 0 there", "Gres=gpu:v100:4,shard:20160, and gres.conf the line Include"),
        (ONE_GPU, False, "gpu1 has no parts of GPUs", "Include elastic-ai-shards.conf"),
        (OTHERS, True, "is counted in 4 parts there, and in 5040 here", "slurm_shards_per_gpu: 4"),
    ],
)
def test_what_nodes_lack_in_slurm_conf(nodes: str, needed: bool, what: str, todo: str) -> None:
    found = lacks(nodes=nodes)
    assert {one.needed for one in found} == {needed}
    said = next(one for one in found if what in one.what)
    assert todo in said.todo


def test_a_prolog_that_does_not_run_ours_is_named_with_the_server() -> None:
    theirs = {**SCRIPTS, "gpu2": {**SCRIPTS["gpu2"], "/etc/slurm/prolog.sh": "#!/bin/sh\nexit 0\n"}}
    found = one(scripts=theirs)
    assert (found.needed, "its Prolog (/etc/slurm/prolog.sh) does not run ours on gpu2" in found.what) == (True, True)
    assert [one.what.split(" (")[0] for one in lacks(scripts={})] == ["its Prolog", "its Epilog"]


@pytest.mark.parametrize(
    ("value", "path"),
    [("/etc/slurm/prolog.d/*", "/etc/slurm/prolog.d/50-lease"), ("prolog.sh", "/run/slurm/conf/prolog.sh")],
)
def test_a_prolog_may_be_a_pattern_or_come_from_the_controller(value: str, path: str) -> None:
    scripts = {name: {**texts, path: texts["/etc/slurm/prolog.sh"]} for name, texts in SCRIPTS.items()}
    assert lacks(config={"Prolog": value}, scripts=scripts) == []
    several = {"Prolog": None, "Prolog[0]": "/opt/first", "Prolog[1]": value}
    assert lacks(config=several, scripts=scripts) == []
    assert lacks(config={"Prolog": "/opt/first"}, scripts=scripts) != []


@pytest.mark.parametrize(
    ("given", "what", "todo"),
    [
        ({"config": {"AccountingStorageType": "(null)"}}, "has no accounting", "leave users out"),
        ({"config": {"AccountingStorageEnforce": "associations"}}, "it enforces associations", "which concerns all"),
        ({"config": {"AccountingStorageEnforce": "none"}}, "it enforces none", "which concerns all"),
        ({"accounts": "root\n"}, "it has no account research", "sacctmgr add account research"),
        ({"qos": "normal|0||||\n"}, "it has no QOS research", "sacctmgr add qos research set Priority=100 "
            "MaxTRESPerUser=billing=5040 MaxWall=1-00:00:00"),
        ({"qos": "research|100||billing=10080||1-00:00:00\n"}, "has other limits", "set MaxTRESPerUser=billing=5040"),
    ],
)  # fmt: skip
def test_limits_are_the_clusters_own_and_what_is_not_held_is_said(given: dict[str, Any], what: str, todo: str) -> None:
    found = one(want=wanted(classes=LIMITS), **given)
    assert not found.needed, "leases work without"
    assert what in found.what
    assert todo in found.todo


def test_a_cluster_that_enforces_all_holds_limits() -> None:
    for value in ("all", "associations,limits,qos,safe", "safe,qos,associations"):
        assert lacks(config={"AccountingStorageEnforce": value}, want=wanted(classes=LIMITS)) == []


@pytest.mark.parametrize(
    ("policy", "words"),
    [
        ({"scheduler": "none"}, "there is nothing to join"),
        ({"reservations": {}}, "reservations: with join it is decided by the cluster's administrator"),
        ({"preemption": {"grace_s": 30}}, "preemption: with join"),
        ({"classes": {"v100": {"max_hours": 4}}}, "classes.v100.max_hours: with join"),
        ({"users": {"a": {"users": ["x"], "preempts": ["b"]}, "b": {"users": ["y"]}}}, "users.a.preempts: with join"),
        ({"users": {"a": {"users": ["x"], "classes": ["v100"]}}}, "users.a.classes: with join"),
        ({"join": {"cluster": "prod", "controllers": [], "partition": "x"}}, "controllers"),
        ({"join": {"cluster": "prod", "controllers": ["a b"], "partition": "x"}}, "controllers"),
        ({"join": {"cluster": "prod", "controllers": ["a"]}}, "join.partition"),
        ({"join": {**JOIN, "munge_key": "secret"}}, "unknown key"),
    ],
)
def test_what_the_clusters_administrator_decides_is_refused_in_the_policy(policy: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError) as refused:
        check_pool({"join": JOIN, **policy})
    assert words in str(refused.value)


def test_the_rest_of_a_policy_goes_with_a_cluster() -> None:
    pool = check_pool({
        "join": JOIN, "native_jobs": ["ml"], "classes": {"v100": {"idle_minutes": 30}},
        "users": {"ml": {"groups": ["ml"], "max_gpus_per_user": 2, "idle_minutes": 20}},
    })  # fmt: skip
    assert pool.join is not None
    assert pool.join.controllers == ("ctl01",)


role = load_filters("slurm_join") | load_filters("slurm")


def described(name: str = "gpu1") -> dict[str, Any]:
    gpus = role["slurm_gpus"]([], {"count": 4, "type": "v100"}, True, False)
    topology = {"sockets": 1, "cores": 2, "threads": 1}
    return {
        "host": name, "name": name, "hostname": name, "address": "192.0.2.11", "topology": topology,
        "memory_mib": 1024, "gpus": gpus, "cgroups": True,
    }  # fmt: skip


def needs(**policy: Any) -> dict[str, Any]:
    found = role["slurm_cluster"]([described("gpu2"), described("gpu1")], [], ["gpu1", "gpu2"], 5040)
    hooks = {kind: list(programs) for kind, programs in HOOKS.items()}
    done: dict[str, Any] = role["slurm_join_wanted"]({"join": JOIN, **policy}, found, 5040, "/nowhere", hooks)
    return done


def test_the_files_to_include_concern_no_node_but_ours() -> None:
    """No line without a NodeName of ours, nothing that another line of the cluster would lose to."""
    made = needs(users={"research": {"users": ["alice"], "max_gpus_per_user": 1, "priority": 100}})
    (partition,) = made["partitions"]
    assert partition.startswith("PartitionName=lease Nodes=gpu1,gpu2 MaxTime=INFINITE State=UP OverSubscribe=NO")
    assert "Default=" not in partition
    assert "AllowQos" not in partition, "a QOS that is not there would close it to everybody"
    for line in [*made["gpus"], *made["shards"]]:
        assert line.startswith("NodeName=gpu1,gpu2 ")
    assert made["gpus"] == [
        "NodeName=gpu1,gpu2 AutoDetect=off Name=gpu Type=v100 File=/var/lib/elastic-ai/stand-in-gpus/gpu[0-3]"
    ]
    assert made["shards"] == ["NodeName=gpu1,gpu2 Name=shard Count=20160"]
    document = made["wanted"]
    assert document["classes"] == {"research": {"Priority": "100", "MaxTRESPU": "billing=5040"}}
    assert [server["gres"] for server in document["servers"]] == ["gpu:v100:4,shard:20160"] * 2
    assert document["servers"][0]["node_line"].startswith("NodeName=gpu1 NodeAddr=192.0.2.11 Sockets=1 ")


def results(**given: Any) -> list[dict[str, Any]]:
    """As Ansible registers a loop of commands."""
    return [
        {"item": {"name": name}, "stdout": one.text, "stderr": one.failed, "rc": 1 if one.failed else 0}
        for name, one in answers(**given).items()
    ]


def test_the_role_judges_as_the_command_does() -> None:
    document = needs()["wanted"]
    assert role["slurm_join_missing"](document, results(), SCRIPTS) == []
    (said,) = role["slurm_join_missing"](document, results(config={"Prolog": "(null)"}), SCRIPTS)
    assert said["needed"]
    assert said["words"].startswith("it has no Prolog; until then no lease starts: copy elastic-ai-prolog ")
    asked = role["slurm_join_questions"](JOIN)
    assert {one["argv"][0] for one in asked} == {"scontrol", "sacctmgr"}
    assert all("show" in one["argv"] for one in asked), "questions, and no change"


def test_a_node_outside_of_the_cluster_is_refused_by_its_own_commands() -> None:
    pool = {"join": JOIN}
    refused = role["slurm_join_refused"]
    (config,) = (one for one in results() if one["item"]["name"] == "config")
    assert refused(config, pool, "/nowhere") == []
    (said,) = refused({"rc": 1, "stdout": "", "stderr": "x\nUnable to contact slurm controller\n"}, pool, "/nowhere")
    assert "no command of cluster prod works here (scontrol show config: Unable to contact slurm controller)" in said
    (said,) = refused({"rc": 2, "msg": "[Errno 2] No such file or directory: b'scontrol'"}, pool, "/nowhere")
    assert "No such file" in said
    places = role["slurm_join_places"](config)
    assert places == {
        "programs": ["/etc/slurm/prolog.sh", "/etc/slurm/epilog.sh"],
        "json": ["/usr/lib/x86_64-linux-gnu/slurm-wlm/serializer_json.so"],
    }


def test_nodes_of_the_text_are_those_of_the_cluster() -> None:
    assert set(cluster().nodes) == {"gpu1", "gpu2"}
    assert NODES.count("NodeName=") == 2
    assert cluster().members("cpu") == ("cpu1", "cpu2", "cpu3")
    assert cluster().members("nowhere") == ()
