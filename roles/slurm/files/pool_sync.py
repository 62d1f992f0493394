#!/usr/bin/python3
"""Bring Slurm's accounting and reservations in line with the pool's policies. Runs on the head, as root.

    elastic-ai-pool-sync [--check]
    elastic-ai-pool-sync --all-left              also where a third of the users look as if they had left at once
    elastic-ai-pool-sync --members GROUP ...     who counts as a member: one JSON document, groups it knows alone

Reads /etc/elastic-ai/slurm/pool.json, which role slurm writes from pool.yml, looks up who is in the Unix groups, and
makes accounts, QOS, users and reservations what they are to be. Prints one JSON document: `changed` says what it did
(with --check, what it would do), `waiting` what has to wait and for what. What is not the toolkit's is left alone:
its own accounts carry the organization, its own QOS the description "elastic-ai", its reservations begin with "pool_".
Exit codes: 0 all is as wanted or waits, 1 Slurm refused or does not answer.
"""

import argparse
import datetime
import grp
import json
import os
import pwd
import re
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

sys.dont_write_bytecode = True  # no folder that the role would not know of
sys.path[:0] = [str(Path(__file__).resolve().parent), "/usr/lib/elastic-ai/slurm"]
import pool_leavers  # noqa: E402

POLICY = "/etc/elastic-ai/slurm/pool.json"
HOMES = "/home"
MARK = "elastic-ai"
MOST_BYTES = 512 << 20  # of an answer of Slurm's, as validation/base/bounded.py has it
PREFIX = "pool_"
SHOWN = {"MaxTRESPerUser": "MaxTRESPU"}  # sacctmgr shows it under another name
ANSWER_S = 60
START_S = 30  # for a controller that starts, to answer
BUSY = re.compile(r"\b(active|in use|running)\b", re.IGNORECASE)  # whole words: a class may be named interactive


class Refused(Exception):
    """Slurm said no; its own words."""


class Silent(Refused):
    """It gave no answer in time, and may have done what it was told."""


def _bounded():
    """In the child: the kernel ends a command that prints more than MOST_BYTES into a file, also one in memory."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (MOST_BYTES, MOST_BYTES))


def ask(*command):
    """Lines that a command printed; Refused with what it said when it failed."""
    english = {**os.environ, "LC_ALL": "C", "LANGUAGE": ""}
    with os.fdopen(os.memfd_create("out"), "w+b") as out, os.fdopen(os.memfd_create("err"), "w+b") as err:
        try:
            done = subprocess.run(
                command, stdout=out, stderr=err, check=False, timeout=ANSWER_S, env=english, preexec_fn=_bounded
            )
        except subprocess.TimeoutExpired:
            raise Silent(f"{' '.join(command[:6])}: no answer within {ANSWER_S} s") from None
        found = []
        for stream in (out, err):
            stream.seek(0)
            found.append(stream.read().decode("utf-8", "backslashreplace"))
    if done.returncode == -signal.SIGXFSZ:
        found = ["", f"printed more than {MOST_BYTES >> 20} MiB and was ended"]
    if done.returncode:
        said = [line.strip() for line in (found[1] + found[0]).splitlines() if line.strip()]
        raise Refused("{}: {}".format(" ".join(command[:6]), "; ".join(said)[:400] or f"exit {done.returncode}"))
    return found[0].splitlines()


def table(kind, columns, *more):
    """Rows that sacctmgr shows, as dictionaries."""
    lines = ask("sacctmgr", "-nP", "show", kind, "format=" + ",".join(columns), *more)
    rows = [line.split("|") for line in lines if line.strip()]
    return [dict(zip(columns, row)) for row in rows]


def heard_of():
    """The QOS that the controller knows, which is not always what accounting has."""
    lines = ask("scontrol", "show", "assoc_mgr", "flags=qos")
    return {match[1] for match in map(re.compile(r"QOS=([^(]+)\(").match, lines) if match}


def minutes(text):
    """Minutes of Slurm's M, M:S, H:M:S, D-H, D-H:M or D-H:M:S; None of nothing and of no limit."""
    if not re.fullmatch(r"(\d+-)?\d+(:\d+){0,2}", text or ""):
        return None
    days, dash, clock = text.rpartition("-")
    parts = [int(part) for part in clock.split(":")]
    if not dash and len(parts) < 3:
        parts.insert(0, 0)  # minutes come first where there are no days
    hours, mins, _ = [*parts, 0, 0][:3]
    return int(days or 0) * 1440 + hours * 60 + mins


def seconds(text):
    """Seconds of 60 or 00:01:00."""
    return sum(int(part) * 60**place for place, part in enumerate(reversed((text or "0").split(":"))))


def same(key, wanted, shown):
    """True where what sacctmgr shows is what is wanted."""
    if key == "MaxWall":
        return minutes(wanted) == minutes(shown)
    if key == "GraceTime":
        return seconds(wanted) == seconds(shown)
    if key in ("GrpTRES", "MaxTRESPerUser"):
        return (shown or "billing=-1") == wanted
    if key in ("Preempt", "Flags"):
        return set(filter(None, wanted.split(","))) == set(filter(None, (shown or "").split(",")))
    return wanted == shown


def acquainted():
    """Users whom this head has met: of Slurm's accounting, and owners of folders in /home."""
    names = {row["User"] for row in table("user", ["User", "DefaultAccount"])}
    try:
        owners = {os.lstat(entry.path).st_uid for entry in os.scandir(HOMES)}
    except OSError:
        owners = set()
    for uid in owners:
        try:
            names.add(pwd.getpwuid(uid).pw_name)
        except KeyError:
            continue
    return names


def members_of(group, met):
    """Members of a Unix group; None where it is not known here.

    A directory may list neither the members of a group (sssd: ignore_group_members) nor its users (enumerate = false),
    and answers for each user by name: so those whom the head has `met` are asked for too.
    """
    try:
        found = grp.getgrnam(group)
    except KeyError:
        return None
    names = set(found.gr_mem) | {user.pw_name for user in pwd.getpwall() if user.pw_gid == found.gr_gid}
    for name in met - names:
        try:
            if found.gr_gid in os.getgrouplist(name, pwd.getpwnam(name).pw_gid):
                names.add(name)
        except KeyError:
            continue  # Slurm knows a user who is gone here
    return names - {"root"}


class Sync:
    """One pass; `changed` and `waiting` fill up on the way."""

    def __init__(self, policy, check, everybody=False):
        """policy: pool.json; check: change nothing; everybody: all who look as if they had left have left."""
        self.policy, self.check, self.everybody = policy, check, everybody
        self.changed, self.waiting = [], []

    def do(self, words, *command):
        """Run what changes something, or only say so; whether it was done. What leases hinder waits for a pass."""
        if not self.check:
            try:
                ask(*command)
            except Refused as refused:
                if not BUSY.search(str(refused)):
                    raise
                self.waiting.append(f"{words}: {refused}")
                return False
        self.changed.append(words)
        return True

    def missed(self, names):
        """What accounting told a controller that was starting is lost, and it refuses every job of that class from then
        on (Slurm 22.05: "Invalid qos", "not found, unable to update"). Started anew it reads all of it. Jobs run on."""
        missing = sorted(names & set(self.policy["classes"]) - heard_of())
        if not missing:
            return
        self.do("the controller reads QOS " + ", ".join(missing), "systemctl", "restart", "slurmctld")
        for _ in range(0 if self.check else START_S):
            time.sleep(1)
            try:
                if set(missing) <= heard_of():
                    return
            except Refused as fault:
                if isinstance(fault, Silent):
                    raise  # each question would take a minute

    def qos(self):
        """A QOS for each class. Those that are preempted exist before those that preempt them."""
        limits = "Priority GrpTRES MaxTRESPU MaxSubmitJobsPerUser MaxWall GraceTime Preempt Flags"
        heard_of()  # a controller that does not listen yet hears of no change: Refused, before any is made
        there = {row["Name"]: row for row in table("qos", ["Name", "Description", *limits.split()])}
        for name in self.policy["classes"]:
            if name not in there:
                self.do("QOS " + name, "sacctmgr", "-i", "add", "qos", name, "set", "Description=" + MARK)
        self.missed(set(there) if self.check else set(self.policy["classes"]))
        if not set(self.policy["classes"]) <= set(there):
            # Slurm reads the QOS that a partition allows once, and forgets those that are not there yet
            self.do("partitions read their QOS", "scontrol", "reconfigure")
        for name, entry in self.policy["classes"].items():
            shown = there.get(name, {})
            wrong = [f"{k}={v}" for k, v in entry["qos"].items() if not same(k, v, shown.get(SHOWN.get(k, k), ""))]
            if wrong:
                words = "QOS {}: {}".format(name, " ".join(wrong))
                self.do(words, "sacctmgr", "-i", "modify", "qos", name, "set", *wrong)
        return [n for n, row in there.items() if row["Description"] == MARK and n not in self.policy["classes"]]

    def accounts(self):
        """An account for each class, whose users have its QOS and no other."""
        there = {row["Account"]: row["Organization"] for row in table("account", ["Account", "Organization"])}
        qos = {r["Account"]: r for r in table("assoc", ["Account", "User", "QOS", "DefaultQOS"]) if not r["User"]}
        for name in self.policy["classes"]:
            if name not in there:
                described = ["Organization=" + MARK, "Description=" + name]
                self.do("account " + name, "sacctmgr", "-i", "add", "account", name, *described)
            shown = qos.get(name, {})
            if (shown.get("QOS"), shown.get("DefaultQOS")) != (name, name):
                only = ["QOS=" + name, "DefaultQOS=" + name]
                words = f"account {name}: its QOS"
                self.do(words, "sacctmgr", "-i", "modify", "account", name, "set", *only)
        return [n for n, organization in there.items() if organization == MARK and n not in self.policy["classes"]]

    def users(self, gone):
        """Who is in a class has an association with it, and with no class else."""
        wanted, unsure = {}, set()
        met = acquainted() if any(entry["groups"] for entry in self.policy["classes"].values()) else set()
        for name, entry in self.policy["classes"].items():
            names = set(entry["users"])
            for group in entry["groups"]:
                found = members_of(group, met)
                if found is None:
                    unsure.add(name)
                    self.waiting.append(f"group {group} of class {name} is not known on the head")
                elif not found:
                    self.waiting.append(f"group {group} of class {name} has no member whom the head knows")
                names |= found or set()
            for user in sorted(names - {"root"}):
                wanted.setdefault(user, []).append(name)
        there = {}
        for row in table("assoc", ["Account", "User"]):
            if row["User"] and (row["Account"] in self.policy["classes"] or row["Account"] in gone):
                there.setdefault(row["User"], []).append(row["Account"])
        default = {row["User"]: row["DefaultAccount"] for row in table("user", ["User", "DefaultAccount"])}
        for user, accounts in sorted(wanted.items()):
            for account in accounts:
                if account not in there.get(user, []):
                    words = f"user {user} in {account}"
                    self.do(words, "sacctmgr", "-i", "add", "user", user, "Account=" + account)
            if default.get(user, accounts[0]) != accounts[0]:
                words = f"user {user}: {accounts[0]} by default"
                self.do(words, "sacctmgr", "-i", "modify", "user", user, "set", "DefaultAccount=" + accounts[0])
        self.leave(there, wanted, unsure)

    def leave(self, there, wanted, unsure):
        """Who is in a class no more, with his jobs. A directory that is away for a moment takes nobody out."""
        leavers = pool_leavers.Leavers(self, ask, (Refused, Silent), self.everybody)
        left = {user: sorted(set(accounts) - set(wanted.get(user, []))) for user, accounts in sorted(there.items())}
        asked = {(user, one): self.by_groups(one) for user in left for one in left[user] if one not in unsure}
        asked = {one: groups for one, groups in asked.items() if groups}
        of_all = sum(any(self.by_groups(one) for one in accounts) for accounts in there.values())
        stay = leavers.stays(asked, of_all)
        try:
            for user, accounts in left.items():
                for account in set(there[user]) & set(wanted.get(user, [])):
                    leavers.back(user, account)
                rest = []
                for account in accounts:
                    words = stay.get((user, account))
                    if account in unsure:
                        words = f"user {user} stays in {account} until the head knows both user and group again"
                    elif words is None and (user, account) in asked:
                        jobs = leavers.end(user, account)
                        words = f"user {user} stays in {account} until {jobs} of the jobs have ended" if jobs else None
                    if words is None:
                        rest.append(account)
                    elif words:
                        self.waiting.append(words)
                for account in rest:
                    words = f"user {user} not in {account}"
                    # whoever is in no class at all goes altogether: Slurm keeps nobody without a default account
                    account_of = ["Account=" + account] if user in wanted or len(rest) < len(accounts) else []
                    self.do(words, "sacctmgr", "-i", "delete", "user", user, *account_of)
                    if not account_of:
                        break
        finally:
            leavers.keep(there)

    def by_groups(self, account):
        """Groups that say who is in a class."""
        return self.policy["classes"].get(account, {}).get("groups", [])

    def reservations(self):
        """Reservations that come again; one that differs is made anew."""
        there = {}
        for line in ask("scontrol", "-o", "show", "reservation"):
            fields = dict(re.findall(r"(\w+)=(\S*)", line))
            if fields.get("ReservationName", "").startswith(PREFIX):
                there[fields["ReservationName"]] = fields
        wanted = {PREFIX + name: entry for name, entry in self.policy["reservations"].items()}
        for name, fields in sorted(there.items()):
            if name not in wanted or not reserved_as(wanted[name], fields):
                self.do("no reservation " + name, "scontrol", "delete", "ReservationName=" + name)
        for name, entry in sorted(wanted.items()):
            if name not in there or not reserved_as(entry, there[name]):
                self.do("reservation " + name, "scontrol", "create", "reservation", *reservation(name, entry))

    def run(self):
        """QOS first, for accounts name them; what is gone goes last, when nobody names it any more."""
        old_qos = self.qos()
        old_accounts = self.accounts()
        self.users(old_accounts)
        self.reservations()
        for name in old_accounts:
            self.do("no account " + name, "sacctmgr", "-i", "delete", "account", name)
        for name in old_qos:
            self.do("no QOS " + name, "sacctmgr", "-i", "delete", "qos", name)


def next_start(clock, now, flags=()):
    """The next time of day `clock` (08:00) after now on a day that the flags mean, as Slurm takes it.

    Slurm takes the first day as it is told and looks at the day of the week only when it repeats.
    """
    start = now.replace(hour=int(clock[:2]), minute=int(clock[3:]), second=0, microsecond=0)
    days = set(range(5)) if "WEEKDAY" in flags else {5, 6} if "WEEKEND" in flags else set(range(7))
    while start <= now or start.weekday() not in days:
        start += datetime.timedelta(days=1)
    return start.strftime("%Y-%m-%dT%H:%M:%S")


def reservation(name, entry):
    """Arguments of scontrol create reservation."""
    nodes = entry["nodes"]
    which = [f"NodeCnt={nodes}"] if isinstance(nodes, int) else ["Nodes=" + ",".join(nodes)]
    return [
        "ReservationName=" + name,
        "StartTime=" + next_start(entry["from"], datetime.datetime.now(), entry["flags"]),
        f"Duration={entry['minutes']}",
        "Accounts=" + ",".join(entry["accounts"]),
        "PartitionName=" + entry["partition"],
        *which,
        # leases that run on the servers now are no reason to refuse
        "Flags=" + ",".join([*entry["flags"], "IGNORE_JOBS"]),
    ]


def reserved_as(entry, fields):
    """True where a reservation that scontrol shows is the wanted one."""
    if isinstance(entry["nodes"], int):
        nodes = int(fields.get("NodeCnt", 0)) == entry["nodes"]
    else:
        shown = fields.get("Nodes", "")
        nodes = sorted(ask("scontrol", "show", "hostnames", shown) if shown else []) == entry["nodes"]
    return (
        nodes
        and fields.get("StartTime", "")[11:16] == entry["from"]
        and minutes(fields.get("Duration", "")) == entry["minutes"]
        and sorted(fields.get("Accounts", "").split(",")) == entry["accounts"]
        and fields.get("PartitionName") == entry["partition"]
        and set(entry["flags"]) <= set(fields.get("Flags", "").split(","))
    )


def printed(groups):
    """Print the members of groups; the exit code."""
    try:
        met = acquainted()
    except (Refused, OSError) as fault:
        print(f"elastic-ai-pool-sync: {fault}", file=sys.stderr)
        return 1
    found = {group: members_of(group, met) for group in groups}
    print(json.dumps({group: sorted(names) for group, names in found.items() if names is not None}))
    return 0


def main():
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--check", action="store_true", help="change nothing; say what would change")
    parser.add_argument("--all-left", action="store_true", help="take all who look as if they had left for gone, now")
    parser.add_argument("--members", nargs="+", metavar="GROUP", help="only print who counts as a member of groups")
    arguments = parser.parse_args()
    if arguments.members:
        return printed(arguments.members)
    sync = Sync(json.loads(Path(POLICY).read_text(encoding="utf-8")), arguments.check, arguments.all_left)
    try:
        sync.run()
    except (Refused, OSError) as fault:
        print(f"elastic-ai-pool-sync: {fault}", file=sys.stderr)
        return 1
    print(json.dumps({"changed": sync.changed, "waiting": sync.waiting}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
