"""Users who leave a class of the pool, for elastic-ai-pool-sync: who has left for certain, and what his jobs become.

Groups say who is in a class, and a directory says who is in a group. A directory that is away answers by the cache of
sssd, of which a part may be missing: then users look as if they were gone who are not. So somebody has left only where

- user and groups are this machine's own files, or this machine has no directory; or
- sssd says that all its domains are online, after the user and his groups were asked for again without its cache; and
  that has been so in each pass for `after_s`; and not more than three, and a third of all users, leave at once.

Otherwise everything stays as it is, and one sentence says why.
"""

import grp
import json
import os
import pwd
import re
import time
from pathlib import Path

STATE = "/etc/elastic-ai/slurm/leavers.json"
NSSWITCH, PASSWD, GROUP = "/etc/nsswitch.conf", "/etc/passwd", "/etc/group"
LOCAL = {"files", "compat", "db", "systemd", "mymachines", "extrausers", "altfiles"}
DEFAULTS = {"running": "finish", "grace_s": 300, "after_s": 600}
MOST = 3
GAP_S = 1200  # passes that are further apart are not in a row
ENDED = "elastic-ai-lease-ended"  # as toolkit/lease/jobs/job_comment.py has it
BATCH = 100


def services(path=None):
    """Where names of users and groups come from, beside this machine's own files; None where that cannot be read."""
    found = set()
    try:
        text = Path(path or NSSWITCH).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    for line in text.splitlines():
        key, _, rest = line.partition("#")[0].partition(":")
        if key.strip() in ("passwd", "group", "initgroups"):
            found |= set(re.sub(r"\[[^]]*\]", " ", rest).split())
    return found - LOCAL


def named(path):
    """Names in this machine's own file of users or groups."""
    with Path(path).open(encoding="utf-8", errors="replace") as lines:
        return {line.split(":", 1)[0] for line in lines}


def belongs(user, groups):
    """Whether the user is in one of the groups now; None where a group is not known. Who is not known is in none."""
    gids = set()
    for group in groups:
        try:
            found = grp.getgrnam(group)
        except KeyError:
            return None
        if user in found.gr_mem:
            return True
        gids.add(found.gr_gid)
    try:
        return bool(gids & set(os.getgrouplist(user, pwd.getpwnam(user).pw_gid)))
    except KeyError:
        return False


class Leavers:
    """Of one pass."""

    def __init__(self, sync, ask, refused, everybody=False):
        """sync: with its policy, do, waiting and check; ask: lines of a command, or one of `refused`, of which the
        second is that no answer came in time; everybody: an administrator says that all who look so have left."""
        self.sync, self.ask, self.everybody = sync, ask, everybody
        (self.refused, self.silent), self.stuck = refused, False
        self.policy = {**DEFAULTS, **sync.policy.get("leavers", {})}
        try:
            kept = json.loads(Path(STATE).read_text(encoding="utf-8"))
            self.since, self.at = dict(kept["since"]), float(kept["at"])
            self.held, self.ended = set(kept["held"]), {str(job) for job in kept["ended"]}
            self.begun = set(kept.get("begun", []))
        except (OSError, ValueError, KeyError, TypeError):
            self.since, self.at, self.held, self.ended, self.begun = {}, 0.0, set(), set(), set()
        self.jobs = None

    def keep(self, there):
        """Write down what the next pass has to know. there: accounts of each user now."""
        if self.sync.check:
            return
        self.held = {one for one in self.held if one.partition("/")[2] in there.get(one.partition("/")[0], [])}
        self.begun &= self.held
        self._written(time.time())

    def _written(self, at):
        """Onto the disk before this returns. `begun`: those of `held` of whom it is not certain that Slurm holds them.
        at: when the pass was, by which the next one knows whether it comes right after it."""
        path = Path(STATE)
        if not (self.since or self.held or self.ended):
            if path.exists():
                path.unlink()
            return
        new = {"at": at, "since": self.since, "held": sorted(self.held), "ended": sorted(self.ended)}
        new["begun"] = sorted(self.begun)
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        part = path.with_name(path.name + ".part")
        with part.open("w", encoding="utf-8") as out:
            out.write(json.dumps(new))
            out.flush()
            os.fsync(out.fileno())
        part.replace(path)
        folder = os.open(str(path.parent), os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def stays(self, found, of_all):
        """Of users and accounts that look as if they had been left those that stay, and why. found: groups of each
        (user, account); of_all: how many users classes have by groups."""
        before, self.since, now = self.since, {}, time.time()
        try:
            certain = services() == set()
            users, groups = (set(), set()) if certain else (named(PASSWD), named(GROUP))
        except OSError:
            certain, users, groups = False, set(), set()
        unsure = [one for one in found if not certain and not (one[0] in users and set(found[one]) <= groups)]
        if not unsure:
            return {}
        gone = {user for user, _ in unsure}
        if len(gone) > MOST and 3 * len(gone) > of_all and not self.everybody:
            words = f"{len(gone)} of {of_all} users look as if they had left at once, and nobody is taken for gone"
            self.sync.waiting.append(f"{words}; if that is right: elastic-ai-pool-sync --all-left")
            return dict.fromkeys(unsure, "")
        why = self._silent({user: sorted({g for one in unsure if one[0] == user for g in found[one]}) for user in gone})
        if why:
            self.sync.waiting.append(f"{', '.join(sorted(gone)[:20])}: not known to have left, for {why}")
            return dict.fromkeys(unsure, "")
        left = {}
        for one in unsure:
            user, account = one
            if belongs(user, found[one]) is not False:
                left[one] = f"user {user} stays in {account}: asked again, the directory names user and group"
                continue
            first = before.get("/".join(one), now) if 0 <= now - self.at < GAP_S else now
            self.since["/".join(one)] = first
            rest = self.policy["after_s"] - (now - first)
            if rest > 0 and not self.everybody:
                left[one] = f"user {user} stays in {account} for {rest / 60:.0f} min more, as the directory may err"
        return left

    def _silent(self, gone):
        """Why the directory's word counts for nothing now; "" where it counts. gone: groups of each user."""
        found = services()
        if found is None:
            return f"{NSSWITCH} cannot be read"
        if found != {"sss"}:
            return f"of {', '.join(sorted(found))} it is not known whether they answer (of sssd it is)"
        try:
            if not self.sync.check:
                for user, groups in gone.items():
                    self._asked_again(user, groups)
            domains = [line.strip() for line in self.ask("sssctl", "domain-list") if line.strip()]
            domains = [name for name in domains if name != "implicit_files"]
            for name in domains:
                said = [line.strip() for line in self.ask("sssctl", "domain-status", name, "--online")]
                if "Online status: Online" not in said:
                    return f"sssd does not say that its domain {name} is online"
        except FileNotFoundError:
            return "sssctl is not on the head (packages sssd-tools and sssd-dbus)"
        except self.refused as fault:
            return f"sssd does not answer: {fault}"
        return "" if domains else "sssd has no domain"

    def _asked_again(self, user, groups):
        """Without the cache. A domain that is away goes offline by it, in sssd's own word."""
        for words in (["-u", user], *(["-g", group] for group in groups)):
            try:
                self.ask("sss_cache", *words)
            except self.silent:
                raise  # the cache is as it was, and would answer in the place of the directory
            except self.refused:
                continue  # it has none of that name
        belongs(user, groups)

    def back(self, user, account):
        """Who was held and is in the class may begin jobs again."""
        if f"{user}/{account}" in self.held:
            words = f"user {user} starts jobs in {account} again"
            limit = ["sacctmgr", "-i", "modify", "user", user, "where", "account=" + account, "set", "MaxJobs=-1"]
            if self._do(words, *limit):
                self.held.discard(f"{user}/{account}")

    def _live(self, user, account):
        """Number, array, state of the user's jobs in an account. Of a user who is gone Slurm prints the uid, and
        accounting knows whose the jobs are."""
        if self.jobs is None:
            form = "%i|%A|%U|%T|%a"
            lines = self.ask("squeue", "--noheader", "--all", "--format=" + form)
            self.jobs = [line.split("|") for line in lines if line.count("|") == 4]
            self.ended &= {job[0] for job in self.jobs}
        ours = [job for job in self.jobs if job[4] == account]
        try:
            uid = str(pwd.getpwnam(user).pw_uid)
            return [job for job in ours if job[2] == uid]
        except KeyError:
            if not ours:
                return []
        asked = ",".join(sorted({job[1] for job in ours}))
        words = ["sacct", "-nPX", "--allusers", "--jobs=" + asked, "--format=JobIDRaw,User"]
        owners = dict(line.split("|")[:2] for line in self.ask(*words) if "|" in line)
        return [job for job in ours if owners.get(job[1]) == user]

    def end(self, user, account):
        """Nothing of the user's begins any more, what waits is ended, what runs ends as the policy says. How many jobs
        are left, for which the association has to stay."""
        live = self._live(user, account)
        if not live:
            return 0
        one = f"{user}/{account}"
        if one not in self.held - self.begun:
            self.held.add(one)
            self.begun.add(one)
            if not self.sync.check:
                self._written(self.at)  # first, so that whoever comes back is let in again whatever ends this pass
            limit = ["sacctmgr", "-i", "modify", "user", user, "where", "account=" + account, "set", "MaxJobs=0"]
            if self._do(f"user {user} starts nothing more in {account}", *limit):
                self.begun.discard(one)
        waits = sorted({job[1] for job in live if job[3] == "PENDING"}, key=int)
        runs = sorted({job[0] for job in live if job[3] in ("RUNNING", "SUSPENDED", "CONFIGURING")} - self.ended)
        for some in (waits[at : at + BATCH] for at in range(0, len(waits), BATCH)):
            self._noted(user, account, some)
            words = f"waiting jobs of {user} in {account} end: {', '.join(some)}"
            self._do(words, "scancel", "--state=PENDING", *some)
        for job in runs if self.policy["running"] == "end" else []:
            self._noted(user, account, [job])
            end = f"EndTime=now+{max(self.policy['grace_s'], 1)}"
            if self._do(f"job {job} of {user} in {account} ends", "scontrol", "update", "JobId=" + job, end):
                self.ended.add(job)
        return sum(job[3] != "PENDING" for job in live)

    def _do(self, words, *command):
        """As the pass does it, and whether it was done; what Slurm refuses, of a job that has ended meanwhile for
        instance, waits. All that is left waits where it gives no answer: each question would take a minute."""
        if self.stuck:
            return False
        try:
            return self.sync.do(words, *command)
        except self.refused as fault:
            self.stuck = isinstance(fault, self.silent)
            self.sync.waiting.append(f"{words}: {fault}")
            return False

    def _noted(self, user, account, jobs):
        """Why they end, for `toolkit lease show`."""
        why = json.dumps({ENDED: f"{user} is no longer in class {account}"})
        if not self.sync.check and not self.stuck:
            try:
                self.ask("scontrol", "update", "JobId=" + ",".join(jobs), "AdminComment=" + why)
            except self.silent as fault:
                self.stuck = True
                self.sync.waiting.append(f"jobs of {user} in {account} end: {fault}")
            except self.refused:
                return  # some of them have ended meanwhile
