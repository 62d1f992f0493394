"""Strategy linear_here against linear: the same play on the same hosts, told the same, with fewer processes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.warm import ansible

PLAY = """
- hosts: all
  gather_facts: false
  strategy: STRATEGY
  vars: {listed: [1, 2]}
  tasks:
    - {name: Who, ansible.builtin.set_fact: {worked_by: "{{ lookup('pipe', 'echo $PPID') }}"}}
    - {name: Say who, ansible.builtin.debug: {msg: "worked by {{ worked_by }}"}}
    - {name: On two, ansible.builtin.command: {cmd: echo x}, when: inventory_hostname != 'b', register: said,
       notify: Handled}
    - {name: Left out, ansible.builtin.command: {cmd: echo y}, when: said is skipped, register: again,
       changed_when: false}
    - {name: Registered, ansible.builtin.debug: {msg: "{{ said.stdout | default('none') }} {{ again is skipped }}"}}
    - {name: Looped, ansible.builtin.set_fact: {sums: "{{ sums | default(0) | int + item }}"}, loop: "{{ listed }}"}
    - {name: Included, ansible.builtin.include_tasks: more.yml, loop: "{{ listed }}", when: inventory_hostname != 'a'}
    - name: Caught
      block:
        - {name: Must hold, ansible.builtin.assert: {that: inventory_hostname != 'c', quiet: true}}
        - {name: After it, ansible.builtin.debug: {msg: went on}}
      rescue:
        - {name: Rescued, ansible.builtin.debug: {msg: "{{ ansible_failed_task.name }}"}}
    - {name: Hidden, ansible.builtin.debug: {msg: secret-word}, no_log: true}
    - {name: Once, ansible.builtin.set_fact: {once: "{{ inventory_hostname }}"}, run_once: true}
    - {name: Of all, ansible.builtin.debug: {msg: "{{ once }} {{ hostvars.b.sums }}"}, delegate_to: a}
    - {name: Waits, ansible.builtin.assert: {that: tries is defined}, until: false, retries: 1, delay: 0,
       ignore_errors: true}
    - {name: Undefined, ansible.builtin.debug: {msg: "{{ nowhere }}"}, ignore_errors: true}
    - {name: Undefined condition, ansible.builtin.command: {cmd: echo z}, when: nowhere, ignore_errors: true}
    - {name: Stops, ansible.builtin.fail: {msg: enough}, when: inventory_hostname == 'b'}
    - {name: Without b, ansible.builtin.debug: {msg: the others}}
  handlers:
    - {name: Handled, ansible.builtin.debug: {msg: handled}}
"""


def told(folder: Path, strategy: str) -> tuple[dict[str, list[str]], set[str]]:
    """The lines under each heading, in any order of hosts; and the processes that set the first fact.

    Each line once: of an error that a retried task repeats, two threads of Ansible decide whether it is shown again.
    """
    (folder / "more.yml").write_text("- {name: Of a file, ansible.builtin.debug: {msg: '{{ item }} {{ sums }}'}}\n")
    (folder / "play.yml").write_text(PLAY.replace("STRATEGY", strategy))
    done = ansible(
        "ansible-playbook", str(folder / "play.yml"), "-i", "a,b,c,", "-c", "local",
        "-e", "ansible_python_interpreter={{ ansible_playbook_python }}", ANSIBLE_NOCOLOR="1",
    )  # fmt: skip
    assert "PLAY RECAP" in done.stdout, done.stdout + done.stderr
    assert done.returncode == 2, "one host fails, as it must"
    workers = set(re.findall(r"worked by (\d+)", done.stdout))
    said = re.sub(r"worked by \d+|'?(start|end|delta)'?: .*", "", done.stdout)
    parts = [part for part in re.split(r"\n(?=TASK|RUNNING HANDLER|PLAY)", said) if part.strip()]
    return {
        f"{number} {part.splitlines()[0]}": sorted(set(part.splitlines())) for number, part in enumerate(parts)
    }, workers


@pytest.fixture(scope="module")
def linear(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, list[str]], set[str]]:
    return told(tmp_path_factory.mktemp("linear"), "linear")


def test_it_tells_what_linear_tells(linear: tuple[dict[str, list[str]], set[str]], tmp_path: Path) -> None:
    expected, workers = linear
    assert len(workers) == 3, "linear forks a process for each host"
    assert any("secret-word" in line for lines in expected.values() for line in lines) is False
    found, here = told(tmp_path, "elastic_ai.toolkit.linear_here")
    assert {key: [line.replace(str(tmp_path), "") for line in lines] for key, lines in found.items()} == {
        key: [re.sub(r"/\S*/linear0", "", line) for line in lines] for key, lines in expected.items()
    }
    assert len(here) == 1, "one process for all hosts"
