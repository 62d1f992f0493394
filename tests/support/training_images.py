"""Sites whose training image is asked for: role horovod run over recordings, and what it wrote and ran there."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.support.node_modules import ROOT

SET = yaml.safe_load((ROOT / "stacks/current.yml").read_text())["stack_data"]["sets"]["ubuntu2404"]["horovod"]
FACTS = {"distribution": "Ubuntu", "distribution_release": "noble", "architecture": "x86_64"}
BOOKWORM = {**FACTS, "distribution": "Debian", "distribution_release": "bookworm"}
PLAY = """
- hosts: all
  gather_facts: false
  tasks:
    - ansible.builtin.set_fact:
        ansible_facts: "{{ told_facts }}"
        horovod_proxy: {stdout: ""}
    - elastic_ai.toolkit.node_state: {contents: [/etc/apt/sources.list.d/*]}
      register: horovod_node
    - ansible.builtin.include_role: {name: elastic_ai.toolkit.horovod, tasks_from: "{{ told_tasks }}", public: true}
      when: inventory_hostname in told_hosts
    - ansible.builtin.debug: {msg: "RESULT {{ horovod_result.not_applicable }}"}
      when: horovod_result is defined
    - ansible.builtin.debug: {msg: "TAG {{ inventory_hostname }} {{ __horovod_tag }} {{ __horovod_suite }}"}
      when: __horovod_tag is defined
"""
SOURCES = "Types: deb\nURIs: http://mirror.example/ubuntu\nSuites: {}\nComponents: main universe restricted\n"
VENDOR = {"torch": "2.14.1", "horovod": "", "horovod_nccl": False, "openmpi": "", "nccl": "2.30.7"}
READY = "registry.example/vendor:1"
ETC = "/etc/elastic-ai/training"


def case(
    tasks: str = "recipe",
    facts: dict[str, str] | None = None,
    server: dict[str, Any] | None = None,
    recording: dict[str, Any] | None = None,
    **variables: Any,
) -> dict[str, Any]:
    """A site of a head and a server that no host stands behind, what is run on it, and its variables."""
    told = facts or FACTS
    state = {"contents": {"/etc/apt/sources.list.d/x.sources": SOURCES.format(told["distribution_release"])}}
    common = {
        "told_tasks": tasks,
        "told_facts": told,
        "told_hosts": ["head1", "gpu1"],
        "stack_set": {"horovod": SET, "ofed": {"provider": "inbox"}},
        **variables,
    }
    plain = {"modules": {"node_state": state}, "commands": {"*": {"rc": 0, "stdout": ""}}}
    return {"common": common, "server": server or {"bom": {"gpu_count": 8}}, "recording": recording or plain}


def pulled(found: dict[str, Any]) -> dict[str, Any]:
    """A node that pulls a ready image with this in it."""
    commands = {
        "docker run *": {"rc": 0, "stdout": json.dumps(found)},
        "docker image inspect *": {"rc": 0, "stdout": '["registry.example/vendor@sha256:12"]'},
        "*": {"rc": 0, "stdout": ""},
    }
    return case("image", recording={"commands": commands}, horovod_image=READY)


def built(found: dict[str, Any]) -> dict[str, Any]:
    """A head that has made an image with TensorFlow, and finds this in it."""
    made = pulled(found)
    del made["common"]["horovod_image"]
    return {
        **made,
        "server": {"bom": {"gpu_count": 0}},
        "common": {**made["common"], "told_hosts": ["head1"], "told_facts": BOOKWORM, "horovod_with_tensorflow": True},
    }


def has(horovod: str) -> dict[str, Any]:
    """A node that has all, and an image with this Horovod."""
    record = {"reference": READY, "digest": "sha256:12", "versions": {**VENDOR, "horovod": horovod}}
    keys = ("id_ed25519", "ssh_host_ed25519_key", "ssh_host_ed25519_key-cert.pub", "ca")
    units = ("docker.service", "elastic-ai-training.service")
    state = {
        "files": dict.fromkeys((f"{ETC}/{name}" for name in keys), 1),
        "contents": {f"{ETC}/image.json": json.dumps(record)},
        "units": {name: {"active": True, "enabled": True} for name in units},
        "users": {"elastic-ai-train": True},
    }
    commands = {"/usr/local/bin/*": {"rc": 0, "stdout": "gpu1"}, "*": {"rc": 0, "stdout": ""}}
    recording = {"modules": {"node_state": state}, "commands": commands}
    return case("present", recording=recording, horovod_image=READY, canned_node="converged")


def cases(wheels: Path) -> dict[str, dict[str, Any]]:
    """All that is run, in one process, for starting Ansible takes longer than each of them."""
    doca = {"horovod": SET, "ofed": {"provider": "doca"}}
    index, proxy = "https://mirror.example/simple", "http://proxy.example:3128"
    processors = {"facts": BOOKWORM, "server": {"bom": {"gpu_count": 0}}}
    return {
        "tensorflow": case(**processors, horovod_with_tensorflow=True, horovod_pip_index=index),
        "tensorflow of wheels": case(**processors, horovod_with_tensorflow=True, horovod_wheels=str(wheels)),
        "tensorflow on GPUs": case("present", horovod_with_tensorflow=True),
        "no tensorflow": case(
            "present", **processors, horovod_with_tensorflow=True, stack_set={"horovod": {"version": "0.28.1"}}
        ),
        "image without TensorFlow": built({**VENDOR, "horovod": "0.28.1", "tensorflow": ""}),
        "image with TensorFlow": built({**VENDOR, "horovod": "0.28.1", "tensorflow": "2.15.1"}),
        "gpus": case(),
        "site": case(horovod_pip_index=index, horovod_pip_proxy=proxy, horovod_build_jobs=3),
        "doca": case(stack_set=doca),
        "torch": case(horovod_torch="2.14.0"),
        "timm": case(horovod_timm="1.0.30"),
        "build": case(horovod_packages_build_cuda=["g++"]),
        "wheels": case(horovod_wheels=str(wheels)),
        "debian": case(facts=BOOKWORM),
        "none": case(facts=BOOKWORM, server={"bom": {"gpu_count": 0}}),
        "left out": case(facts=BOOKWORM, server={"bom": {"gpu_count": 8}, "horovod_state": "absent"}),
        "el": case("present", facts={**FACTS, "distribution": "Rocky"}),
        "no checksums": case("present", horovod_torch="2.14.0"),
        "no checksum of Horovod": case("present", horovod_version="0.28.2"),
        "no torch": case("present", stack_set={"horovod": {"version": "0.28.1"}}),
        "processors on Ubuntu": case("present", horovod_cuda=False),
        "vendor": pulled(VENDOR),
        "vendor with Horovod": pulled({**VENDOR, "horovod": "0.28.1"}),
        "vendor without torch": pulled({**VENDOR, "torch": ""}),
        "here without Horovod": has(""),
        "here with Horovod": has("0.28.1"),
    }


@dataclass
class Ran:
    """What a run said and what it asked of the nodes."""

    said: str
    calls: list[dict[str, Any]]

    @property
    def failed(self) -> bool:
        return not re.search(r"head1 +: .*failed=0", self.said)

    def of(self, *modules: str) -> list[dict[str, Any]]:
        return [call for call in self.calls if call["module"] in modules]

    @property
    def files(self) -> dict[str, str]:
        """What was written on the head, by name."""
        calls = [call for call in self.of("managed_files") if call["host"] == "head1"]
        entries = [entry for call in calls for entry in call["args"].get("files") or []]
        return {Path(entry["path"]).name: str(entry.get("content")) for entry in entries}

    @property
    def tags(self) -> set[str]:
        return set(re.findall(r"TAG \w+ (\w+) \w+", self.said))

    @property
    def suite(self) -> str:
        return re.findall(r"TAG head1 \w+ (\w+)", self.said)[0]


def played(root: Path) -> dict[str, Ran]:
    """Every case, run in one process."""
    wheels, play = root / "wheels", root / "play.yml"
    wheels.mkdir()
    (wheels / "torch-2.14.1-py3-none-any.whl").write_text("a wheel")
    play.write_text(PLAY)
    (root / "templates").symlink_to(
        ROOT / "roles/horovod/templates"
    )  # for the tag, which is asked for outside of the role
    asked, folders = cases(wheels), {}
    for number, (name, one) in enumerate(asked.items()):
        folder = folders[name] = root / str(number)
        folder.mkdir()
        (folder / "node.json").write_text(json.dumps(one["recording"]))
        common = {
            "ansible_connection": "canned",
            "canned_recording": str(folder / "node.json"),
            "canned_log": str(folder / "log"),
            "horovod_cache": str(folder / "cache"),
            **one["common"],
        }
        groups = {"heads": {"hosts": {"head1": {}}}, "gpu_servers": {"hosts": {"gpu1": one["server"]}}}
        (folder / "hosts.yml").write_text(yaml.safe_dump({"all": {"vars": common, "children": groups}}))
    pairs = [f"{folder / 'hosts.yml'}:{folder / 'said'}" for folder in folders.values()]
    environment = {
        **os.environ,
        "ANSIBLE_CONNECTION_PLUGINS": str(ROOT / "tests/plugins/connection"),
        "ANSIBLE_NOCOLOR": "1",
        "HOME": str(root),
    }
    command = [sys.executable, str(ROOT / "tests/support/playbooks.py"), *pairs, "--", str(play)]
    subprocess.run(command, cwd=ROOT, env=environment, check=True, timeout=900)
    found = {}
    for name, folder in folders.items():
        log = folder / "log"
        lines = log.read_text().splitlines() if log.is_file() else []
        found[name] = Ran((folder / "said").read_text(), [json.loads(line) for line in lines])
    return found
