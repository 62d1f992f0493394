"""On a machine of a pool, as root: jobs whose texts are hostile, and whether the toolkit believes anything of them.

`lease_fuzz.py LIBRARY ROUNDS SEED` submits and changes jobs as bob, with random text in every field that Slurm takes
from him, beside two jobs of alice; prints JSON: how many were taken and refused, and what was believed that is not so.
LIBRARY is the folder that has the package toolkit. Ends the jobs that it made.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from typing import Any

ALICE, BOB = 2001, 2002
COMMENT = (
    '{"elastic-ai-lease":1,"clients":["10.77.1.12"],"host":"client1","mode":"hold","what":"1/2 GPU","ttl_s":0,'
    '"memory_mib":0}'
)
#: sbatch's options that take a text, and what scontrol lets a user change of his own job.
OPTIONS = (
    "--job-name", "--comment", "--chdir", "--output", "--error", "--input", "--constraint", "--dependency", "--account",
    "--wckey", "--mail-user", "--licenses", "--exclude", "--nodelist", "--gres", "--qos", "--reservation",
    "--partition", "--array", "--export", "--mcs-label", "--tres-bind", "--burst-buffer", "--batch", "--extra",
    "--container", "--bb", "--prefer", "--gpus-per-node", "--tres-per-task", "--network", "--begin", "--time",
)  # fmt: skip
CHANGES = ("JobName", "Comment", "WorkDir", "StdOut", "StdErr", "StdIn", "Features", "Dependency", "Licenses", "WCKey",
           "MailUser", "AdminComment", "Account", "TimeLimit", "Gres", "UserID", "ArrayTaskThrottle")  # fmt: skip
PIECES = (
    b"\n",
    b"\n\n",
    b" ",
    b"JobId={alice}",
    b"JobId={bob}",
    b" JobName=elastic-ai-lease",
    b"\n   UserId=root(0) GroupId=x",
    b"\n   UserId=bob(2002) GroupId=x",
    b"ArrayJobId={bob} ArrayTaskId=0",
    b"\n     Nodes=gpu1 CPU_IDs=0 Mem=1 GRES=gpu:v100:4(IDX:0-3)",
    b"\n   MinCPUsNode=1",
    b"\n   Comment=" + COMMENT.encode(),
    b"elastic-ai-lease",
    b'"',
    b"\\",
    b'", "user_id": 0, "x": "',
    b'"}], "jobs": [{"job_id": 1',
    b"\x7f",
    b"\x1b[2J",
    b"\xff\xfe",
    b"\xc3",
    b"\xe2\x80\xa8",
    b"%s%n",
    b"x" * 1024,
    b"$(id)",
)
#: Texts that were taken for Slurm's: a lease of four GPUs, another's job as a part of one's own, another's job twice.
SPOOFS = (
    b"elastic-ai-lease\n   UserId=bob(2002)\n     Nodes=gpu1 CPU_IDs=0 Mem=1 GRES=gpu:v100:4(IDX:0-3)\n"
    b"   MinCPUsNode=1\n   Comment=" + COMMENT.encode() + b"\n\nJobId=7 JobName=z",
    b"elastic-ai-lease\n\nJobId={alice} ArrayJobId={bob} ArrayTaskId=0 JobName=elastic-ai-lease\n   UserId=bob(2002)\n"
    b"   JobState=RUNNING Reason=None\n   TimeLimit=00:01:00 TimeMin=N/A\n   Partition=all\n   MinCPUsNode=1\n"
    b"   Comment=" + COMMENT.encode() + b"\n\nJobId=7 JobName=z",
    b"z\n\nJobId={alice} JobName=y",
)


def run(uid: int, *args: bytes | str) -> tuple[int, bytes]:
    """Exit code and stdout of a command as that user."""
    words = [word if isinstance(word, bytes) else word.encode() for word in args]
    done = subprocess.run(
        words, input=b"#!/bin/sh\nexec sleep 600\n", capture_output=True, user=uid, group=uid, extra_groups=[],
        env={"PATH": "/usr/bin:/bin"}, cwd="/", check=False, timeout=60,
    )  # fmt: skip
    return done.returncode, done.stdout


def submit(uid: int, *options: bytes | str) -> int | None:
    """A job's number; None where Slurm refuses it."""
    code, out = run(uid, "sbatch", "--parsable", "--mem=16", "--output=/dev/null", "--chdir=/", *options)
    return int(out.split(b";")[0]) if code == 0 else None


class Fuzz:
    """One run: what was made, and what is wrong."""

    def __init__(self, seed: int) -> None:
        """Alice's jobs first."""
        from toolkit.lease.client import manage
        from toolkit.lease.jobs import slurm

        self.slurm, self.manage, self.dice = slurm, manage, random.Random(seed)
        lease = (
            "--mem=1024",
            "--job-name=elastic-ai-lease",
            "--comment=" + COMMENT,
            "--gres=shard:70",
            "--time=2-00:00:00",
        )
        numbers = [submit(ALICE, *lease), submit(ALICE, "--job-name=train", "--hold", "--time=60")]
        self.alice = [number for number in numbers if number is not None]
        assert len(self.alice) == 2, "alice's jobs were refused"
        self.bob: set[int] = set()
        self.refused, self.wrong = 0, list[str]()
        end = time.monotonic() + 60
        while not (before := self.of_alice())[0]["held"] and time.monotonic() < end:
            time.sleep(0.5)
        assert before[0]["held"], "alice's lease does not run"
        self.before = before

    def of_alice(self) -> list[dict[str, Any]]:
        """What the toolkit believes of alice's jobs, but for what time changes."""
        jobs = {job.id: job for job in self.slurm.jobs()}
        said = [vars(jobs[number]) if number in jobs else {} for number in self.alice]
        return [{key: value for key, value in job.items() if key != "reason"} for job in said]

    def text(self) -> bytes:
        """Hostile, of up to 4 KiB; no NUL, which ends every argument."""
        if self.dice.random() < 0.2:
            return bytes(self.dice.randrange(1, 256) for _ in range(self.dice.choice((1, 16, 300, 4096))))
        pieces = b"".join(self.dice.choices(PIECES, k=self.dice.randrange(1, 10)))
        if self.dice.random() < 0.2:
            pieces = self.dice.choice(SPOOFS)
        numbers = {b"{alice}": self.dice.choice(self.alice), b"{bob}": max(self.bob, default=1)}
        for mark, number in numbers.items():
            pieces = pieces.replace(mark, str(number).encode())
        return pieces

    def attack(self) -> None:
        """One job submitted or changed, and now and then the helper that sudo lets everybody run."""
        if self.bob and self.dice.random() < 0.4:
            number = self.dice.choice(sorted(self.bob))
            change = self.dice.choice(CHANGES).encode() + b"=" + self.text()
            self.refused += run(BOB, "scontrol", "update", f"JobId={number}", change)[0] != 0
        else:
            options = [name.encode() + b"=" + self.text() for name in self.dice.sample(OPTIONS, 2)]
            if self.dice.random() < 0.7:
                options = [b"--job-name=" + self.text(), b"--comment=" + self.text()]
            number = submit(BOB, "--hold", "--time=5", *options)
            self.refused += number is None
            self.bob |= {number} - {None}
        if self.bob and self.dice.random() < 0.1:
            self.extend(self.dice.choice([*sorted(self.bob), *self.alice]))

    def extend(self, lease: int) -> None:
        """As bob, by way of sudo."""
        os.environ["SUDO_UID"] = str(BOB)
        try:
            self.manage.extend_as_root([str(lease), "1"])
        except Exception as fault:  # any refusal; what must not happen is seen in alice's jobs
            if type(fault).__name__ != "LeaseError":
                self.wrong.append(f"extend {lease}: {type(fault).__name__}: {fault}")
        finally:
            del os.environ["SUDO_UID"]

    def look(self) -> None:
        """What the toolkit believes now."""
        seen = self.of_alice()
        if seen != self.before:
            self.wrong.append(f"alice's jobs were {self.before} and are {seen}")
        for job in self.slurm.jobs():
            mine = {job.id, job.array} & self.bob
            if mine and (job.uid != BOB or job.user != "bob" or job.held):
                self.wrong.append(f"bob's job {job.id} is believed to be {job}")
        leases = [lease.id for lease in self.manage.leases(self.slurm.jobs()) if lease.jobs[0].uid == ALICE]
        if self.alice[0] not in leases:
            self.wrong.append(f"alice's lease {self.alice[0]} is hidden: {leases}")


def main() -> None:
    """Command line."""
    sys.path.insert(0, sys.argv[1])
    fuzz = Fuzz(int(sys.argv[3]))
    try:
        for step in range(int(sys.argv[2])):
            fuzz.attack()
            if step % 10 == 9:
                fuzz.look()
        fuzz.look()
    finally:
        numbers = [str(number) for number in [*fuzz.alice, *sorted(fuzz.bob)]]
        subprocess.run(["scancel", *numbers], check=False)
    print(json.dumps({"taken": len(fuzz.bob), "refused": fuzz.refused, "wrong": fuzz.wrong[:20]}))


if __name__ == "__main__":
    main()
