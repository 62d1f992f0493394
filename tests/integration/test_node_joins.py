"""Nodes join a pool in use and leave it, in a lab of its own: twenty leases of two users hold through all of it."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml
from conftest import Lab, toolkit, validation_of

from tests.support.lease_lab import json_in, run_as, shell, until
from tests.support.signing_case import allow, make_key
from tests.support.traces import traces

pytestmark = pytest.mark.rest
NAME = "joins"
PROGRAMS = 20
#: On client1: programs of two users, each with a seventh of a GPU of gpu2, which copy and verify until /tmp/stop is
#: there. One whose lease is lost ends with another code than 0.
HOLD = f"""
mkdir /root/held
for i in $(seq {PROGRAMS}); do
  who=alice; [ $((i % 2)) = 0 ] && who=bob
  (runuser -u $who -- toolkit run --no-kernels -l gpu2 -p 1/7 -- bash -c 'cd /
    until [ -e /tmp/stop ]; do elastic-ai-copybench --bytes 64K --latency-count 2 > /dev/null || exit 9
    echo copied; sleep 5; done' > /root/held/$i.log 2>&1
    echo "exit $?" >> /root/held/$i.log) < /dev/null > /dev/null 2>&1 &
done
disown -a
"""
HOLDING = "grep -l copied /root/held/*.log | wc -l; grep -h '^exit' /root/held/*.log; true"


@dataclass(frozen=True)
class Site:
    """The lab, with its accepted run and a key to sign with."""

    lab: Lab
    runs: Path
    accepted: str
    key: Path

    def node(self, *words: str) -> tuple[int, str]:
        """`toolkit node ...` with this inventory: exit code and what it said."""
        own = () if words[0] == "remove" else ("--runs-dir", str(self.runs))
        done = toolkit("node", *words, "-i", self.lab.inventory, *own, timeout_s=3600)
        print(done.stdout, done.stderr)
        return done.returncode, done.stdout + done.stderr

    def states(self) -> dict[str, str]:
        """Slurm's nodes and their states."""
        said = shell(self.lab, "head", "sinfo --noheader --Node --partition=all --format='%N %T'")
        return dict(line.split() for line in said.splitlines())

    def listed(self) -> list[str]:
        """GPU servers of the inventory."""
        tree = yaml.safe_load((self.lab.inventory / "hosts.yml").read_text())
        return list(tree["all"]["children"]["gpu_servers"]["hosts"])

    def brought(self, name: str) -> None:
        """A node more for the lab, with the users."""
        up = toolkit("lab", "up", "--name", NAME, "--add", name, "--inventory", self.lab.inventory)
        assert up.returncode == 0, up.stderr
        assert f"next: toolkit node add {name} -i {self.lab.inventory}" in up.stderr

    def gone(self, name: str) -> None:
        """A node of the lab less."""
        down = toolkit("lab", "down", "--name", NAME, "--node", name, "--inventory", self.lab.inventory)
        assert down.returncode == 0, down.stderr

    def hold(self) -> None:
        """All twenty programs have GPUs, none has ended."""
        assert shell(self.lab, "client1", HOLDING).split() == [str(PROGRAMS)]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A provisioned lab that was accepted; it goes without a trace."""
    folder = tmp_path_factory.mktemp("joins")
    if any(traces(NAME).values()):  # of a run that was cut off
        assert toolkit("lab", "down", "--name", NAME).returncode == 0
    up = toolkit("lab", "up", "--name", NAME, "--inventory", folder / "inventory")
    assert up.returncode == 0, up.stderr
    try:
        lab = Lab(NAME, folder / "inventory")
        done = toolkit("deploy", "-i", lab.inventory, timeout_s=3600)
        assert done.returncode == 0, f"{done.stdout[-6000:]}{done.stderr[-6000:]}"
        suites = [word for suite in ("preflight", "as-built", "transport") for word in ("--suite", suite)]
        accepted = validation_of(lab.inventory, folder / "runs", "--fabric", "tcp10", *suites, "--format", "html")
        assert accepted.exit_code == 0, accepted.stderr
        yield Site(lab, folder / "runs", accepted.folder.name, make_key(folder / "key"))
    finally:
        down = toolkit("lab", "down", "--name", NAME)
    assert down.returncode == 0, down.stderr
    assert not any(traces(NAME).values())


def test_nodes_join_fail_leave_and_are_replaced_while_twenty_leases_hold(site: Site, tmp_path: Path) -> None:
    lab = site.lab
    shell(lab, "client1", HOLD)
    until(lambda: shell(lab, "client1", HOLDING).split(), [str(PROGRAMS)], 300)
    before = site.states()

    # A node that fails its acceptance stays drained, with one clear line; the pool is as it was.
    site.brought("gpu3")
    planted = toolkit("lab", "fault", "set", "--name", NAME, "gpu3", "slow-link")
    assert planted.returncode == 0, planted.stderr
    code, said = site.node("add", "gpu3")
    assert code == 1, said
    assert re.search(r"^gpu3 is not accepted: tr\.tcpbw fails", said, re.MULTILINE)
    assert "gpu3 stays drained; correct that and run the same command again" in said
    assert site.states() == {**before, "gpu3": "drained"}
    assert "not accepted" in shell(lab, "head", "scontrol show node gpu3")
    site.hold()
    cleared = toolkit("lab", "fault", "clear", "--name", NAME, "gpu3")
    assert cleared.returncode == 0, cleared.stderr

    # It joins, and its addendum is signed.
    began = time.monotonic()
    code, said = site.node("add", "gpu3", "--key", str(site.key), "--as", "A. Example, Example AG")
    assert code == 0, said
    assert f"gpu3 holds what {site.accepted} was accepted with" in said
    code, out = run_as(lab, "alice", "toolkit run --no-kernels -l gpu3 -- elastic-ai-copybench --json --bytes 1M")
    assert code == 0, out
    assert json_in(out)["verified"] is True
    print(f"node add to the end of the first lease: {(time.monotonic() - began) / 60:.1f} minutes")
    run = max(path.parent for path in site.runs.glob("*/addendum.json"))
    addendum = json.loads((run / "addendum.json").read_text())
    assert addendum["accepted"] is True
    assert addendum["accepted_run"] == site.accepted
    assert set(addendum["peers"]) == {"head", "client1"}
    allowed = allow(tmp_path / "allowed", site.key)
    verified = toolkit("verify", run, "--allowed-signers", allowed)
    assert verified.returncode == 0, verified.stdout + verified.stderr
    site.hold()

    # Another leaves: its lease is told and taken back, the machine is as before, nobody knows it any more.
    kept = json_in(run_as(lab, "bob", "toolkit lease request -l gpu1 --time 2h --json")[1])["lease"]
    code, said = site.node("remove", "gpu1", "--grace", "30")
    assert code == 0, said
    assert f"lease {kept} of bob" in said
    assert site.listed() == ["gpu2", "gpu3"]
    assert set(site.states()) == {"gpu2", "gpu3"}
    assert "gpu1" not in shell(lab, "client1", "cat /etc/hosts")
    assert shell(lab, "gpu1", "ls -d /etc/elastic-ai/slurm /opt/elastic-ai/engine 2> /dev/null; true").strip() == ""
    site.hold()
    site.gone("gpu1")

    # A dead machine is replaced by another of the same name.
    dead = toolkit("lab", "fault", "set", "--name", NAME, "gpu3", "dead-node")
    assert dead.returncode == 0, dead.stderr
    code, said = site.node("replace", "gpu3")
    assert code == 2, said
    assert "exchange the machine and run the same command again" in said
    site.gone("gpu3")
    site.brought("gpu3")
    code, said = site.node("replace", "gpu3")
    assert code == 0, said
    assert site.states()["gpu3"] == "idle"
    code, out = run_as(lab, "bob", "toolkit run --no-kernels -l gpu3 -- elastic-ai-copybench --json --bytes 1M")
    assert code == 0, out

    # All leases held until their programs end by themselves, and the site is whole.
    site.hold()
    shell(lab, "client1", "touch /tmp/stop")
    ended = "grep -h '^exit' /root/held/*.log; true"
    until(lambda: shell(lab, "client1", ended).split("\n")[:-1], ["exit 0"] * PROGRAMS, 120)
    again = toolkit("deploy", "-i", lab.inventory, timeout_s=3600)
    assert again.returncode == 0, again.stderr
    assert [line.split(maxsplit=1)[1] for line in again.stdout.splitlines()] == ["ok: nothing changed"] * 4
    suites = ("--suite", "preflight", "--suite", "transport")
    whole = validation_of(lab.inventory, tmp_path / "runs", "--fabric", "tcp10", *suites, "--format", "html")
    assert whole.exit_code == 0, whole.stderr
