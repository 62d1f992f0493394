"""What a user types for a lease: wishes, times, short options; and what is refused before anything is asked."""

from __future__ import annotations

import json
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from tests.support.lease_asked import POOL
from tests.support.lease_host import FakeHost, FakeSlurm
from tests.support.lease_texts import COMMENT
from toolkit.commands import lease_shared
from toolkit.commands.lease import lease as lease_command
from toolkit.commands.run import run
from toolkit.lease import LeaseError
from toolkit.lease.client import ask, running
from toolkit.lease.jobs.submission import JobGpus
from toolkit.lease.lease_request import LeaseWish


def test_a_request_is_one_of_p_and_m(tmp_path: Path) -> None:
    host = FakeHost(folder=tmp_path, slurm=FakeSlurm(node_text=POOL))
    host.serve()
    with pytest.raises(LeaseError, match="give one of them"):
        ask.against_pool(host, LeaseWish(part="0.5", memory_mib=100), "run", print)
    gpus = [{"index": i, "name": "Emulated", "memory_mib": 256} for i in range(4)]
    host.pool_conf.write_text(json.dumps({"servers": {"gpu1": {"gpus": gpus, "address": "10.78.1.13"}}}))
    host.network.routes["10.78.1.13"] = "10.78.1.12"
    asked = ask.against_pool(host, LeaseWish(memory_mib=100, seconds=7200), "run", print)
    assert (asked.request.part.shards, asked.gpus, "--time=120" in asked.options()) == (55, JobGpus("shard", 55), True)
    assert json.loads(COMMENT)["elastic-ai-lease"] == 1


def test_wishes_that_contradict_each_other_are_refused_before_anything_is_asked(tmp_path: Path) -> None:
    host = FakeHost(folder=tmp_path, slurm=FakeSlurm(node_text=POOL))
    with pytest.raises(LeaseError, match="-l names no server"):
        ask.against_pool(host, LeaseWish(servers=" ,"), "run", print)
    with pytest.raises(LeaseError, match=r"^--class 'v100\\n': not the name of a class"):  # one line
        ask.against_pool(host, LeaseWish(gpu_class="v100\n"), "run", print)
    runner = CliRunner()
    for command, words, said in (
        (run, "--lease 41 -n 2 --time 1h -- true", "--lease runs on what the lease has; omit -n, --time"),
        (run, "--lease 41 --static gpu1-s1 -- true", "--lease runs on what the lease has; omit --static"),
        (run, "--static gpu1-s1 -p 0.5 -- true", "--static runs on what the lease has; omit -p"),
        (run, "--signal NOPE -- true", "no such signal"),
        (lease_command, "request --user alice", "--client and --user are for --static"),
        (lease_command, "request --static gpu1 --client c --user a -l gpu1 --no-wait", "omit -l, --no-wait"),
        (lease_command, "request --static gpu1 --client c --user a -n 0", "request at least 1 GPU"),
        (lease_command, "release 4²", "leases are named by number"),
        (lease_command, f"release {'9' * 5000}", "leases are named by number"),
        (lease_command, "release s1 --static gpu1 --grace 5", "--grace needs Slurm"),
    ):
        done = runner.invoke(command, words.split())
        assert isinstance(done.exception, LeaseError), (words, done.output)
        assert said in str(done.exception)
    assert host.slurm.submitted == []


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90m", 5400), ("2h", 7200), ("1h30m", 5400), ("45s", 45), ("2d", 172_800), ("1.5H", 5400), ("0.004h", 14)],
)
def test_a_time_is_written_with_its_units(text: str, seconds: int) -> None:
    assert lease_shared.Duration().convert(text, None, None) == seconds


@pytest.mark.parametrize("text", ["", "90", "0m", "-1h", "1e9d", "5y", "30m1h", "1h1h", "h", "1 hour", "367d", "²h"])
@pytest.mark.parametrize(
    "words", [("request",), ("request", "--static", "gpu1", "--client", "c", "--user", "a"), ("extend", "41")]
)
def test_what_is_no_time_is_refused_with_the_form(words: tuple[str, ...], text: str) -> None:
    done = CliRunner().invoke(lease_command, [*words, f"--time={text}"])
    assert done.exit_code == 2
    assert "--time" in done.output
    assert "90m" in done.output or "up to a year" in done.output


def test_a_grace_is_a_time_of_at_most_a_day_and_a_number_alone_is_seconds() -> None:
    assert [lease_shared.grace_type.convert(text, None, None) for text in ("120", "2m", "0")] == [120, 120, 0]
    for text in ("-1", "25h", "1d1s", "x"):
        done = CliRunner().invoke(lease_command, ["release", "41", f"--grace={text}"])
        assert (done.exit_code, "--grace" in done.output) == (2, True)


@pytest.mark.parametrize("command", [run, lease_command.commands["request"]])
def test_every_short_option_of_a_request_has_a_long_one(command: click.Command) -> None:
    names = {tuple(sorted(p.opts, key=len)) for p in command.params if isinstance(p, click.Option)}
    assert {("-n", "--gpus"), ("-p", "--part"), ("-m", "--memory"), ("-l", "--servers"), ("--time",)} <= names


def test_a_program_that_is_not_there_is_found_before_any_gpu_is_asked_for() -> None:
    with pytest.raises(LeaseError, match="no-such-program: no such program"):
        running.find_program(["no-such-program"])
