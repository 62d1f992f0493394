"""A node that means harm to `toolkit support`, or is broken: names, sizes, times, garbage. The command still ends."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import sys
import tarfile
import time
from pathlib import Path

import pytest

from tests.support import support_case as case
from tests.support.run_case import processes_of, topology
from toolkit.errors import UsageFault
from toolkit.support import node as asking
from toolkit.support import package as packing
from toolkit.support import reports
from toolkit.support.package import Package
from toolkit.support.secret_filter import Literals

SCRIPT = """
import base64, json, os, re, sys, time
mark = re.search(rb'"mark": "([0-9a-f]+)"', sys.stdin.buffer.read1(4096))[1].decode()
def say(**fields):
    print(json.dumps({"support": mark, **fields}), flush=True)
def piece(name, data):
    say(file=name, data=base64.b64encode(data).decode())
"""


def package(folder: Path) -> Package:
    (folder / "spool").mkdir(exist_ok=True)
    return Package(folder / "spool", Literals([]))


def ask(
    folder: Path, script: str, monkeypatch: pytest.MonkeyPatch, deadline_s: float = 20.0, grace_s: float = 1.0
) -> tuple[str, Package]:
    """What comes of a node that runs this instead of our program."""
    monkeypatch.setattr(asking, "command", lambda *_: [sys.executable, "-c", SCRIPT + script])
    monkeypatch.setattr(asking, "GRACE_S", grace_s)
    monkeypatch.setattr(asking, "STOP_S", 1.0)
    taking = package(folder)
    fault = asyncio.run(asking.ask(topology(1).nodes[0], "site", taking, {"what": "all"}, deadline_s))
    return fault, taking


@pytest.mark.parametrize(
    "name",
    ["../x", "node/../../x", "/etc/passwd", "node/..", "node/.ssh/x", "node//x", "run/verdict.json", "README.txt",
     "node", "node/a\nb", "node/\u202ex", "node/c:x", "node/" + "x" * 500, "node/a/b/c/d/e/f/g/h", "node\\..\\x", ""],
)  # fmt: skip
def test_names_that_lead_elsewhere_are_refused_and_reported(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = f"piece({name!r}, b'x'); say(end={name!r}, source='s'); piece('node/a.txt', b'a')\n"
    fault, taken = ask(tmp_path, script + "say(end='node/a.txt', source='s'); say(done=True)", monkeypatch)
    taken.settle()
    assert (fault, set(taken.entries)) == ("", {"node/a.txt"})
    assert "no file of a package may have" in taken.unreads[0]["why"]
    assert sorted(path.parent for path in tmp_path.rglob("*") if path.is_file()) == [tmp_path / "spool"]


@pytest.mark.parametrize(
    "script",
    ["while True: sys.stdout.buffer.write(os.urandom(65536))", "while True: sys.stdout.write('x' * 65536)",
     "while True: piece('node/a.txt', b'x' * 40000)", "while True: say(unread='x', file='node/x', why='y' * 60000)",
     "while True: say(part={'kind': 'gpu', 'serial': 'x' * 60000})", "while True: print('{' * 60000)"],
    ids=["binary", "one line without an end", "a file without an end", "gaps", "parts", "brackets"],
)  # fmt: skip
def test_what_never_ends_is_cut_off(script: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking, "ANSWER_BYTES", 24 << 20)
    monkeypatch.setattr(packing, "FILE_BYTES", 1 << 20)
    fault, taken = ask(tmp_path, script, monkeypatch, deadline_s=60)
    assert "sent more than 24 MiB and was cut off" in fault
    taken.settle()
    assert sum(entry.size for entry in taken.entries.values()) <= 1 << 20
    assert len(taken.parts) <= 2000
    assert len(taken.unreads) <= packing.MOST_UNREAD + 1
    assert processes_of(script) == []


def test_a_node_that_says_nothing_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begin = time.monotonic()
    script = "piece('node/a.txt', b'half'); import signal; signal.signal(15, signal.SIG_IGN); time.sleep(987654)"
    fault, taken = ask(tmp_path, script, monkeypatch, deadline_s=1.0)
    assert "did not end within 2 s" in fault
    assert time.monotonic() - begin < 30
    taken.settle()
    assert "ended within this file" in taken.entries["node/a.txt"].note
    assert processes_of("987654") == []


def test_a_file_is_taken_once_and_many_files_are_too_many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing, "MOST_FILES", 5)
    script = (
        "piece('node/0', b'first'); say(end='node/0', source='s')\n"
        "piece('node/0', b'more'); say(end='node/0', source='t')\n"
        "for n in range(9): piece(f'node/{n}', b'x'); say(end=f'node/{n}', source='s')\n"
        "say(done=True)"
    )
    _, taken = ask(tmp_path, script, monkeypatch)
    taken.settle()
    assert len(taken.entries) == 5
    assert taken.entries["node/0"].path.read_bytes() == b"first"
    assert any("more than 5 files" in one["why"] for one in taken.unreads)


def test_documents_that_are_none_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = (
        "say(file='node/a', data='***'); say(file='node/a', data=7); say(file=7, data='eA==')\n"
        "say(part=[1]); say(doing=5)\n"
        "say(end='node/b', source=['x'], when={}, total='many', newest='yes', note=3); print('[' * 100000)\n"
        "say(end='node/c', source='p\\x1b[31m', total=10**40, note='\\x1b]0;x\\x07'); say(done='yes'); say(done=True)"
    )
    fault, taken = ask(tmp_path, script, monkeypatch)
    taken.settle()
    assert (fault, set(taken.entries), taken.parts) == ("", {"node/b", "node/c"}, [])
    assert "\x1b" not in taken.manifest({})


def test_text_that_moves_a_cursor_is_made_visible(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = "piece('node/a', b'\\x1b[2Jgone\\x00 \\xff\\n'); say(end='node/a', source='s'); say(done=True)"
    _, taken = ask(tmp_path, script, monkeypatch)
    taken.settle()
    assert taken.entries["node/a"].path.read_bytes() == b"\\x1b[2Jgone \xff\n"


def bomb(size: int) -> bytes:
    """An archive whose one member says that it is a header of that size."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz", compresslevel=1) as tar:
        about = tarfile.TarInfo("x")
        about.type, about.size = tarfile.XHDTYPE, size
        out_ = tar.fileobj
        assert out_ is not None
        out_.write(about.tobuf(tarfile.USTAR_FORMAT))
        out_.write(b"\0" * size)
    return out.getvalue()


@pytest.mark.parametrize(
    ("data", "why"),
    [(b"no archive", "cannot be read as an archive"), (b"\x1f\x8bbroken", "cannot be read as an archive"),
     (case.archive({"a": b"x" * 100_000})[:90], "cannot be read as an archive"),
     (bomb(8 << 20), "larger than any real one")],
    ids=["text", "gzip", "cut", "header"],
)  # fmt: skip
def test_a_broken_report_is_left_out(data: bytes, why: str, tmp_path: Path) -> None:
    (tmp_path / "in").write_bytes(data)
    assert why in reports.sosreport(tmp_path / "in", tmp_path / "out", Literals([])).fault


def test_a_report_that_unpacks_without_an_end_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reports, "UNPACKED_BYTES", 4 << 20)
    monkeypatch.setattr(reports, "MEMBER_BYTES", 1 << 20)
    (tmp_path / "in").write_bytes(case.archive({f"sos/{n}": b"\n" * (3 << 20) for n in range(3)}))
    assert (
        "it has more than 4 MiB, unpacked" in reports.sosreport(tmp_path / "in", tmp_path / "out", Literals([])).fault
    )


def test_a_report_that_came_in_half_is_not_packed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = base64.b64encode(case.archive({"sos/a": b"x"})).decode()
    script = f"say(file='node/reports/sosreport.tar.gz', data={data!r})"
    fault, taken = ask(tmp_path, script, monkeypatch)
    taken.settle()
    assert "its program ended with status 0 before everything was read" in fault
    assert (taken.entries, "is not whole" in taken.left[0]["why"]) == ({}, True)
    assert json.loads(taken.manifest({}))["left_out"]


@pytest.mark.parametrize(
    ("script", "why"),
    [("print(json.dumps({'type': 'python-too-old', 'python': '3.6.8'}))", "Python there is 3.6.8, and 3.9 is needed"),
     ("sys.stderr.write('bash: line 1: exec: python3: not found'); sys.exit(127)", "python3 is not installed there"),
     ("sys.stderr.write('sudo: a password is required'); sys.exit(1)", "user root needs sudo without a password"),
     ("sys.stderr.write('ssh: connect: No route to host'); sys.exit(255)", "does not answer; is it up?"),
     ("say(doing='x'); sys.exit(255)", "the connection ended before everything was read"),
     ("print('welcome'); sys.exit(3)", "cannot be used (ssh: welcome)")],
)  # fmt: skip
def test_why_a_node_was_not_read(script: str, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert why in ask(tmp_path, script, monkeypatch)[0]


def test_a_user_that_is_not_root_goes_through_sudo() -> None:
    words = asking.command(topology(1, user="ops").nodes[0], 17)
    assert words[-1] == (
        "echo; exec sudo -n env LC_ALL=C python3 -I -B -c 'import sys;exec(sys.stdin.buffer.read(17))'"
    )
    assert "BatchMode=yes" in words


def test_a_full_disk_is_one_error_and_leaves_no_half_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    taken = package(tmp_path)
    taken.add("controller/a.txt", "text", "source")
    monkeypatch.setattr(packing.os, "fsync", lambda _: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    with pytest.raises(UsageFault, match="No space left on device; name a place with --out"):
        taken.write(tmp_path / "x.tar.gz", "x", {}, "readme")
    assert [path.name for path in tmp_path.iterdir()] == ["spool"]


def test_a_file_system_without_hard_links_takes_the_file_and_nothing_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = package(tmp_path)
    taken.add("controller/a.txt", "text", "source")
    monkeypatch.setattr(packing.os, "link", lambda *_: (_ for _ in ()).throw(OSError(1, "Operation not permitted")))
    target = tmp_path / "x.tar.gz"
    assert taken.write(target, "x", {}, "readme") == target.stat().st_size > 0
    assert target.stat().st_mode & 0o777 == 0o600
    before = target.read_bytes()
    with pytest.raises(UsageFault, match="is there already"):
        taken.write(target, "x", {}, "readme")
    assert target.read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["spool", "x.tar.gz"]
