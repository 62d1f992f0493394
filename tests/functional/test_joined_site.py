"""`site.yml --check` on a machine of another Slurm that the pool joins: of theirs nothing is written, installed,
started or stopped, by no role and in no state."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.functional.test_check_mode_per_os import keys
from tests.functional.test_taken_over import ENTRY, XE9680
from tests.support import one_reboot
from tests.support.joined_case import JOIN, NODES, PARTITIONS, SCRIPTS, config_text
from tests.support.one_reboot import Json, calls

pytestmark = pytest.mark.systems
REST = pytest.mark.rest

CONF: Json = {
    "path": "/etc/slurm/slurm.conf", "controllers": ["ctl01"], "cluster": "prod", "hooked": ["prolog", "epilog"],
}  # fmt: skip
SLURM: Json = {
    "files": [{"path": f"/etc/{path}", **ENTRY} for path in ("munge/munge.key", "slurm/slurm.conf", "slurm/gres.conf")],
    "slurm": {"confs": [CONF], "daemons": [{"name": "slurmd", "conf": "", "server": ""}]},
}
NODE = NODES.split("\n\n")[0].replace("gpu1", "node1").replace("gpu:v100:4,shard:v100:20160", "gpu:h100:8,shard:40320")
MODULE = "/usr/lib/x86_64-linux-gnu/slurm-wlm/serializer_json.so"
JOIN_LEDGER = "/var/lib/elastic-ai/ledger/slurm_join.files.json"
#: Where their files are, and what their services and packages are called.
THEIRS = ("/etc/slurm", "/etc/munge", "/etc/mysql", "/var/lib/mysql", "/var/spool", "/etc/default/slurm")
UNITS = ("slurmd", "slurmctld", "slurmdbd", "munge", "mariadb")


def recording(slurm: Json, **config: Any) -> Json:
    """The machine with their Slurm on it, which answers."""
    made = one_reboot.arrived(XE9680)
    seen, state = made["modules"]["node_preflight"], made["modules"]["node_state"]
    seen["foreign"] |= slurm
    state["files"] |= {MODULE: ""}
    state["contents"] |= SCRIPTS["gpu1"]
    state["units"] |= {f"{name}.service": {"active": True, "enabled": True} for name in UNITS}
    made["commands"] |= {
        "scontrol show config": {"stdout": config_text(**config)},
        "scontrol show node": {"stdout": NODE},
        "scontrol --oneliner show partition": {"stdout": PARTITIONS.replace("gpu[1-2]", "node1")},
        "sacctmgr * show account *": {"stdout": "root\n"},
        "sacctmgr * show qos *": {"stdout": "normal|0||||\n"},
    }
    return made


Done = tuple[str, list[Json]]


def run(folder: Path, made: Json, *options: str, playbook: str = "site.yml", **variables: Any) -> Done:
    """What a check run printed, and what it called."""
    variables = keys(folder) | {"slurm_pool": {"join": JOIN}} | variables
    hosts = one_reboot.inventory(XE9680, folder / "site", made, variables)
    one_reboot.check(folder, {"site": hosts}, *options, playbook=playbook)
    return " ".join((hosts.parent / "said").read_text(encoding="utf-8").split()), calls(hosts)


def touched(called: list[Json]) -> list[str]:
    """What of theirs any module would change, whichever role called it."""
    found = []
    for call in called:
        args = call["args"]
        entries = [*(args.get("files") or []), *(args.get("directories") or [])]
        paths = [one["path"] for one in entries if isinstance(one, dict)]
        paths += [str(args[key]) for key in ("path", "dest") if args.get(key)]
        if call["module"] != "node_state":
            found += [path for path in paths if path.startswith(THEIRS)]
        if call["module"] in ("systemd_service", "systemd", "service"):
            found += [args["name"]] if str(args.get("name")).partition(".")[0] in UNITS else []
        if call["module"] in ("package_set", "package_ledger", "dnf", "apt"):
            names = [*(args.get("wanted") or {}), *(args.get("name") or [])]
            found += [name for name in names if str(name).startswith(("slurm", "munge", "mariadb"))]
        if call["module"] == "command":
            words = args.get("argv") or []
            reads = words[:2] in (["scontrol", "show"], ["scontrol", "--oneliner"]) or "show" in words
            found += [] if reads or words[:1] not in (["scontrol"], ["sacctmgr"], ["scancel"], ["mariadb"]) else words
    return found


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Done:
    return run(tmp_path_factory.mktemp("join"), recording(SLURM))


def test_a_whole_site_is_provisioned_and_nothing_of_theirs_is_touched(whole: Done) -> None:
    said, called = whole
    assert "failed=0" in said, said[-3000:]
    assert touched(called) == []
    roles = {call["args"].get("owner_role") for call in called if call["module"] == "managed_files"}
    assert {"remoting_server", "remoting_client", "slurm_join"} <= roles
    assert "slurm" not in roles


def test_files_for_their_administrator_are_written_and_leases_know_the_partition(whole: Done) -> None:
    files = one_reboot.files(whole[1])
    folder = "/etc/elastic-ai/slurm/join/"
    assert files[f"{folder}elastic-ai-partitions.conf"].splitlines()[-1].startswith("PartitionName=lease Nodes=node1 ")
    gpus = files[f"{folder}elastic-ai-gpus.conf"]
    assert "NodeName=node1 AutoDetect=off Name=gpu Type=h100 File=/dev/nvidia[0-7]" in gpus
    assert "NodeName=node1 Name=shard Count=40320" in files[f"{folder}elastic-ai-shards.conf"]
    assert "/usr/lib/elastic-ai/lease-server/bin/prolog" in files[f"{folder}elastic-ai-prolog"]
    assert '"joined": "lease"' in files["/etc/elastic-ai/remoting/pool.json"]


@pytest.mark.parametrize(
    ("conf", "variables", "words"),
    [
        ({"cluster": "other"}, {}, "it belongs to another Slurm than slurm_pool.join names (prod under ctl01)"),
        pytest.param({"controllers": ["ctl99"]}, {}, "/etc/slurm/slurm.conf of cluster prod under ctl99", marks=REST),
        pytest.param({"hooked": ["epilog"]}, {}, "Prolog of cluster prod do not run the toolkit's here", marks=REST),
        pytest.param({"hooked": []}, {"remoting_server_fence_devices": False}, "", marks=REST),
        pytest.param({}, {"pool_page": True}, "pool_page cannot be used with slurm_pool.join yet", marks=REST),
        pytest.param(
            {}, {"slurm_pool": {"join": JOIN, "reservations": {}}}, "decided by the cluster's administrator", marks=REST
        ),
    ],
)
def test_preflight_knows_what_does_not_fit(tmp_path: Path, conf: Json, variables: Json, words: str) -> None:
    slurm = {**SLURM, "slurm": {**SLURM["slurm"], "confs": [{**CONF, **conf}]}}
    said, called = run(tmp_path, recording(slurm), "--tags", "preflight", **variables)
    assert ("failed=1" if words else "failed=0") in said, said[-2000:]
    assert words in said
    assert touched(called) == []


@REST
def test_a_server_that_is_no_node_of_theirs_yet_is_refused(tmp_path: Path) -> None:
    nothing = {**SLURM, "files": [], "slurm": {"confs": [], "daemons": []}}
    said, _ = run(tmp_path, recording(nothing), "--tags", "preflight")
    assert "it is no node of cluster prod yet" in said


def test_the_role_alone_refuses_another_cluster(tmp_path: Path) -> None:
    said, called = run(tmp_path, recording(SLURM, ClusterName="other"), playbook="playbooks/pool.yml")
    assert "the cluster here is other, slurm_pool.join names prod" in said
    assert "failed=1" in said
    assert [call for call in called if call["module"] == "managed_files"] == []


@pytest.mark.parametrize(
    ("join", "ledger"),
    [(True, True), *(pytest.param(*one, marks=REST) for one in ((True, False), (False, True), (False, False)))],
)
def test_a_teardown_takes_back_ours_alone(tmp_path: Path, join: bool, ledger: bool) -> None:
    """With the ledger of what was written for them or without, and where the inventory has forgotten them."""
    made = recording(SLURM)
    if ledger:
        made["modules"]["node_state"]["contents"][JOIN_LEDGER] = '{"files": {}, "directories": {}}'
    policy = {} if join else {"slurm_pool": {}}
    said, called = run(tmp_path, made, "--tags", "pool", playbook="playbooks/teardown.yml", **policy)
    assert "failed=0" in said, said[-3000:]
    assert touched(called) == []


def test_a_teardown_waits_until_they_do_without_our_files(tmp_path: Path) -> None:
    made = recording(SLURM)
    made["modules"]["node_state"]["contents"] |= {
        JOIN_LEDGER: '{"files": {}, "directories": {}}',
        "/etc/slurm/slurm.conf": "ClusterName=prod\nInclude /etc/elastic-ai/slurm/join/elastic-ai-partitions.conf\n",
    }
    said, called = run(tmp_path, made, "--tags", "pool", playbook="playbooks/teardown.yml")
    assert "/etc/slurm/slurm.conf still names files of the toolkit" in said
    assert [call for call in called if call["module"] == "managed_files"] == []
