"""The page of the pool beside the hub of notebooks on a lab: what watchers cost Slurm's controller and the head's
memory, and how soon they see that a GPU is taken or free again. Needs root.

    python benchmarks/pool_page_lab.py [--name LAB] [--watchers 0 50 500] [--jobs 3]

The lab is up, without jobs, and has both (`toolkit deploy -- -e pool_page=true -e jupyterhub=true`). For a while its
user alice has a password. Questions are counted by Slurm's controller itself (`sdiag`): in a minute in which nothing
happens, and while jobs come and go (`--jobs 0`: none). Watchers run on the head. Each job writes when it began and
ended.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.support.lease_lab import shell
from tests.support.page_pool import Client
from toolkit.lab import lab as labs
from toolkit.lab.spec import DEFAULT_NAME

PORT = 8443
USER, PASSWORD = "alice", "Wf7-alice"
UNITS = {
    "page": "elastic-ai-page",
    "hub": "elastic-ai-jupyterhub",
    "proxy": "elastic-ai-jupyterhub-proxy",
}
#: A job of five seconds on a whole GPU, and time for the page's questions, of which it has six a minute.
RUNS_S, PAUSE_S, MINUTE_S = 5, 30, 60
JOB = f"date +%s.%N; sleep {RUNS_S}; date +%s.%N"


class StandingLab:
    """The lab that is up."""

    def __init__(self, name: str) -> None:
        self.spec = labs.load(name)

    def words(self, node: str) -> list[str]:
        """ssh to a node, to be followed by a command."""
        return labs.ssh_words(self.spec, self.spec.node(node))

    def ssh(self, node: str, *command: str) -> str:
        """stdout of a command on a node."""
        done = subprocess.run([*self.words(node), *command], text=True, capture_output=True, check=False, timeout=300)
        if done.returncode:
            raise SystemExit(f"{node}: {done.stderr or done.stdout}")
        return done.stdout


@contextmanager
def password(lab: StandingLab) -> Iterator[None]:
    """The user has one."""
    shell(lab, "head", f"cp -p /etc/shadow /root/shadow.kept; chpasswd <<< {USER}:{PASSWORD}")
    try:
        yield
    finally:
        shell(lab, "head", "mv /root/shadow.kept /etc/shadow")


@contextmanager
def watching(lab: StandingLab, host: str, cookie: str, count: int) -> Iterator[Path]:
    """So many watch; the file of what they see."""
    program = Path(__file__).with_name("pool_page_watch.py").read_text()
    shell(lab, "head", f"cat > /root/watch.py <<'END'\n{program}\nEND\n")
    with tempfile.NamedTemporaryFile("w+") as out:
        command = f"ulimit -n 4096; exec python3 /root/watch.py {host} {PORT} '{cookie}' {count} {USER}"
        process = subprocess.Popen([*lab.words("head"), command], stdin=subprocess.PIPE, stdout=out)
        until = time.monotonic() + 240
        while "ready" not in Path(out.name).read_text():
            if process.poll() is not None or time.monotonic() > until:
                raise SystemExit("the watchers do not get to the page")
            time.sleep(0.2)
        try:
            yield Path(out.name)
        finally:
            process.communicate(timeout=60)  # the end of its input ends it
            lab.ssh("head", "rm /root/watch.py")


def asked(lab: StandingLab) -> dict[str, int]:
    """RPCs since the last reset: of the page's user, of the hub's, and of all."""
    text = lab.ssh("head", "sdiag").split("statistics by user")[1].split("Pending RPC")[0]
    counts = {user: int(count) for user, count in re.findall(r"^\s*(\S+)\s+\(\s*\d+\) count:(\d+)", text, re.M)}
    names = {"page": "elastic-ai-page", "hub": "elastic-ai-hub"}
    return {part: counts.get(user, 0) for part, user in names.items()} | {"all": sum(counts.values())}


def memory_mib(lab: StandingLab) -> dict[str, float]:
    """Of each service's main process."""
    found = {}
    for part, unit in UNITS.items():
        pid = lab.ssh("head", f"systemctl show --value --property MainPID {unit}").strip()
        found[part] = round(int(lab.ssh("head", f"awk '/VmRSS/ {{print $2}}' /proc/{pid}/status")) / 1024, 1)
    return found


def one_job(lab: StandingLab) -> tuple[float, float]:
    """When it began and ended."""
    submit = f"sbatch --parsable --gres gpu:1 --nodelist gpu1 --output /tmp/watched --wrap '{JOB}'"
    number = lab.ssh("head", f"cd /; runuser -u {USER} -- {submit}").strip()
    until = time.monotonic() + 120
    while lab.ssh("head", f"squeue --noheader --jobs {number} 2>/dev/null || true").strip():
        if time.monotonic() > until:
            raise SystemExit(f"job {number} does not end: {lab.ssh('head', 'squeue --long')}")
        time.sleep(0.5)
    began, ended = (float(line) for line in lab.ssh("gpu1", "cat /tmp/watched; rm /tmp/watched").split())
    return began, ended


def spans(jobs: list[tuple[float, float]], seen: str, what: str) -> list[float]:
    """Seconds from each job's begin or end to each watcher's sight of it."""
    found = []
    for line in seen.splitlines():
        words = line.split()
        if words[0] == what:
            moments = [job[what == "free"] for job in jobs]
            before = [moment for moment in moments if moment <= float(words[1]) + 2]  # the page can be earlier
            found += [float(words[1]) - before[-1]] if before else []  # else of another lease of the user's
    return found


def shown(found: list[float], wanted: int) -> dict[str, object]:
    """Median, the longest, and how many of those that should."""
    if not wanted:
        return {}
    middle = round(statistics.median(found), 2) if found else None
    return {"median_s": middle, "longest_s": round(max(found, default=0.0), 2), "seen": len(found), "of": wanted}


def main() -> None:
    """Measure, and print one JSON line for each number of watchers."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--name", default=DEFAULT_NAME)
    parser.add_argument("--watchers", type=int, nargs="*", default=[0, 50, 500])
    parser.add_argument("--jobs", type=int, default=3)
    options = parser.parse_args()
    lab = StandingLab(options.name)
    host = lab.ssh("head", "hostname -I").split()[0]
    with password(lab):
        client = Client(PORT, host)
        if client.log_in(USER, PASSWORD) != 303:
            raise SystemExit("the login at the page was refused")
        cookie = "; ".join(f"{name}={value}" for name, value in client.cookies.items())
        for count in options.watchers:
            with watching(lab, host, cookie, count) as file:
                time.sleep(PAUSE_S)
                lab.ssh("head", "sdiag --reset")
                time.sleep(MINUTE_S)
                quiet = asked(lab)
                lab.ssh("head", "sdiag --reset")
                began, jobs = time.monotonic(), []
                for _ in range(options.jobs):
                    jobs.append(one_job(lab))
                    time.sleep(PAUSE_S)
                busy, minutes = asked(lab), (time.monotonic() - began) / 60
                memory, seen = memory_mib(lab), file.read_text()
            print(
                json.dumps(
                    {
                        "watchers": count,
                        "rpcs_in_a_quiet_minute": quiet,
                        "rpcs_a_minute_with_jobs": {
                            who: round(many / minutes, 1) for who, many in busy.items() if jobs
                        },
                        "memory_mib": memory,
                        "taken": shown(spans(jobs, seen, "taken"), count * len(jobs)),
                        "free": shown(spans(jobs, seen, "free"), count * len(jobs)),
                    }
                ),
                flush=True,
            )


if __name__ == "__main__":
    main()
