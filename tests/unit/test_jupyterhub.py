"""The hub of notebooks: what a user can choose, what its three programs take, and its one rule of sudo."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jinja2
import pytest
import yaml

from tests.support.node_modules import ROOT, load_filters
from toolkit.lease import LeaseError
from toolkit.lease.kept import folder, starting
from toolkit.lease.notebook import hub, hub_server
from toolkit.login.client import Checked
from toolkit.login.tries import TRIES_EACH

ROLE = ROOT / "roles/jupyterhub"
HOSTILE = (
    "<script>alert(1)</script>", "a\nb", "\u202egpj", "x" * 10_000, "; rm -rf /", "$(id)", "../../etc", "--uid=0",
    "", "1/3", 3, None, ["1/2"], True,
)  # fmt: skip


def load(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


choices = load(ROLE / "files/hub/choices.py")
OFFER = choices.Offer(("1/2", "1/4"), ("v100",), ("PyTorch", "R & <D>"), 4, 12)
GOOD = {"gpus": "2", "part": "1/2", "gpu_class": "v100", "hours": "3", "environment": "PyTorch"}


def test_a_form_becomes_a_choice() -> None:
    form = {name: [value, "ignored"] for name, value in GOOD.items()} | {"_xsrf": ["x"]}
    choice = choices.checked(OFFER, choices.of_form(form))
    assert choice == choices.Choice(2, "1/2", "v100", 3, "PyTorch")
    assert choices.checked(OFFER, choice.options()) == choice, "what JupyterHub keeps is read again"
    assert choices.checked(OFFER, {}) == choices.Choice(1, "1", "", 4, "PyTorch")


@pytest.mark.parametrize("name", list(GOOD))
@pytest.mark.parametrize("value", HOSTILE)
def test_nothing_but_what_is_offered_is_taken(name: str, value: object) -> None:
    if name == "gpu_class" and value == "":
        return  # any
    if name in ("gpus", "hours") and value == 3:
        return
    with pytest.raises(choices.NotOffered) as refused:
        choices.checked(OFFER, GOOD | {name: value})
    assert len(str(refused.value)) < 200
    assert "<script>" not in str(refused.value)


@pytest.mark.parametrize("name", ["cmd", "environment_variables", "<b>"])
def test_other_options_are_refused(name: str) -> None:
    with pytest.raises(choices.NotOffered, match="no such choice"):
        choices.checked(OFFER, GOOD | {name: "x"})


@pytest.mark.parametrize("value", ["0", "5", "-1", "1.5", "٢", "1e1", " 1", "9999999"])
def test_numbers_are_whole_and_within_bounds(value: str) -> None:
    with pytest.raises(choices.NotOffered, match="whole number from 1 to 4"):
        choices.checked(OFFER, GOOD | {"gpus": value})


def test_the_form_shows_names_as_text() -> None:
    page = choices.page(OFFER)
    assert "R &amp; &lt;D&gt;" in page
    assert "<D>" not in page
    for name in GOOD:
        assert f'<label class="form-label" for="{name}">' in page, "each field has its label"


ORDER = {
    "environment": "PyTorch", "count": 1, "part": "1/2", "gpu_class": "", "seconds": 3600,
    "variables": "JUPYTERHUB_API_TOKEN=t0k3n\nJUPYTERHUB_SERVICE_PREFIX=/user/alice/\n",
    "key": "-----BEGIN PRIVATE KEY-----\n", "certificate": "c\n", "authority": "a\n",
}  # fmt: skip


def test_an_order_is_read() -> None:
    order = hub.HubOrder.read(json.dumps(ORDER))
    assert (order.wish.count, order.wish.part, order.wish.seconds) == (1, "1/2", 3600)
    assert hub.HubOrder.read(json.dumps(ORDER | {"part": "1", "seconds": 0})).wish.seconds is None


@pytest.mark.parametrize(
    "change",
    [
        {"variables": "LD_PRELOAD=/tmp/x.so\n"}, {"variables": "JUPYTERHUB_A=1\nPYTHONSTARTUP=/tmp/x\n"},
        {"variables": "JUPYTERHUB_A=1"}, {"environment": "/tmp/python"}, {"environment": "../x"}, {"count": 0},
        {"count": 10**6}, {"part": "2"}, {"part": "$(id)"}, {"gpu_class": "a b"}, {"seconds": -1}, {"extra": 1},
        {"key": 1},
    ],
    ids=str,
)  # fmt: skip
def test_an_order_of_a_hub_that_was_taken_over_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(LeaseError):
        hub.HubOrder.read(json.dumps(ORDER | change))


@pytest.mark.parametrize("key", ["key", "variables"])
def test_no_error_shows_a_secret(key: str) -> None:
    with pytest.raises(LeaseError) as refused:
        hub.HubOrder.read(json.dumps(ORDER | {key: "s3cr3t=\0"}))
    assert "s3cr3t" not in str(refused.value)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A user's, and an environment that is offered."""
    offered = tmp_path / "environments.json"
    offered.write_text(json.dumps({"PyTorch": "/opt/x/bin/python"}))
    monkeypatch.setattr(hub, "ENVIRONMENTS", offered)
    monkeypatch.setattr(folder, "state", lambda: tmp_path / "state")
    (tmp_path / "state").mkdir()
    before = dict(os.environ)
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    os.environ.clear()
    os.environ.update(before)


def test_an_order_s_secrets_are_in_files_of_its_user_alone(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, Any] = {}

    def keep(wish: starting.Wish, arguments: list[str], _say: object, program: str) -> int:
        folder_there = Path(arguments[0])
        seen.update({path.name: stat.S_IMODE(path.stat().st_mode) for path in folder_there.iterdir()})
        seen["words"] = [*wish.words, *arguments, program]
        seen["variables"] = dict(os.environ)
        return 3

    monkeypatch.setattr(starting, "keep", keep)
    monkeypatch.setenv("LD_PRELOAD", "")
    with pytest.raises(LeaseError, match="ended with 3"):
        hub.start(None, hub.HubOrder.read(json.dumps(ORDER)))  # type: ignore[arg-type]
    assert {seen[name] for name in (hub.KEY, hub.ORDER, hub.CERTIFICATE)} == {0o600}
    assert "t0k3n" not in " ".join(seen["words"])
    assert not [name for name in seen["variables"] if name.startswith(("JUPYTERHUB_", "LD_", "SUDO_"))]
    assert list((home / "state/hub").iterdir()) == [], "nothing is left of a server that did not start"


@pytest.mark.parametrize("name", ["../../etc", "x", "", "0123456789abc", "0123456789AB"])
def test_a_server_is_named_by_digits_alone(home: Path, name: str) -> None:
    for call in (hub.look, hub.end):
        with pytest.raises(LeaseError, match="12 hexadecimal digits"):
            call(None, name)  # type: ignore[arg-type]


def test_a_server_that_nobody_knows_has_ended(home: Path) -> None:
    assert hub.look(None, "0123456789ab")["state"] == "ended"  # type: ignore[arg-type]
    hub.end(None, "0123456789ab")  # type: ignore[arg-type]


def test_the_server_listens_with_tls_at_this_machine_alone() -> None:
    variables = ORDER["variables"] + "JUPYTERHUB_SERVICE_URL=http://0.0.0.0:1/\n"
    found = hub_server.environment(variables, Path("/h/state"), 4321)
    assert found["JUPYTERHUB_SERVICE_URL"] == "https://127.0.0.1:4321/user/alice/"
    assert found["JUPYTERHUB_SSL_KEYFILE"] == "/h/state/key.pem"
    assert "--KernelManager.transport=ipc" in hub_server.arguments(), "what kernels print is at no port"


def test_the_server_is_reported_once_it_listens(tmp_path: Path) -> None:
    class App:
        port = 4322

    hub_server.listens(App(), tmp_path)
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("port", "4322")]


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_root_has_no_notebooks(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(LeaseError, match="not of root"):
        hub.main("look", ["0123456789ab"], "")


def sudoers() -> str:
    variables = yaml.safe_load((ROLE / "vars/main.yml").read_text())
    environment = jinja2.Environment(undefined=jinja2.StrictUndefined)
    return environment.from_string((ROLE / "templates/sudoers.j2").read_text()).render(
        variables | {"__jupyterhub_people": ["carol", "%users"]}
    )


def test_the_rule_of_sudo_is_three_programs_as_members_of_groups(tmp_path: Path) -> None:
    rule = sudoers().splitlines()[-1]
    assert rule.startswith("elastic-ai-hub ALL=(carol, %users, !root) NOPASSWD: ")
    programs = [word.split()[0] for word in rule.partition("NOPASSWD: ")[2].split(", ")]
    assert programs == [f"/usr/lib/elastic-ai/jupyterhub/bin/{name}" for name in ("start", "look", "end")]
    assert "SETENV" not in rule
    visudo = shutil.which("visudo") or "/usr/sbin/visudo"
    if Path(visudo).exists():
        (tmp_path / "rule").write_text(sudoers() + "\n")
        done = subprocess.run([visudo, "-cf", tmp_path / "rule"], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


def programs_of(folder: Path, monkeypatch: pytest.MonkeyPatch, body: str) -> Any:
    """Module programs, with a shell script in sudo's place that does not obey the hub's kill."""
    programs = load(ROLE / "files/hub/programs.py")
    (folder / "sudo").write_text(f"#!/bin/sh\n{body}\n")
    (folder / "sudo").chmod(0o755)
    monkeypatch.setattr(programs, "SUDO", str(folder / "sudo"))

    def kill(_process: object) -> None:
        raise PermissionError("sudo is root's")

    monkeypatch.setattr(asyncio.subprocess.Process, "kill", kill)
    return programs


def test_a_program_that_does_not_answer_is_reported_in_a_sentence_and_left_to_end_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs = programs_of(tmp_path, monkeypatch, f"exec 1>&-; exec 2>&-; sleep 0.6; touch {tmp_path}/ended")
    monkeypatch.setattr(programs, "ANSWER_S", 0.2)

    async def ask() -> None:
        with pytest.raises(programs.NotStarted, match="the pool does not answer"):
            await programs.call("nobody", "look", "0123456789ab")
        while not (tmp_path / "ended").exists():
            await asyncio.sleep(0.05)

    asyncio.run(asyncio.wait_for(ask(), 20))


def test_a_user_that_this_machine_does_not_know_is_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    programs = programs_of(tmp_path, monkeypatch, "echo '{}'")
    assert asyncio.run(programs.call("nobody", "look")) == {}
    for user in ("no-such-user", "root", "../x", "-u"):
        with pytest.raises(programs.NotStarted, match="no user of this machine has that name"):
            asyncio.run(programs.call(user, "look"))


def test_a_program_ends_itself_before_the_hub_gives_up(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert hub.ANSWER_S < load(ROLE / "files/hub/programs.py").ANSWER_S
    monkeypatch.setattr(hub, "ANSWER_S", 0.2)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(hub, "this_host", lambda: None)
    monkeypatch.setattr(hub, "look", lambda _host, _name: time.sleep(20))
    with pytest.raises(LeaseError, match="the pool does not answer; try again in a minute"):
        hub.main("look", ["0123456789ab"], "")
    monkeypatch.setattr(hub, "look", lambda _host, _name: {})
    assert hub.main("look", ["0123456789ab"], "") == "{}"
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def lost_servers(home: Path, monkeypatch: pytest.MonkeyPatch, leases: dict[str, int | None]) -> list[int]:
    """Servers of an earlier hub that obey no signal; the leases that are cancelled."""
    cancelled: list[int] = []
    for name in leases:
        (home / "state/hub" / name).mkdir(parents=True)
        (home / "state/hub" / name / hub.KEPT).write_text(name)

    class Lost:
        def __init__(self, name: str) -> None:
            self.over = False
            self.status = SimpleNamespace(pid=0, lease=leases[name])

    monkeypatch.setattr(hub.record, "read", lambda path: Lost(path.name))
    monkeypatch.setattr(folder, "programs", lambda: home / "programs")
    monkeypatch.setattr(hub, "ENDS_S", 0.4)
    return cancelled


def test_servers_that_an_earlier_hub_has_lost_are_ended_together(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    leases = {f"{n:012x}": 40 + n for n in range(6)}
    cancelled = lost_servers(home, monkeypatch, leases)
    host = SimpleNamespace(slurm=SimpleNamespace(cancel=cancelled.append))
    monkeypatch.setattr(starting, "keep", lambda *_: 3)
    began = time.monotonic()
    with pytest.raises(LeaseError, match="ended with 3"):
        hub.start(host, hub.HubOrder.read(json.dumps(ORDER)))  # type: ignore[arg-type]
    assert time.monotonic() - began < 2.0, "one after another they take 2.4 s"
    assert sorted(cancelled) == list(leases.values())
    assert list((home / "state/hub").iterdir()) == []


def test_a_server_without_a_lease_that_does_not_end_is_reported_and_kept_in_sight(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost_servers(home, monkeypatch, {"0123456789ab": None})
    with pytest.raises(LeaseError, match="does not end"):
        hub.end(None, "0123456789ab")  # type: ignore[arg-type]
    assert (home / "state/hub/0123456789ab").exists()


def test_passwords_are_tried_by_few_at_a_time_and_few_of_one_address() -> None:
    password = load(ROLE / "files/hub/password.py")
    asked: list[str] = []
    here, most = 0, 0
    lock = threading.Lock()

    def check(user: str, word: str) -> Checked:
        nonlocal here, most
        with lock:
            here += 1
            most = max(most, here)
            asked.append(user)
        time.sleep(0.01)
        with lock:
            here -= 1
        return Checked("ticket" if word == "right" else "")

    async def guess() -> None:
        door = password.Passwords(check)
        guesses = [door.check(f"user{n}", "wrong", "192.0.2.1") for n in range(40)]
        answers = await asyncio.gather(*guesses, return_exceptions=True)
        assert sum(isinstance(one, password.TooMany) for one in answers) == 40 - TRIES_EACH
        assert len(asked) == TRIES_EACH
        for _ in range(2 * TRIES_EACH):  # a class behind one address, whose passwords are right
            assert (await door.check("carol", "right", "192.0.2.2")).ticket

    asyncio.run(guess())
    assert most <= 4


def test_an_address_is_the_proxy_s_word_and_not_the_client_s() -> None:
    password = load(ROLE / "files/hub/password.py")
    assert password.address_of("198.51.100.7, 192.0.2.9", "127.0.0.1") == "192.0.2.9"
    assert password.address_of("", "127.0.0.1") == "127.0.0.1"


def test_who_logs_in_follows_the_policy() -> None:
    people = load_filters("remoting")["lease_people"]
    pool = {"users": {"a": {"groups": ["users"], "users": ["bob", "alice"]}, "b": {"users": ["bob"]}, "c": None}}
    assert people(pool) == {"users": ["alice", "bob"], "groups": ["users"]}
    assert people({}) == {"users": [], "groups": []}


def test_both_lock_files_pin_everything() -> None:
    lines = (ROLE / "files/requirements.lock").read_text().splitlines()[1:]
    assert [line for line in lines if line.count("==") != 1] == []
    assert [line for line in lines if line.startswith("jupyterhub==")] == ["jupyterhub==6.1.1"]
    packages = json.loads((ROLE / "files/proxy/package-lock.json").read_text())["packages"]
    assert packages["node_modules/configurable-http-proxy"]["version"] == "5.3.0"
    assert [name for name, one in packages.items() if name and not one["integrity"].startswith("sha512-")] == []


def test_an_archive_is_named_by_what_is_in_it() -> None:
    collect = load(ROLE / "files/collect.py")
    names = {collect.release_of(minor, machine) for minor in ("3.11", "3.13") for machine in ("x86_64", "aarch64")}
    assert len(names) == 4
    assert collect.minor_of("3.11.2") == "3.11"
