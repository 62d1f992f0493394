"""bin/test: every test is in one check, what may run beside what, and how the end is told."""

from __future__ import annotations

import fnmatch
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.lease_lab import until
from tests.support.processes import runs
from tools.suite import __main__ as program
from tools.suite.checks import GROUPS, LOOPBACK, Check, When, checks, group_of, marked
from tools.suite.lanes import BESIDE, Ended, Lanes, ready
from tools.suite.wanted import MORE, PARTS, Wanted, WantedError

ROOT = Path(__file__).parents[2]
EVERYTHING = Wanted((*PARTS, *MORE), rest=True)


def files_of(check: Check) -> set[str]:
    """The test files of a check that runs pytest."""
    words = [word for word in check.command if word.startswith(("tests/", "--ignore-glob="))]
    ignored = [word.partition("=")[2] for word in words if word.startswith("-")]
    named = [ROOT / word for word in words if not word.startswith("-")]
    files = [f for path in named for f in ([path] if path.is_file() else path.rglob("test_*.py"))]
    return {str(f.relative_to(ROOT)) for f in files if not any(fnmatch.fnmatch(str(f), glob) for glob in ignored)}


def test_every_test_file_is_in_one_check_and_no_more() -> None:
    found = [name for check in checks(EVERYTHING, None) for name in files_of(check)]
    assert sorted(found) == sorted(str(p.relative_to(ROOT)) for p in (ROOT / "tests").rglob("test_*.py"))


def test_every_group_has_files_and_every_mark_is_declared(pytestconfig: pytest.Config) -> None:
    assert set(marked()) == {LOOPBACK, *GROUPS}
    assert all(len(files) > 5 for files in marked().values())
    declared = {line.partition(":")[0] for line in pytestconfig.getini("markers")}
    assert declared >= {*GROUPS, "rest"}


@pytest.mark.parametrize(
    ("text", "group"),
    [
        ("import pytest\n", LOOPBACK),
        ("import pytest\npytestmark = pytest.mark.computes\n", "computes"),
        ("import pytest\npytestmark = [pytest.mark.skipif(True, reason='x'), pytest.mark.engines]\n", "engines"),
        ("# pytest.mark.systems\n", LOOPBACK),
    ],
)
def test_a_file_says_its_group_itself(text: str, group: str) -> None:
    assert group_of(text) == group


@pytest.mark.parametrize(
    "text",
    [
        "import pytest\npytestmark = [pytest.mark.computes, pytest.mark.engines]\n",
        "import pytest\n@pytest.mark.computes\ndef test_one(): ...\n@pytest.mark.systems\ndef test_two(): ...\n",
        "import pytest\n@pytest.mark.computes\ndef test_one(): ...\n",
    ],
)
def test_a_file_is_in_one_group_as_a_whole(text: str) -> None:
    with pytest.raises(WantedError, match="in one group as a whole"):
        group_of(text)


def order(chosen: list[Check]) -> list[tuple[set[str], str]]:
    """Each check as it begins, with what runs then, where the one that began first ends first."""
    waiting, running, found = list(chosen), list[Check](), []
    while waiting or running:
        while check := ready(waiting, running):
            waiting.remove(check)
            found.append(({one.name for one in running}, check.name))
            running.append(check)
        running.pop(0)
    return found


def named(*checks_: str) -> list[Check]:
    """Checks by words such as `first a`."""
    found = []
    for words in checks_:
        when, name = words.split()
        before_lab = when == "before"
        found.append(Check(name, ("true",), When.BESIDE if before_lab else When[when.upper()], before_lab))
    return found


def test_two_of_the_ordinary_run_beside_one_of_the_lowest_priority() -> None:
    found = order(named("beside x", "first a", "beside y", "first b", "first c"))
    assert found == [
        (set(), "a"), ({"a"}, "b"), ({"a", "b"}, "x"), ({"b", "x"}, "c"), ({"x", "c"}, "y"),
    ]  # fmt: skip


def test_the_lab_begins_when_what_measures_and_the_small_site_have_ended() -> None:
    others = "tuvwxyz"
    found = order(named("before small", "lab lab", "first a", "first b", *(f"beside {name}" for name in others)))
    before = next(running for running, name in found if name == "lab")
    assert not before & {"a", "b", "small"}
    begun = [name for _, name in found]
    assert begun.index("lab") > max(begun.index(name) for name in ("a", "b", "small"))
    assert any("lab" in running for running, name in found if name in others), "they run beside it"
    assert all(len(running - {*others, "small"}) <= 2 for running, _ in found)


def test_what_has_time_limits_and_measures_nothing_does_not_keep_the_lab_waiting() -> None:
    """It has the ordinary priority, before the lab in a place that is free and then beside it."""
    found = order(named("along torch", "first a", "first b", "lab lab"))
    assert found == [(set(), "a"), ({"a"}, "b"), ({"b"}, "torch"), ({"torch"}, "lab")]
    found = order(named("along torch", "lab lab"))
    assert found == [(set(), "lab"), ({"lab"}, "torch")]


def test_machines_begin_when_all_else_has_ended_and_any_choice_comes_to_its_end() -> None:
    every = ("last m", "lab lab", "first a", "before small", "beside x", "first b", "along torch")
    for skip in range(2 ** len(every)):
        chosen = named(*(words for bit, words in enumerate(every) if not skip >> bit & 1))
        found = order(chosen)
        assert len(found) == len(chosen)
        assert all(not running for running, name in found if name == "m")


def test_the_parts_of_bin_test_have_their_checks() -> None:
    names = {part: {c.name for c in checks(Wanted((part,)), None)} for part in PARTS}
    assert {"ruff", "mypy", "yamllint", "shellcheck", "ansible-lint"} <= names["lint"]
    assert names["unit"] == {"unit tests"}
    assert names["lab"] == {"a small site as on Ubuntu", "the site in the lab"}
    assert "PyTorch by the engine torch" in names["functional"]
    assert len(names["functional"]) == 6
    with_rest = [c.command for c in checks(EVERYTHING, None) if c.command[1:3] == ("-m", "pytest")]
    assert sum("--rest" in command for command in with_rest) == len(with_rest) - 1, "all but the small site"


def shell(name: str, script: str, when: When = When.FIRST) -> Check:
    return Check(name, ("sh", "-c", script), when)


def test_the_end_tells_what_failed_and_what_did_not_run(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    chosen = [
        shell("good", "echo 'SKIPPED [1] this machine has no clock'"),
        shell("bad", "seq 100; printf 'a \\377 byte\\n'; exit 3"),
    ]
    assert program.run(Wanted(("unit",)), chosen, 65) == 1
    out = capfdbinary.readouterr().out.decode(errors="replace")
    for words in ("begun: good   (sh -c", "ended: bad, after 0:00, exit code 3"):
        assert words in out
    end = out.partition("the last lines of what failed: bad\n")[2]
    assert end.startswith("62\n"), "the last forty lines"
    assert "== skipped, for what this machine is\nSKIPPED [1] this machine has no clock\n" in end
    assert "| molecule/default |" in end
    assert "1:05        preparing this machine\n" in end
    assert end.endswith("failed: bad\ntotal: 1 passed, 1 failed\n")
    assert program.run(Wanted(("unit",), rest=True), chosen[:1], 0) == 0
    assert "molecule/default" not in capfdbinary.readouterr().out.decode()


def test_the_lab_is_told_when_nothing_runs_beside_it_any_more(tmp_path: Path) -> None:
    """By a file that is there until then; the others end, since the lab of this test waits for them."""
    go = tmp_path / "go"
    lab = f"test -e ${BESIDE} && touch {go}; while test -e ${BESIDE}; do sleep 0.05; done"
    beside = f'test -z "${{{BESIDE}:-}}" && while ! test -e {go}; do sleep 0.05; done'
    others = [shell("torch", f"{beside}; sleep 0.5", When.ALONG), *(shell(name, beside, When.BESIDE) for name in "xyz")]
    chosen = [shell("lab", lab, When.LAB), *others]
    found = Lanes(tmp_path, time.monotonic(), lambda line: None).run(chosen)
    assert [one.exit_code for one in found] == [0, 0, 0, 0, 0]
    assert found[-1].check.name == "lab"


def test_the_seconds_of_a_processor_are_those_of_all_its_processes(tmp_path: Path) -> None:
    busy = "python3 -c 'import time\nwhile time.process_time() < 0.3: pass'"
    (one,) = Lanes(tmp_path, time.monotonic(), lambda line: None).run([shell("busy", f"{busy}; {busy}")])
    assert one.busy_s >= 0.6
    assert isinstance(one, Ended)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_ends_all_processes_of_all_checks(tmp_path: Path, number: signal.Signals) -> None:
    pids = tmp_path / "pids"
    code = (
        "import sys\nfrom tools.suite import __main__ as p\nfrom tools.suite.checks import Check\n"
        "from tools.suite.wanted import Wanted\n"
        f"c = [Check(n, ('sh', '-c', 'sleep 60 & echo $! >> {pids}; wait')) for n in 'ab']\n"
        "sys.exit(p.run(Wanted(('unit',)), c, 0))"
    )
    process = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.DEVNULL)
    while not pids.exists() or len(pids.read_text().split()) < 2:
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(number)
    assert process.wait() == 130
    until(lambda: [pid for pid in pids.read_text().split() if runs(int(pid))], [], 60)
