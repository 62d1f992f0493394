"""`toolkit deploy` through the real ansible-runner, on small playbooks that run on this machine."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support import answers
from tests.support.warm import command
from validation.model.built import Deployment

pytestmark = pytest.mark.computes

ROOT = Path(__file__).resolve().parents[2]
# The command over another folder than the checkout's, in a process of its own, with Ctrl-C as a shell would leave it.
START = """
import signal, sys
from pathlib import Path
signal.signal(signal.SIGINT, signal.default_int_handler)
from toolkit.deploy import carried_out
carried_out.ROOT = Path(sys.argv.pop(1))
from toolkit.cli import main
main()
"""
HOSTS = """
all:
  vars: {ansible_connection: local, ansible_python_interpreter: %s}
  hosts:
    one:
    two:
"""
SITE = """
- name: Base system
  ansible.builtin.import_playbook: base.yml
- name: Training
  ansible.builtin.import_playbook: training.yml
"""
BASE = """
- name: First
  hosts: all
  gather_facts: false
  tasks:
    - name: Have a file
      ansible.builtin.copy:
        content: done
        dest: "{{ playbook_dir }}/{{ inventory_hostname }}.done"
        mode: "0600"
"""
TEARDOWN = """
- name: Remove the base system
  hosts: all
  gather_facts: false
  tasks:
    - name: Remove the file
      ansible.builtin.file:
        path: "{{ playbook_dir }}/../{{ inventory_hostname }}.done"
        state: absent
"""
TRAINING = """
- name: Second
  hosts: all
  gather_facts: false
  tasks:
    - name: Do what this test wants
      ansible.builtin.command: {argv: %s}
      changed_when: false
"""


class Site:
    """A folder with site.yml and an inventory, and the command over it."""

    def __init__(self, folder: Path, argv: str) -> None:
        self.folder = folder
        self.env = {**os.environ, "XDG_STATE_HOME": str(folder / "state"), "PYTHONPATH": str(ROOT)}
        (folder / "inventory").mkdir()
        (folder / "inventory/hosts.yml").write_text(HOSTS % sys.executable)
        (folder / "ansible.cfg").write_text("[inventory]\nany_unparsed_is_failed = true\n")
        (folder / "site.yml").write_text(SITE)
        (folder / "base.yml").write_text(BASE)
        (folder / "training.yml").write_text(TRAINING % argv)

    def words(self, *arguments: str) -> list[str]:
        return [sys.executable, "-c", START, str(self.folder), "deploy", *arguments]

    def deploy(self, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
        program = self.folder / "start.py"
        program.write_text(START)
        words = (str(self.folder), "deploy", *(arguments or ("-i", "inventory")))
        return command(self.folder, words, {**self.env, **env}, program)

    def teardown(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """The command over playbooks/teardown.yml of this folder, which takes the files of base.yml away."""
        (self.folder / "playbooks").mkdir(exist_ok=True)
        (self.folder / "playbooks/teardown.yml").write_text(TEARDOWN)
        program = self.folder / "start.py"
        program.write_text(START)
        return command(self.folder, (str(self.folder), "teardown", "-i", "inventory", *arguments), self.env, program)

    def logs(self) -> list[str]:
        return [path.read_text() for path in sorted((self.folder / "state").rglob("*.log"))]

    def record(self) -> list[Deployment]:
        """The deployments that are on record."""
        (path,) = (self.folder / "state").rglob("built.jsonl")
        return [Deployment.model_validate_json(line) for line in path.read_text().splitlines()]

    def wait_for_sleep(self, process: subprocess.Popen[str]) -> None:
        """Until the task of the second stage runs."""
        for _ in range(600):
            if (self.folder / "asleep").exists():
                return
            assert process.poll() is None, process.communicate()
            time.sleep(0.1)
        raise AssertionError("the task never began")


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path, "['true']")


@pytest.fixture
def sleeper(tmp_path: Path) -> Site:
    """Its second stage says that it runs, and then takes a while."""
    return Site(tmp_path, f"[sh, -c, 'touch {tmp_path}/asleep; exec sleep 120']")


def playing(folder: Path) -> list[bytes]:
    """Command lines of Ansible on this folder. What a task itself started on a node may outlive it, and does so over
    ssh: nothing is claimed of that."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):  # ended meanwhile
            found.append(path.read_bytes())
    return [words for words in found if b"ansible-playbook" in words and os.fsencode(folder) in words]


def test_a_site_is_deployed_from_any_folder_and_the_next_run_knows_how_long_it_takes(
    site: Site, tmp_path: Path
) -> None:
    first = site.deploy()
    assert (first.returncode, first.stdout.splitlines()) == (
        0,
        ["one  ok: changed base 1", "two  ok: changed base 1"],
    ), first.stderr
    assert "[1/2] base on one, two" in first.stderr
    assert " left" not in first.stderr, "nobody knows how long a site's first run takes"
    assert "\x1b" not in first.stdout + first.stderr
    log = Path(first.stderr.splitlines()[0].removeprefix("log: "))
    assert first.stderr.splitlines()[-1].endswith(f"log: {log}")
    assert "changed: [one]" in log.read_text()
    assert "PLAY RECAP" in log.read_text()
    (last,) = tmp_path.rglob("last-*run.json")
    known = json.loads(last.read_text()) | {"total_s": 600.0}  # a busy machine may take longer than the first time
    last.write_text(json.dumps(known))
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    again = subprocess.run(
        site.words("-i", "../inventory"), cwd=elsewhere, env=site.env, capture_output=True, text=True, check=False
    )
    assert (again.returncode, again.stdout) == (0, "one  ok: nothing changed\ntwo  ok: nothing changed\n")
    assert re.search(r"^\[1/2\] base on one, two   \d+s elapsed, about [\dms]+ left$", again.stderr, re.MULTILINE)
    assert "[2/2]" not in again.stderr, "no two lines within 15 seconds"


def test_a_check_changes_nothing(site: Site) -> None:
    done = site.deploy("-i", "inventory", "--dry-run", "--limit", "one", "--quiet")
    assert (done.returncode, done.stdout) == (0, "one  ok: would change base 1\n")
    assert len(done.stderr.splitlines()) == 1, "the end, and no progress"
    assert not list(site.folder.glob("*.done"))


def test_a_failing_node_ends_with_1_and_ansibles_own_words_and_is_on_record(tmp_path: Path) -> None:
    site = Site(tmp_path, "[sh, -c, 'echo disk on fire >&2; exit {{ (inventory_hostname == \"one\") | int }}']")
    done = site.deploy()
    assert done.returncode == 1
    one, two = done.stdout.splitlines()
    assert one.startswith("one  FAILED at Do what this test wants: ")
    assert "return code: disk on fire. Next: correct that, then: toolkit deploy -i " in one
    assert two == "two  ok: changed base 1"
    assert "Traceback" not in done.stderr
    (recorded,) = site.record()
    assert {n.node: n.outcome for n in recorded.nodes} == {"one": "failed", "two": "ok"}
    assert recorded.nodes[0].failure.startswith("Do what this test wants: ")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("-i", "inventory", "--limit", "three"), "--limit three: no such node or group; there are: one, two\n"),
        (("-i", "inventory", "--limit", "one,three"), "--limit three: no such node or group; there are: one, two\n"),
        (("-i", "broken.yml"), "broken.yml:1: not valid YAML: "),
        (("-i", "vaulted"), "Decryption failed"),
        (("-i", "nowhere"), "nowhere: no such file; "),
    ],
)
def test_bad_input_is_one_message_and_exit_2(site: Site, arguments: tuple[str, ...], words: str) -> None:
    (site.folder / "broken.yml").write_text("all: [}\n")
    if "vaulted" in arguments:
        secrets = site.folder / "vaulted/group_vars/all.yml"
        secrets.parent.mkdir(parents=True)
        shutil.copy(site.folder / "inventory/hosts.yml", site.folder / "vaulted")
        secrets.write_text("password: hidden\n")
        for name in ("right", "wrong"):
            (site.folder / name).write_text(name)
        vault = [Path(sys.executable).with_name("ansible-vault"), "encrypt", "--vault-password-file", "right", secrets]
        subprocess.run(vault, cwd=site.folder, check=True, capture_output=True)
        arguments = (*arguments, "--", "--vault-password-file", "wrong")
    done = site.deploy(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    errors = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1, done.stderr
    assert f"{errors[0]}\n".startswith(f"error: {words.format(site.folder)}")
    assert done.stderr.count(words.format(site.folder)) == 1
    assert "Traceback" not in done.stderr
    assert not list(site.folder.glob("*.done"))


def test_a_missing_ansible_playbook_is_one_line(site: Site, tmp_path: Path) -> None:
    bare = tmp_path / "bin"
    bare.mkdir()
    (bare / "python").symlink_to(sys.executable)
    library = Path(next(p for p in sys.path if p.endswith("site-packages")))
    words = [str(bare / "python"), *site.words("-i", "inventory")[1:]]
    env = {**site.env, "PATH": "/usr/bin:/bin", "PYTHONPATH": f"{ROOT}:{library}"}
    done = subprocess.run(words, cwd=site.folder, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert [line for line in done.stderr.splitlines() if not line.startswith("log: ")] == [
        f"error: ansible-playbook is not installed: {bare}/python -m pip install ansible-core"
    ]


def test_an_interrupt_stops_ansible_and_the_same_command_goes_on(sleeper: Site) -> None:
    process = subprocess.Popen(
        sleeper.words("-i", "inventory"),
        cwd=sleeper.folder,
        env=sleeper.env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    sleeper.wait_for_sleep(process)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert out.splitlines() == ["one  interrupted; changed base 1", "two  interrupted; changed base 1"]
    assert "continue with: toolkit deploy -i " in err
    assert "Traceback" not in err
    assert "interrupted; changed base 1" in sleeper.logs()[-1]
    assert not playing(sleeper.folder)
    (sleeper.folder / "training.yml").write_text(TRAINING % "['true']")
    again = sleeper.deploy()
    assert (again.returncode, again.stdout) == (0, "one  ok: nothing changed\ntwo  ok: nothing changed\n")


def test_a_terminal_shows_what_runs_and_its_loss_stops_ansible(sleeper: Site) -> None:
    terminal, inner = pty.openpty()
    process = subprocess.Popen(
        sleeper.words("-i", "inventory"),
        cwd=sleeper.folder,
        env={**sleeper.env, "TERM": "xterm", "COLUMNS": "150"},
        stdin=inner,
        stdout=inner,
        stderr=inner,
        text=True,
        start_new_session=True,
    )
    os.close(inner)
    sleeper.wait_for_sleep(process)
    shown = ""
    for wanted in ("[2/2] training: Do what this test wants", "stage 2/2"):
        while wanted not in shown:  # read() raises when the process is gone
            shown += os.read(terminal, 1 << 20).decode(errors="replace")
    os.close(terminal)
    process.send_signal(signal.SIGHUP)  # what the kernel sends to the session that had this terminal
    assert process.wait(timeout=60) == 130
    assert "one  interrupted; changed base 1" in sleeper.logs()[-1]
    assert not playing(sleeper.folder)


PREFLIGHT = """
- name: Preflight
  hosts: all
  gather_facts: false
  any_errors_fatal: true
  tasks:
    - name: Collect preflight findings
      ansible.builtin.set_fact:
        preflight_reasons: "{{ ['not root', 'no memory'] if inventory_hostname in unfit else [] }}"
        preflight_indispensable: "{{ inventory_hostname == head and inventory_hostname in unfit }}"
      vars: {head: one}
    - name: Assert that the node is fit
      ansible.builtin.assert: {that: preflight_reasons | length == 0, quiet: true}
"""


def test_skip_unfit_goes_on_without_them_and_says_so_to_the_end(site: Site) -> None:
    """Without it nothing is changed on any node; with it a script learns by code 3 that somebody is missing."""
    (site.folder / "preflight.yml").write_text(PREFLIGHT)
    (site.folder / "site.yml").write_text("- ansible.builtin.import_playbook: preflight.yml\n" + SITE)
    arguments = ("-i", "inventory", "--", "-e", "{unfit: [two]}")
    stopped = site.deploy(*arguments)
    assert (stopped.returncode, list(site.folder.glob("*.done"))) == (1, [])
    assert stopped.stdout.splitlines()[:2] == ["two  UNFIT: not root", "            no memory"]
    assert "two failed" not in stopped.stderr, "each finding once"
    skipped = site.deploy("--skip-unfit", *arguments)
    assert skipped.returncode == 3, skipped.stderr
    assert skipped.stdout.splitlines() == [
        "one  ok: changed base 1",
        "two  LEFT OUT: not root; no memory",
        "nothing was changed on two. Next: correct that, and deploy again",
    ]
    assert "going on without two" in skipped.stderr
    assert "deployed without 1 unfit node after" in skipped.stderr
    assert [path.name for path in site.folder.glob("*.done")] == ["one.done"]
    head = site.deploy("--skip-unfit", "-i", "inventory", "--", "-e", "{unfit: [one]}")
    assert (head.returncode, "one is the head, without which there is no site" in head.stdout) == (1, True)


REBOOT = """
- name: Reboots that wait
  hosts: all
  gather_facts: false
  tasks:
    - name: Set the reboot reasons that are left
      ansible.builtin.set_fact:
        reboot_reasons: "{{ ['nvidia_driver: nouveau holds the GPUs'] if reboot | default('never') == 'never'
                            and inventory_hostname == 'one' else [] }}"
"""


def test_a_node_that_waits_for_a_reboot_is_said_and_ends_with_3(site: Site) -> None:
    (site.folder / "reboot_report.yml").write_text(REBOOT)
    (site.folder / "site.yml").write_text(SITE + "- ansible.builtin.import_playbook: reboot_report.yml\n")
    done = site.deploy()
    assert done.returncode == 3, done.stderr
    one, two = done.stdout.splitlines()
    assert one.startswith("one  waits for a reboot: nvidia_driver: nouveau holds the GPUs. Next: toolkit deploy -i ")
    assert one.endswith(" -- -e reboot=if_needed   (changed base 1)")
    assert two == "two  ok: changed base 1"
    assert "deployed up to a reboot after" in done.stderr
    assert site.record()[0].nodes[0].reboot == ("nvidia_driver: nouveau holds the GPUs",)
    consented = site.deploy("-i", "inventory", "--", "-e", "reboot=if_needed")
    assert (consented.returncode, consented.stdout.splitlines()[0]) == (0, "one  ok: nothing changed")
    printed = site.deploy("-i", "inventory", "--json")
    assert printed.returncode == 3
    assert answers.check(printed.stdout, "deployment")["nodes"][0]["reboot"]


def test_a_deployment_that_is_killed_leaves_no_secret_and_the_next_one_cleans_up(sleeper: Site, tmp_path: Path) -> None:
    places = tmp_path / "tmp"
    places.mkdir()
    env = {**sleeper.env, "TMPDIR": str(places), "PASSWORD_OF_THE_VAULT": "correct-horse-battery"}
    process = subprocess.Popen(
        sleeper.words("-i", "inventory"), cwd=sleeper.folder, env=env,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    sleeper.wait_for_sleep(process)
    files = [path for path in sleeper.folder.rglob("*") if path.is_file() and not path.is_symlink()]
    assert [path for path in files if b"correct-horse-battery" in path.read_bytes()] == [], "while it runs"
    process.kill()
    process.wait()
    (room,) = (sleeper.folder / "state").rglob("running")
    assert room.stat().st_mode & 0o777 == 0o700
    files = [path for path in sleeper.folder.rglob("*") if path.is_file() and not path.is_symlink()]
    assert [path for path in files if b"correct-horse-battery" in path.read_bytes()] == [], "after kill -9"
    assert list(places.glob("toolkit-deploy-*")) == []
    for pid in list(Path("/proc").glob("[0-9]*")):  # what it had started on this folder
        with contextlib.suppress(OSError):
            words = (pid / "cmdline").read_bytes()
            if b"ansible-playbook" in words and os.fsencode(sleeper.folder) in words:
                os.kill(int(pid.name), signal.SIGKILL)
    (sleeper.folder / "training.yml").write_text(TRAINING % "['true']")
    again = sleeper.deploy()
    assert again.returncode == 0, again.stderr
    assert not room.exists()


def test_a_checkout_that_is_not_installed_deploys_too(site: Site) -> None:
    """Its version is then that of the checkout."""
    hidden = "import importlib.metadata as m\nreal = m.version\n"
    hidden += "def version(name):\n    if name.startswith('elastic-ai'): raise m.PackageNotFoundError(name)\n"
    hidden += "    return real(name)\nm.version = version\n"
    words = [sys.executable, "-c", hidden + START, str(site.folder), "deploy", "-i", "inventory"]
    done = subprocess.run(words, cwd=site.folder, env=site.env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert site.record()[0].toolkit_version not in ("", "unknown")


def test_a_teardown_takes_back_what_was_deployed_and_asks_before_a_real_site(site: Site) -> None:
    assert site.deploy().returncode == 0
    files = [site.folder / f"{name}.done" for name in ("one", "two")]
    asked = site.teardown()
    assert asked.returncode == 2
    assert "nothing was changed. Give --yes" in asked.stderr
    predicted = site.teardown("--dry-run")
    assert predicted.returncode == 0, predicted.stderr
    assert predicted.stdout.count("would change") == 2
    assert all(path.exists() for path in files), "neither the question nor a prediction may change anything"
    done = site.teardown("--yes")
    assert done.returncode == 0, done.stderr
    assert "taken back after" in done.stderr
    assert not any(path.exists() for path in files)
    assert [one.stages for one in site.record()][-1] == ("Remove the base system",)
    again = site.teardown("--yes", "--json")
    assert [node["changed"] for node in json.loads(again.stdout)["nodes"]] == [0, 0]
