"""The barrier of reboots and nodes that fail it: one of twenty is left out, one of a few stops the rest."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.support.node_modules import ROOT

pytestmark = pytest.mark.computes

REASON = "/run/elastic-ai/reboot-required/nvidia_driver"
BOOT_ID = "/proc/sys/kernel/random/boot_id"
AFTER = (
    "\n- {name: The next stage, hosts: all, gather_facts: false, tasks: [{ansible.builtin.debug: {msg: goes on}}]}\n"
)


def passed(folder: Path, nodes: int, *options: str, failing: int = 3, stage: str = "") -> tuple[dict[str, str], str]:
    """What each node's line of the recap says, after the barrier and a stage behind it, and the whole output. Of
    one node systemd does not answer, so the role fails there. `stage`: plays instead of the barrier's."""
    hosts = {}
    for number in range(1, nodes + 1):
        state = {"contents": {REASON: "nouveau holds the GPUs\n", BOOT_ID: f"0000-{number}"}, "reboot_hints": []}
        facts = {"subsets": ["min", "virtual"], "ansible_facts": {}}
        said = {"stdout": "", "rc": int(number == failing), "stderr": "Failed to connect to bus"}
        file = folder / f"gpu{number:02}.json"
        file.write_text(json.dumps(facts | {"modules": {"node_state": state}, "commands": {"systemctl *": said}}))
        hosts[file.stem] = {"canned_recording": str(file)}
    common = {"ansible_connection": "canned"}
    (folder / "hosts.yml").write_text(
        yaml.safe_dump({"all": {"vars": common, "hosts": hosts, "children": {"heads": {"hosts": {"gpu01": {}}}}}})
    )
    site = folder / "site.yml"
    site.write_text((stage or f"- ansible.builtin.import_playbook: {ROOT}/playbooks/reboot.yml") + AFTER)
    done = subprocess.run(
        ["ansible-playbook", site, "-i", folder / "hosts.yml", "--check", "-e", "reboot=if_needed", *options],
        cwd=ROOT, capture_output=True, text=True, check=False,
        env={**os.environ, "ANSIBLE_CONNECTION_PLUGINS": str(ROOT / "tests/plugins/connection")},
    )  # fmt: skip
    assert "Failed to connect to bus" in done.stdout, done.stdout + done.stderr
    return dict(re.findall(r"^(gpu\d\d) +: +(.*)$", done.stdout, re.MULTILINE)), done.stdout


def went_on(out: str) -> set[str]:
    return set(re.findall(r"^ok: \[(gpu\d\d)\] => \n? *msg: goes on", out, re.MULTILINE))


def test_one_of_twenty_is_left_out_and_named_and_the_others_go_on(tmp_path: Path) -> None:
    recap, out = passed(tmp_path, 40, "-e", "reboot_batch=50%")
    assert [name for name, counts in recap.items() if "failed=1" in counts] == ["gpu03"]
    assert went_on(out) == {name for name in recap if name != "gpu03"}
    assert sum("changed=1" in counts for counts in recap.values()) == 39, "each of the others was rebooted"


@pytest.mark.parametrize(("nodes", "options"), [(8, ()), (40, ("-e", "reboot_max_fail_percentage=0"))])
def test_one_of_a_few_stops_the_batches_after_it(tmp_path: Path, nodes: int, options: tuple[str, ...]) -> None:
    recap, out = passed(tmp_path, nodes, "-e", "reboot_batch=50%", *options)
    assert not went_on(out)
    assert sum("changed=1" in counts for counts in recap.values()) < nodes / 2 + 1, "the second batch was not begun"


FIRST = f"""
- hosts: all
  gather_facts: false
  tasks:
    - {{ansible.builtin.group_by: {{key: elastic_ai_reboot_first}}}}
    - {{ansible.builtin.set_fact: {{preflight_first_kernel: 6.8.0-90-generic}}}}
- ansible.builtin.import_playbook: {ROOT}/playbooks/reboot_first.yml
"""


@pytest.mark.parametrize("stage", ["", FIRST], ids=["barrier", "first"])
def test_the_head_is_no_node_to_be_left_out(tmp_path: Path, stage: str) -> None:
    """Later stages read its variables: without it each of them would die in words about undefined ones."""
    recap, out = passed(tmp_path, 40, "-e", "reboot_batch=50%", failing=1, stage=stage)
    text = " ".join(out.split())
    assert "gpu01 is the first head, and its reboot failed" in text
    assert "Not touched: gpu21, gpu22" in text
    assert not went_on(out)
    begun = set(re.findall(r"^changed: \[(gpu\d\d)\]", out.partition("reboot : Reboot]")[2], re.MULTILINE))
    assert begun == {f"gpu{number:02}" for number in range(2, 21)}, "the second batch was not begun"
    assert recap["gpu40"]


def test_the_first_reboot_leaves_the_facts_of_the_new_kernel(tmp_path: Path) -> None:
    """Facts that were gathered before are of the old one, and the headers of the drivers are chosen by them."""
    state = {"contents": {BOOT_ID: "0000-1"}, "reboot_hints": [], "kernel": "6.8.0-90-generic"}
    facts = {"subsets": ["min", "virtual"], "ansible_facts": {"ansible_kernel": "6.8.0-90-generic"}}
    recording = {**facts, "modules": {"node_state": state}, "commands": {"systemctl *": {"stdout": ""}}}
    (tmp_path / "gpu01.json").write_text(json.dumps(recording))
    common = {"ansible_connection": "canned", "canned_recording": str(tmp_path / "gpu01.json")}
    (tmp_path / "hosts.yml").write_text(yaml.safe_dump({"all": {"vars": common, "hosts": {"gpu01": {}}}}))
    before = "- ansible.builtin.set_fact: {ansible_kernel: 6.8.0-87-generic, cacheable: true}"
    seen = "- ansible.builtin.debug: {msg: 'runs {{ ansible_facts.kernel }}'}"
    (tmp_path / "site.yml").write_text(
        f"- hosts: all\n  gather_facts: false\n  tasks:\n    {before}\n    {seen}\n{FIRST}"
        f"- hosts: all\n  gather_facts: false\n  tasks:\n    {seen}\n"
    )
    done = subprocess.run(
        ["ansible-playbook", tmp_path / "site.yml", "-i", tmp_path / "hosts.yml", "--check"],
        cwd=ROOT, capture_output=True, text=True, check=False,
        env={**os.environ, "ANSIBLE_CONNECTION_PLUGINS": str(ROOT / "tests/plugins/connection")},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.findall(r"runs (\S+-generic)", done.stdout) == ["6.8.0-87-generic", "6.8.0-90-generic"]


@pytest.mark.parametrize("runs", ["6.8.0-87-generic", "6.8.0-90-generic"])
def test_a_first_reboot_in_vain_is_kept_where_preflight_reads_it(tmp_path: Path, runs: str) -> None:
    """What follows the reboot in first.yml, with files written for real, in a folder of the test."""
    tasks = yaml.safe_load((ROOT / "roles/reboot/tasks/first.yml").read_text())
    after = tasks[1 + next(n for n, task in enumerate(tasks) if "ansible.builtin.include_tasks" in task) :]
    names = {
        role: yaml.safe_load((ROOT / f"roles/{role}/vars/main.yml").read_text()) for role in ("reboot", "preflight")
    }
    assert names["reboot"]["__reboot_tried"] == names["preflight"]["__preflight_tried"]
    given = {
        "__reboot_tried": str(tmp_path / "run/first-kernel"),
        "preflight_first_kernel": "6.8.0-90-generic",
        "reboot_node_now": {"kernel": runs},
    }
    play = {"hosts": "localhost", "connection": "local", "gather_facts": False, "vars": given, "tasks": after}
    (tmp_path / "site.yml").write_text(yaml.safe_dump([play]))
    done = subprocess.run(
        ["ansible-playbook", tmp_path / "site.yml", "-i", "localhost,"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    kept = tmp_path / "run/first-kernel"
    good = runs == given["preflight_first_kernel"]
    assert (done.returncode == 0, kept.exists()) == (good, not good), done.stdout + done.stderr
    if not good:
        assert kept.read_text().strip() == "6.8.0-90-generic"
        assert "does not reboot the node for this kernel a second time" in " ".join(done.stdout.split())


def test_the_machine_that_ansible_runs_on_ends_nothing(tmp_path: Path) -> None:
    """It is left to its operator, and the others are rebooted."""
    states = {"ctl": Path(BOOT_ID).read_text(), "gpu01": "0000-1"}
    hosts = {}
    for name, own in states.items():
        state = {"contents": {REASON: "nouveau holds the GPUs\n", BOOT_ID: own}, "reboot_hints": []}
        commands = {"systemctl *": {"stdout": ""}}
        (tmp_path / f"{name}.json").write_text(json.dumps({"modules": {"node_state": state}, "commands": commands}))
        hosts[name] = {"canned_recording": str(tmp_path / f"{name}.json")}
    common = {"ansible_connection": "canned"}
    (tmp_path / "hosts.yml").write_text(yaml.safe_dump({"all": {"vars": common, "hosts": hosts}}))
    (tmp_path / "site.yml").write_text(f"- ansible.builtin.import_playbook: {ROOT}/playbooks/reboot.yml{AFTER}")
    done = subprocess.run(
        ["ansible-playbook", tmp_path / "site.yml", "-i", tmp_path / "hosts.yml", "--check", "-e", "reboot=if_needed"],
        cwd=ROOT, capture_output=True, text=True, check=False,
        env={**os.environ, "ANSIBLE_CONNECTION_PLUGINS": str(ROOT / "tests/plugins/connection")},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    text = " ".join(done.stdout.split())
    assert "ctl needs a reboot: nvidia_driver: nouveau holds the GPUs. This is the machine" in text
    recap = dict(re.findall(r"^(ctl|gpu01) +: +(.*)$", done.stdout, re.MULTILINE))
    assert ("changed=0" in recap["ctl"], "changed=1" in recap["gpu01"]) == (True, True)
