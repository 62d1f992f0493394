"""Start and end of a lease's containers against each other: real helpers and locks, and a Docker that keeps books."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeout
from pathlib import Path
from typing import Any

import pytest

from tests.support import lease_forms
from tests.support.lease_host import FakeHost
from toolkit.lease import LeaseError
from toolkit.lease.server import container, container_limits, instance, sweep

pytestmark = [
    pytest.mark.skipif(os.getuid() != 0, reason="needs root: the helper becomes its caller"),
    pytest.mark.engines,
]
NOBODY = pwd.getpwnam("nobody")
IDENTITY = "sha256:" + "a" * 64
#: Containers are files: lease, a dot, number; one that was started has `running` in it. `hold`: create waits while
#: that file is there. All calls are in `calls`.
DOCKER = """#!/bin/sh
cd {books} || exit 1
echo "$*" >> calls
case "$1" in
image) echo {identity} ;;
info) echo cgroupfs ;;
create)
    for word; do case "$word" in --label=elastic-ai-lease=*) job="${{word##*=}}" ;; esac; done
    touch creating.$$
    while [ -e hold ]; do sleep 0.02; done
    rm creating.$$
    echo created > "box.$job.$$"
    echo "box.$job.$$" ;;
start)
    for name; do :; done
    [ -e "$name" ] || {{ echo "Error: No such container: $name" >&2; exit 1; }}
    echo running > "$name"
    while [ -e "$name" ]; do sleep 0.02; done
    exit 137 ;;
ps)
    all="$*"; case "$all" in
    *label=elastic-ai-lease=*)
        job="${{all##*label=elastic-ai-lease=}}"; ls -d "box.${{job%% *}}".* 2>/dev/null ;;
    *) ls -d box.* 2>/dev/null | cut -d. -f2 | sort -u ;;
    esac
    true ;;
rm) shift; for name; do case "$name" in box.*) rm -f "$name" ;; esac; done ;;
esac
"""
HELPER = """
import sys
from pathlib import Path
from toolkit.lease import LeaseError
from toolkit.lease.server import container, container_limits
from toolkit.lease.machine.host import Host
folder, path, caller, *argv = sys.argv[1:]
container.PATH, container.EMULATED_LINKER = path, Path(folder) / "linker"
try:
    sys.exit(container.run(Host(run_dir=Path(folder) / "leases"), container.parse_wish(argv), int(caller)))
except LeaseError as fault:
    print(fault, file=sys.stderr)
    sys.exit(125)
"""


def until(what: Callable[[], Any], limit_s: float = 20) -> None:
    end = time.monotonic() + limit_s
    while not what():
        assert time.monotonic() < end
        time.sleep(0.02)


class Books:
    """The lab of one test."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.books = folder, folder / "books"
        self.helpers: list[subprocess.Popen[str]] = []
        self.host = FakeHost(folder=folder)
        object.__setattr__(self.host, "clock", time)
        self.books.mkdir()
        (folder / "bin").mkdir()
        (folder / "bin" / "docker").write_text(DOCKER.format(books=self.books, identity=IDENTITY))
        (folder / "bin" / "docker").chmod(0o755)
        (folder / "linker").write_text("/opt/emulated/lib\n")
        self.path = f"{folder / 'bin'}:{os.environ['PATH']}"
        told = folder / "environment"
        told.write_text("{}")
        os.chown(told, NOBODY.pw_uid, NOBODY.pw_gid)

    def lease(self, job: str = "41") -> None:
        held = {"job_memory_mib": 512, "job_cpus": 1}
        lease = lease_forms.instance(
            job=job, owner_uid=NOBODY.pw_uid, where="server", devices=(lease_forms.leased_gpu(2),), **held
        )
        (self.host.run_dir / job).mkdir(parents=True)
        lease.write(self.host.run_dir / job)
        (self.host.run_dir / job / "born").write_text("0\n")

    def start(self, job: str = "41") -> subprocess.Popen[str]:
        told = self.folder / "environment"
        argv = [f"--job={job}", "--image=there:1", "--folder=/", f"--environment={told}", "--", "sleep", "600"]
        words = [sys.executable, "-c", HELPER, str(self.folder), self.path, str(NOBODY.pw_uid), *argv]
        env = {**os.environ, "PATH": self.path, "PYTHONPATH": str(Path(__file__).parents[2])}
        process = subprocess.Popen(words, env=env, stderr=subprocess.PIPE, text=True, start_new_session=True)
        self.helpers.append(process)
        return process

    def boxes(self) -> list[str]:
        return sorted(path.read_text().strip() for path in self.books.glob("box.*"))

    def creating(self) -> bool:
        return bool(list(self.books.glob("creating.*")))

    def end(self, job: str = "41") -> list[str]:
        """As the Epilog does it."""
        instance.close(self.host, job)
        return container.remove(self.host, job) + instance.end_instance(self.host, job)


@pytest.fixture
def books(monkeypatch: pytest.MonkeyPatch) -> Iterator[Books]:
    folder = Path(tempfile.mkdtemp(dir="/dev/shm", prefix="elastic-ai-books-"))
    folder.chmod(0o755)  # the caller reads his own file there
    made = Books(folder)
    monkeypatch.setenv("PATH", made.path)
    yield made
    (made.books / "hold").unlink(missing_ok=True)
    for helper in made.helpers:
        if helper.poll() is None:
            os.killpg(helper.pid, signal.SIGKILL)
        helper.wait()
        assert helper.stderr is not None
        helper.stderr.close()
    shutil.rmtree(folder)


def test_a_container_that_runs_goes_with_its_lease(books: Books) -> None:
    books.lease()
    helper = books.start()
    until(lambda: books.boxes() == ["running"])
    assert books.end() == []
    assert (books.boxes(), helper.wait(10)) == ([], 137)


def test_a_start_in_the_middle_is_waited_for_and_its_container_never_runs(books: Books) -> None:
    books.lease()
    (books.books / "hold").touch()
    helper = books.start()
    until(books.creating)
    instance.close(books.host, "41")
    with ThreadPoolExecutor(1) as worker:
        removed = worker.submit(container.remove, books.host, "41")
        with pytest.raises(FutureTimeout):
            removed.result(1)
        (books.books / "hold").unlink()
        assert removed.result(20) == []
    assert helper.wait(10) in (1, 137)
    assert books.boxes() == []


def test_what_would_start_after_the_end_has_begun_starts_nothing(books: Books) -> None:
    books.lease()
    instance.close(books.host, "41")
    helper = books.start()
    assert helper.wait(10) == 125
    assert helper.stderr is not None
    assert "lease of job 41 has ended" in helper.stderr.read()
    assert "create" not in (books.books / "calls").read_text()


def test_a_killed_helper_leaves_a_container_that_never_runs_and_the_sweep_takes_it(books: Books) -> None:
    """Docker goes on with what it was asked for when who asked is killed, as Slurm kills it."""
    books.lease()
    (books.books / "hold").touch()
    helper = books.start()
    until(books.creating)
    helper.kill()
    assert helper.wait(10) == -signal.SIGKILL
    assert books.end() == []
    (books.books / "hold").unlink()
    until(lambda: books.boxes() == ["created"])
    books.host.serve()
    books.host.slurm.answers["squeue"] = ""
    assert sweep.sweep(books.host) == 0
    assert books.boxes() == []


def test_a_helper_that_hangs_is_killed_and_does_not_keep_the_lease(
    books: Books, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever holds it up: a server whose lease's end waited for it for ever would be drained."""
    monkeypatch.setattr(container, "STARTING_S", 0.5)
    books.lease()
    (books.books / "hold").touch()
    helper = books.start()
    until(books.creating)
    for word in ("TSTP", "TTIN", "TTOU"):  # the keys of a terminal
        os.kill(helper.pid, signal.Signals[f"SIG{word}"])
    assert books.end() == []
    assert helper.wait(10) == -signal.SIGKILL


def test_ten_starts_beside_an_end_leave_no_container(books: Books) -> None:
    for attempt in range(3):
        books.lease()
        helpers = [books.start() for _ in range(10)]
        time.sleep(0.15 * attempt)
        until(lambda wanted=3 * attempt: len(books.boxes()) >= wanted)
        assert books.end() == []
        assert [helper.wait(20) in (1, 125, 137) for helper in helpers] == [True] * 10
        assert books.boxes() == []


def test_the_sweep_knows_containers_of_leases_that_are_gone_and_leaves_the_others(books: Books) -> None:
    books.lease("41")
    helper = books.start("41")
    until(lambda: books.boxes() == ["running"])
    for number in ("40", "42", "x"):
        (books.books / f"box.{number}.1").write_text("restarting")
    books.host.serve()
    books.host.slurm.answers["squeue"] = "41 RUNNING Unknown N/A\n43 RUNNING Unknown N/A\n"
    object.__setattr__(books.host.systemd, "units", {"41": lease_forms.instance()})
    assert sweep.sweep(books.host) == 0
    assert sorted(path.name.split(".")[1] for path in books.books.glob("box.*")) == ["41", "x"]
    assert helper.poll() is None


def options(books: Books, monkeypatch: pytest.MonkeyPatch, cpus: int, **more: Any) -> list[str]:
    monkeypatch.setattr(container_limits.os, "sched_getaffinity", lambda _pid: set(range(cpus)))
    monkeypatch.setattr(container_limits.os, "cpu_count", lambda: 8)
    devices = (lease_forms.leased_gpu(0), lease_forms.leased_gpu(1))
    lease = lease_forms.instance(**{"devices": devices, "job_memory_mib": 512, "job_cpus": 2, **more})
    return container_limits.words(lease, container.docker)[0]


def test_a_container_has_the_limits_of_its_lease_wherever_it_is_asked_for(
    books: Books, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = {"--memory=512m", "--memory-swap=512m", "--pids-limit=8192", "--cpus=2", "--ulimit=core=0"}
    inside, outside = options(books, monkeypatch, 2), options(books, monkeypatch, 8)
    assert held <= set(inside)
    assert "--cpuset-cpus=0,1" in inside
    assert held <= set(outside), "from a login on the server all processors are the caller's"
    assert not [word for word in outside if word.startswith("--cpuset")]
    unknown = options(books, monkeypatch, 2, job_memory_mib=0, job_cpus=0)
    assert [word for word in unknown if word.startswith("--memory=") and word != "--memory=0m"]
    assert "--cpus=2" in unknown
    (size,) = [word for word in inside if word.startswith("--tmpfs=")]
    assert "size=64m" in size


def test_all_containers_of_a_lease_together_are_in_one_slice(books: Books, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[tuple[str, ...]] = []

    def systemctl(*words: str) -> bool:
        said.append(words)
        return "broken" not in words[0]

    monkeypatch.setattr(container_limits, "_systemctl", systemctl)
    docker = books.folder / "bin" / "docker"
    docker.write_text(docker.read_text().replace("cgroupfs", "systemd"))
    assert options(books, monkeypatch, 2)[-1] == "--cgroup-parent=elastic_ai_lease-41.slice"
    assert said[0][3:] == ("MemoryMax=512M", "MemorySwapMax=0", "TasksMax=8192", "CPUQuota=200%")
    container_limits.remove("41")
    assert [words[0] for words in said[1:]] == ["start", "is-active", "stop", "revert"]
    monkeypatch.setattr(container_limits, "_systemctl", lambda *_: False)
    with pytest.raises(LeaseError, match="which holds the containers"):
        options(books, monkeypatch, 2)
