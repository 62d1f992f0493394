"""`toolkit run --detach`, `logs` and `lease list` with programs that go on alone: whose are shown, and what is reported
where none is here. Slurm's answers are constructed (lease_texts)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.support.lease_forms import endpoint
from tests.support.lease_host import FakeHost, FakeSlurm
from tests.support.lease_texts import slurm_job
from toolkit.cli import cli
from toolkit.commands import jupyter
from toolkit.commands import lease as commands
from toolkit.lease import LeaseError, kept_note
from toolkit.lease.client import manage, running
from toolkit.lease.kept import folder, reading, record, starting
from toolkit.lease.kept.record import Kept, Notes, Order, Status


@pytest.fixture
def notes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Notes]:
    """A program that goes on alone, on lease 41."""
    monkeypatch.setattr(folder, "state", lambda: tmp_path / "state")
    words = ("python", "train.py", "--name", "two\nlines\x1b[2J", "x" * 100)
    path = record.make(Order(("toolkit", "run"), words, "/", "", "", record.this_machine(), 0o22, 1.0), {})
    found = Notes(path)
    found.lease(41)
    yield found
    os.close(found._file)


def list_(monkeypatch: pytest.MonkeyPatch, *more: str) -> str:
    host = FakeHost(slurm=FakeSlurm(said=[slurm_job()], files=[endpoint().text()]))
    monkeypatch.setattr(commands, "this_host", lambda: host)
    monkeypatch.setattr(commands, "on_head", lambda *_: False)
    done = CliRunner().invoke(cli, ["lease", *more], prog_name="toolkit")
    assert done.exit_code == 0, done.output
    return done.output


@pytest.mark.usefixtures("notes")
def test_the_list_shows_programs_of_the_user_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manage, "me", lambda: "alice")
    mine = list_(monkeypatch, "list").splitlines()
    assert mine[0].endswith("RUNS")
    assert r"python train.py --name 'two\u000alines\u001b[2J'"[:45] in mine[1]
    assert mine[1].endswith("...")
    assert "(toolkit logs -f 41)" in list_(monkeypatch, "show", "41")
    assert '"runs": "python train.py' in list_(monkeypatch, "list", "--json")
    monkeypatch.setattr(manage, "me", lambda: "bob")  # a lease of that number, and it is alice's
    others = list_(monkeypatch, "list", "--all")
    assert "alice" in others
    assert "RUNS" not in others
    assert "train.py" not in list_(monkeypatch, "show", "41") + list_(monkeypatch, "list", "--all", "--json")


def test_what_has_ended_runs_no_more(monkeypatch: pytest.MonkeyPatch, notes: Notes) -> None:
    monkeypatch.setattr(manage, "me", lambda: "alice")
    notes.end(0)
    assert "RUNS" not in list_(monkeypatch, "list")


@pytest.mark.parametrize(
    ("me", "machine", "said", "words"),
    [
        ("bob", "client1", [slurm_job()], "lease 41 is another user's, and so is what it prints"),
        ("alice", "client2", [slurm_job()], "was requested on client1; its output is there: toolkit logs 41"),
        ("alice", "client1", [slurm_job()], "its program was not started by --detach"),
        ("alice", "client1", [], "no program of yours goes on alone under it on client1"),
    ],
)
def test_output_of_another_is_not_looked_for(
    me: str, machine: str, said: list, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch  # type: ignore[type-arg]
) -> None:  # fmt: skip
    monkeypatch.setattr(folder, "state", lambda: tmp_path / "state")
    monkeypatch.setattr(manage, "me", lambda: me)
    monkeypatch.setattr(record, "this_machine", lambda: machine)
    with pytest.raises(LeaseError) as fault:
        reading.find(FakeHost(slurm=FakeSlurm(said=said)), 41)
    assert words in str(fault.value)
    assert not (tmp_path / "state").exists()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--then", "true"], "--then and --mail are for --detach"),
        (["--mail", "alice"], "--then and --mail are for --detach"),
        (["-d", "-t", "--where", "server"], "omit -t"),
        (["-d", "--static", "x"], "omit --static"),
    ],
)
def test_what_contradicts_itself_is_refused(options: list[str], words: str) -> None:
    done = CliRunner().invoke(cli, ["run", *options, "--", "true"], prog_name="toolkit")
    assert done.exit_code == 2
    assert words in done.output


def test_a_program_never_has_the_descriptor_of_its_supervisor(monkeypatch: pytest.MonkeyPatch) -> None:
    reads, writes = os.pipe()
    os.set_inheritable(writes, True)
    monkeypatch.setattr(kept_note._SUPERVISOR, "descriptor", None)
    monkeypatch.setenv(kept_note.VARIABLE, str(writes))
    kept_note.note_lease(41)
    kept_note.note_running()
    kept_note.note_held(42)
    assert os.read(reads, 100) == b"lease 41\nrunning\nheld 42\n"
    assert kept_note.VARIABLE not in os.environ
    assert not os.get_inheritable(writes)
    os.close(reads)
    kept_note.note_lease(42)  # nobody listens any more
    os.close(writes)


def test_a_lease_that_was_there_before_is_noted_as_one_that_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    noted: list[object] = []
    monkeypatch.setattr(kept_note, "_note", noted.append)
    monkeypatch.setattr(running, "endpoints_of", lambda *_: [endpoint()])
    monkeypatch.setattr(running, "start_and_wait", lambda *_: 7)
    assert running.run_on(FakeHost(slurm=FakeSlurm(said=[slurm_job()])), 41, ["true"], print) == 7
    assert noted == ["held 41", "running"]


def test_the_first_words_have_the_place_in_the_queue_and_the_next_commands(tmp_path: Path) -> None:
    order = Order(("toolkit",), ("x",), "/", "", "", "client1", 0o22, 1.0)
    kept = Kept(tmp_path, order, Status("waiting", (41,)), True)
    pending = FakeSlurm(said=[slurm_job(state="PENDING")], queue_place=3, start="14:20")
    words = starting.started_words(FakeHost(slurm=pending), kept)
    assert words == "lease 41: waits on client1, place 3 in the queue, expected 14:20"
    assert starting.started_words(FakeHost(), kept) == "lease 41: goes on alone on client1"
    assert [line.split("  ")[1] for line in starting.next_commands(kept).splitlines()] == [
        "toolkit logs -f 41", "toolkit attach 41", "toolkit lease release 41"
    ]  # fmt: skip


def test_on_a_lease_that_stays_it_is_the_program_that_is_ended(tmp_path: Path) -> None:
    order = Order(("toolkit",), ("x",), "/", "", "", "client1", 0o22, 1.0)
    said = starting.next_commands(Kept(tmp_path, order, Status("running", (41,), held=True, pid=4711), True))
    assert "release" not in said
    assert said.splitlines()[-1].split() == ["kill", "4711", "ends", "it;", "lease", "41", "stays"]


def test_a_detached_notebook_server_has_its_url_once_its_gpus_came(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    order = Order(("toolkit",), ("jupyter",), "/", "", "", "client1", 0o22, 1.0)
    states = ["waiting", "waiting", "running", "running"]
    url = tmp_path / "url"

    def read(path: Path) -> Kept:
        state = states.pop(0) if len(states) > 1 else states[0]
        if states == ["running"]:
            url.write_text("http://127.0.0.1:8888/lab?token=1\n")
        return Kept(path, order, Status(state, (41,)), True)  # type: ignore[arg-type]

    monkeypatch.setattr(jupyter.record, "read", read)
    monkeypatch.setattr(jupyter.here, "url_file", lambda _lease: url)
    assert jupyter._url(read(tmp_path)) == "http://127.0.0.1:8888/lab?token=1"
    monkeypatch.setattr(jupyter, "COMES_S", 0.2)
    states[:] = ["waiting"]
    url.unlink()
    assert jupyter._url(read(tmp_path)) == "", "it waits for other leases"
