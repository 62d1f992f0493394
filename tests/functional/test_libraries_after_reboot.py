"""Role cuda after a reboot into another RDMA driver, whose devices have other names, on a node that is a recording."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import yaml

from tests.support.node_modules import ROOT, load

nccl: Any = load("plugins/plugin_utils/nccl.py")
DEVICES = "/sys/class/net/ens31np0/device/infiniband/"
#: As rdma-core of Ubuntu names the card; DOCA's keeps the kernel's name.
BEFORE, AFTER = "rocep27s0", "mlx5_0"


def written(folder: Path) -> dict[str, str]:
    """Files by path that the role would have on a node that was told of the device's former name."""
    node = json.loads((ROOT / "tests/data/facts/os/ubuntu2404.json").read_text("utf-8"))
    state = node["modules"]["node_state"]
    state["files"] = {name: sha for name, sha in state["files"].items() if "infiniband" not in name}
    state["files"][f"{DEVICES}{AFTER}"] = ""
    told = nccl.library_file("/etc/nccl.conf", "", {"NCCL_IB_HCA": f"={BEFORE}"}, {})
    state["contents"]["/etc/nccl.conf"] = told["content"]
    (folder / "node.json").write_text(json.dumps(node), encoding="utf-8")
    variables = {
        "ansible_connection": "canned", "canned_recording": str(folder / "node.json"),
        "canned_log": str(folder / "node.log"), "cuda_version": "13.1.1",
        "fabric_ports": [{"interface": "ens31np0", "address": "10.80.0.11/24"}],
    }  # fmt: skip
    (folder / "hosts.yml").write_text(yaml.safe_dump({"all": {"hosts": {"node1": variables}}}), encoding="utf-8")
    tasks = [{"ansible.builtin.include_role": {"name": str(ROOT / "roles/cuda"), "tasks_from": "rebooted"}}]
    play = [{"hosts": "all", "gather_subset": ["!all", "min", "virtual"], "tasks": tasks}]
    (folder / "play.yml").write_text(yaml.safe_dump(play), encoding="utf-8")
    done = subprocess.run(
        ["ansible-playbook", str(folder / "play.yml"), "-i", str(folder / "hosts.yml")],
        cwd=ROOT, capture_output=True, text=True, check=False,
        env={**os.environ, "ANSIBLE_CONNECTION_PLUGINS": str(ROOT / "tests/plugins/connection")},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    calls = [json.loads(line) for line in (folder / "node.log").read_text("utf-8").splitlines()]
    entries = [entry for call in calls if call["module"] == "managed_files" for entry in call["args"]["files"]]
    return {entry["path"]: entry["content"] for entry in entries}


def test_nccl_and_ucx_are_told_the_names_that_devices_have_after_the_reboot(tmp_path: Path) -> None:
    files = written(tmp_path)
    assert f"NCCL_IB_HCA=={AFTER}\n" in files["/etc/nccl.conf"]
    assert BEFORE not in files["/etc/nccl.conf"]
    assert f"UCX_NET_DEVICES={AFTER}:1\n" in files["/etc/ucx/ucx.conf"]


def test_the_reboot_stage_does_so() -> None:
    perform = yaml.safe_load((ROOT / "roles/reboot/tasks/perform.yml").read_text("utf-8"))
    (block,) = (task["block"] for task in perform if task["name"] == "Verify the node")
    roles = [task["ansible.builtin.include_role"] for task in block if "ansible.builtin.include_role" in task]
    assert {"name": "cuda", "tasks_from": "rebooted"} in roles
