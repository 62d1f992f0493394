"""Power cuts in a lab at random moments of the commands of day two, and what the next command makes of them.

    python -m tests.support.power_cuts --lab NAME --inventory DIR --runs DIR --key KEY --count 100 --seed 43

The lab is deployed with the release `rehearsal-previous` and accepted (tests/integration/test_power_cuts_lab.py does
so). Each cut takes a command, waits a random time, and cuts the controller (its processes get SIGKILL), a GPU server or
the head (all processes of the container get SIGKILL at once; some seconds later it is started again). Then a dry run
has to print where things are, and the same command has to come to its end: all nodes work, all have one release, nobody
is drained without a reason. Jobs of Slurm go on all the time and are counted. One JSON line for each cut.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

import yaml

from tests.support.power_jobs import Jobs
from toolkit.deploy.site_state import SiteState
from toolkit.lab import faults
from toolkit.lab import lab as labs
from validation.base.project import ROOT

BIN = Path(sys.executable).parent
OLD, NEW = "rehearsal-previous", "rehearsal"
WORKS = ("upgrade", "backup", "incidents", "restore")
LASTS_S = {"upgrade": 150.0, "rollback": 150.0, "backup": 12.0, "incidents": 90.0, "restore": 150.0}
"""How long each takes about, within which it is cut."""
LIMIT_S, WORKS_AGAIN_S, CALLS = 1500.0, 180.0, 3


@dataclass
class Cut:
    """One. `stands`: what the dry run printed; `calls`: how often the command was given until it came to its end;
    `wrong`: what is not as it should be, "" where all is."""

    work: str
    victim: str
    at_s: float
    code: int = 0
    said: str = ""
    stands: str = ""
    calls: int = 0
    seconds: float = 0.0
    wrong: list[str] = field(default_factory=list)
    jobs: dict[str, int] = field(default_factory=dict)


class Site:
    """The lab, as the commands and its Slurm see it."""

    def __init__(self, lab: str, inventory: Path, runs: Path, key: Path, folder: Path) -> None:
        """`folder`: for backups."""
        self.spec, self.inventory, self.runs, self.key, self.folder = labs.load(lab), inventory, runs, key, folder
        folder.mkdir(parents=True, exist_ok=True)

    def words(self, work: str) -> list[str]:
        """The command line."""
        site = ["-i", str(self.inventory)]
        runs = ["--runs-dir", str(self.runs)]
        if work == "upgrade":
            return ["upgrade", "--to", NEW, *site, *runs]
        if work == "rollback":
            return ["rollback", *site, *runs]
        if work == "backup":
            return ["backup", *site, "--to", str(self.folder)]
        if work == "restore":
            newest = max(self.folder.glob("*.backup"), key=lambda path: path.name)
            return ["restore", str(newest), "--key", str(self.key), *site, "--replace"]
        return ["incidents", *site, *runs, "--once", "--do", "all", "--most", "50"]

    def started(self, words: list[str]) -> subprocess.Popen[str]:
        """It runs in a session of its own, as what a controller's power takes with it."""
        env = {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}", "NO_COLOR": "1", "ANSIBLE_NOCOLOR": "1"}
        return subprocess.Popen(
            [str(BIN / "toolkit"), *words], cwd=ROOT, env=env, text=True, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip

    def ran(self, words: list[str]) -> tuple[int, str]:
        """To its end."""
        process = self.started(words)
        try:
            said, _ = process.communicate(timeout=LIMIT_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            said, _ = process.communicate()
            return 124, said
        return process.returncode, said

    def head(self, script: str) -> str:
        """A script of sh there; "" where the head does not answer."""
        words = [*labs.ssh_words(self.spec, self.spec.node("head")), script]
        return subprocess.run(words, capture_output=True, text=True, check=False, timeout=60).stdout

    def out_of_work(self) -> dict[str, str]:
        """Servers that take no work: state and reason."""
        said = self.head("sinfo --noheader --Node --partition=all --format='%N|%T|%E'")
        rows = [line.split("|", 2) for line in said.splitlines()]
        found = {row[0]: f"{row[1]} ({row[2]})" for row in rows if row[1] not in ("idle", "mixed", "allocated")}
        return found if rows else {"head": "Slurm does not answer"}

    def works(self) -> dict[str, str]:
        """Who takes no work after the time that a machine needs to come up."""
        deadline = time.monotonic() + WORKS_AGAIN_S
        while (left := self.out_of_work()) and time.monotonic() < deadline:
            time.sleep(3)
        return left

    def releases(self) -> set[str]:
        """On the nodes' records."""
        found = set()
        for node in self.spec.nodes:
            words = [*labs.ssh_words(self.spec, node), "cat /etc/elastic-ai/provisioned.json"]
            done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
            found.add(json.loads(done.stdout)["release"] if done.stdout else f"{node.name} has no record")
        return found

    def declared(self, release: str) -> None:
        """The inventory names it."""
        file = self.inventory / "hosts.yml"
        tree = yaml.safe_load(file.read_text())
        tree["all"]["vars"] |= {"stack_release": release, "reboot_batch": 2}
        file.write_text(yaml.safe_dump(tree, sort_keys=False))

    def fault(self, node: str, kind: str = "") -> None:
        """Planted there, or cleared."""
        words = ["set", "--name", self.spec.name, node, kind] if kind else ["clear", "--name", self.spec.name, node]
        subprocess.run([str(BIN / "toolkit"), "lab", "fault", *words], check=False, capture_output=True)


def cut(site: Site, jobs: Jobs, work: str, victim: str, at_s: float, away_s: float) -> Cut:
    """Begin, cut, and go on to the end."""
    began, made = time.monotonic(), Cut(work, victim, round(at_s, 1))
    if work == "incidents":
        (SiteState(site.inventory).folder / "incidents/gpu1.json").unlink(missing_ok=True)  # of a cut before
        site.fault("gpu1", "ecc")
    running = site.started(site.words(work))
    _waited(site, running, work, at_s)
    jobs.cut(victim, work)
    if victim == "controller":
        with contextlib.suppress(ProcessLookupError):  # it was quicker
            os.killpg(running.pid, signal.SIGKILL)
    else:
        faults.FAULTS["dead-node"].plant(site.spec, site.spec.node(victim), _quiet)
        time.sleep(away_s)
        labs.boot(site.spec, site.spec.node(victim), _quiet)
    try:
        said, _ = running.communicate(timeout=LIMIT_S)
    except subprocess.TimeoutExpired:
        os.killpg(running.pid, signal.SIGKILL)
        said, _ = running.communicate()
        made.wrong.append(f"the command did not end within {LIMIT_S:.0f} s of the cut")
    made.code, made.said = running.returncode, _last(said)
    made.wrong += [line for line in said.splitlines() if "Traceback" in line or "unexpected" in line]
    _stands(site, made)
    _goes_on(site, made)
    made.wrong += jobs.lost(restored=made.work == "restore")
    made.jobs = dict(jobs.counts)
    made.seconds = round(time.monotonic() - began, 1)
    return made


def _waited(site: Site, running: subprocess.Popen[str], work: str, at_s: float) -> None:
    """Until the moment of the cut. A fault of a GPU goes when its server is drained, as by the reset that mends it."""
    until = time.monotonic() + at_s
    planted = work == "incidents"
    while time.monotonic() < until and running.poll() is None:
        time.sleep(min(1.0, max(0.0, until - time.monotonic())))
        if planted and "toolkit incidents" in site.out_of_work().get("gpu1", ""):
            site.fault("gpu1")
            planted = False


def _stands(site: Site, made: Cut) -> None:
    """The next command prints where things are."""
    if made.work in ("backup", "restore"):  # whole or not there; a restoration's own dry run is asked below
        return
    dry = ["incidents", "-i", str(site.inventory), "--once"] if made.work == "incidents" else site.words(made.work)
    if made.work != "incidents":
        dry.append("--dry-run")
    code, said = site.ran(dry)
    made.stands = f"{code}: {_last(said)}"
    made.wrong += [line for line in said.splitlines() if "Traceback" in line or "unexpected" in line]


def _goes_on(site: Site, made: Cut) -> None:
    """The same command until it has come to its end; then the site is whole."""
    code, said = 1, ""
    while made.calls < CALLS and code != 0:
        made.calls += 1
        code, said = site.ran(site.words(made.work))
        if made.work == "incidents" and "toolkit incidents" in site.out_of_work().get("gpu1", ""):
            site.fault("gpu1")
            code = code or 1
    if made.work == "incidents":
        site.fault("gpu1")
        if reason := site.out_of_work().get("gpu1", ""):  # left to a person, with the reason in Slurm
            if "toolkit incidents" not in reason:
                made.wrong.append(f"gpu1: {reason}")
            site.head("scontrol update nodename=gpu1 state=resume")
    elif code != 0:
        made.wrong.append(f"the command ends with {code} after {made.calls} calls: {_last(said)}")
    made.wrong += [line for line in said.splitlines() if "Traceback" in line or "unexpected" in line]
    made.wrong += [f"{node} takes no work: {why}" for node, why in site.works().items()]
    if made.work in ("upgrade", "rollback") and len(found := site.releases()) != 1:
        made.wrong.append(f"releases: {', '.join(sorted(found))}")
    if left := site.head("ls -A /var/backups/elastic-ai | grep part; ls -d /var/lib/elastic-ai/restore 2>/dev/null"):
        made.wrong.append(f"left on the head: {' '.join(left.split())}")


def _last(said: str) -> str:
    lines = [line for line in said.splitlines() if line.strip()]
    return lines[-1][:300] if lines else ""


def _quiet(_words: str) -> None:
    """Of the lab's own progress nothing is printed."""


def cuts(
    site: Site, count: int, seed: int, works: tuple[str, ...] = WORKS, for_s: float = float("inf")
) -> Iterator[Cut]:
    """So many, each at a moment by chance; none begins after `for_s`."""
    chance, until = random.Random(seed), time.monotonic() + for_s
    site.ran(site.words("backup"))
    with Jobs(site.spec) as jobs:
        for _ in range(count):
            if time.monotonic() > until:
                break
            work, victim = chance.choice(works), chance.choice(("controller", "controller", "gpu1", "gpu2", "head"))
            if work == "upgrade" and site.releases() == {NEW}:
                work = "rollback"
            moment, away_s = chance.random() * LASTS_S[work], chance.uniform(0, 20)
            made = cut(site, jobs, work, victim, moment, away_s)
            if work in ("upgrade", "rollback"):
                (release,) = found if len(found := site.releases()) == 1 else {OLD}
                site.declared(release)
            yield made


def main() -> None:
    """One JSON line for each cut, and one with the counts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lab", required=True)
    for name in ("inventory", "runs", "key", "folder"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=43)
    parser.add_argument("--works", default=",".join(WORKS))
    parser.add_argument("--for-s", type=float, default=float("inf"), help="begin no cut after so many seconds")
    given = parser.parse_args()
    site = Site(given.lab, given.inventory, given.runs, given.key, given.folder)
    done = []
    for made in cuts(site, given.count, given.seed, tuple(given.works.split(",")), given.for_s):
        done.append(made)
        print(json.dumps(asdict(made)), flush=True)
    print(json.dumps({"cuts": len(done), "wrong": sum(bool(made.wrong) for made in done)}))


if __name__ == "__main__":
    main()
