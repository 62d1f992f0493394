"""Names, options and values that are misspelt: one line, and the nearest that there is."""

from __future__ import annotations

from pathlib import Path

import click
import pytest

from tests.support.command_tree import PATHS, toolkit, tree
from toolkit.errors import UsageFault, or_nearest
from toolkit.mirror.serving import place

ROOT = Path(__file__).parents[2]


def _typos(word: str) -> list[str]:
    """A letter twice, and in longer words two letters in each other's place, or one that is missing."""
    longer = [word[:2] + word[3] + word[2] + word[4:], word[:-2] + word[-1]] if len(word) > 5 else []
    return [typo for typo in (word + word[-1], word.upper(), *longer) if typo != word]


@pytest.mark.parametrize("path", PATHS)
def test_a_misspelt_command_is_refused_with_the_nearest(path: str) -> None:
    *above, name = path.split()
    for word in _typos(name):
        done = toolkit(*above, word)
        assert (done.exit_code, done.stdout) == (2, "")
        assert f"did you mean {name}?" in done.stderr
        assert f"see: {' '.join(('toolkit', *above))} --help" in done.stderr


def test_the_typo_of_the_day() -> None:
    assert (
        toolkit("vaildate").stderr
        == "error: there is no command 'vaildate'; did you mean validate? see: toolkit --help\n"
    )


@pytest.mark.parametrize("name", ["deploy", "teardown"])
def test_an_option_of_ansible_s_before_the_dashes_is_refused_with_its_place(name: str) -> None:
    done = toolkit(name, "-e", "pool_page=true")
    assert (done.exit_code, done.stdout) == (2, "")
    assert "options of ansible-playbook follow after --; see: toolkit" in done.stderr


@pytest.mark.parametrize("path", PATHS)
def test_a_misspelt_option_is_refused_with_the_nearest_in_one_line(path: str) -> None:
    for param in tree()[path].params:
        name = max(param.opts, key=len)
        if not isinstance(param, click.Option) or len(name) < 7:
            continue
        done = toolkit(*path.split(), f"{name[:-3]}{name[-2]}{name[-3]}{name[-1]}x")
        assert (done.exit_code, done.stdout) == (2, "")
        assert "No such option" in done.stderr
        assert "did you mean --" in done.stderr
        assert done.stderr.count("\n") == 1
        assert f"see: toolkit {path} --help" in done.stderr


@pytest.mark.parametrize("path", PATHS)
def test_an_option_without_its_value_names_the_help_of_its_command(path: str) -> None:
    for param in tree()[path].params:
        may_be_bare = getattr(param, "is_flag", True) or param.count or param._flag_needs_value  # type: ignore[attr-defined]
        if not may_be_bare:
            done = toolkit(*path.split(), param.opts[-1])
            assert (done.exit_code, done.stdout) == (2, "")
            assert done.stderr.endswith(f"requires an argument; see: toolkit {path} --help\n"), done.stderr


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("127.0.0.1:99999", "port 99999 is none; name one from 1 to 65535"),
        ("127.0.0.1", "is not of the form ADDRESS:PORT, as 10.0.0.5:8080"),
        ("127.0.0.1:http", "is not of the form ADDRESS:PORT, as 10.0.0.5:8080"),
    ],
)
def test_a_place_to_listen_at_is_refused_by_what_is_wrong_with_it(address: str, words: str) -> None:
    with pytest.raises(UsageFault) as refused:
        place(address, None, None)
    assert str(refused.value) == f"--listen {address}: {words}"


def test_a_misspelt_value_is_refused_with_the_nearest() -> None:
    for words, near in (
        (("validate", "--fabric", "tcp10", "--launcher", "slrum"), "did you mean slurm?"),
        (("run", "--where", "sever", "true"), "did you mean server?"),
        (("lab", "fault", "set", "gpu2", "slow-lnk"), "did you mean slow-link?"),
        (("lab", "drill", "--fault", "slow-lnk"), "did you mean slow-link?"),
        (("lab", "up", "--os", "debain12"), "did you mean debian12?"),
        (("compare", "a", "b", "--format", "htlm"), "did you mean html?"),
        (("help", "vaildate"), "did you mean validate?"),
        (("help", "first-huor"), "did you mean first-hour?"),
    ):
        done = toolkit(*words)
        assert (done.exit_code, near in done.stderr) == (2, True), done.stderr


def test_every_choice_offers_the_nearest() -> None:
    for path in PATHS:
        for param in tree()[path].params:
            assert type(param.type) is not click.Choice, (path, param.name)


@pytest.mark.parametrize(
    ("words", "near"),
    [
        (("report", "--format", "htlm"), "htlm: no such format; did you mean html?"),
        (("validate", "--fabric", "tcp10", "--suite", "trasport"), "did you mean transport?"),
        (("fabrics", "show", "roce04"), "did you mean roce40 or"),
        (("profiles", "show", "netwrok"), "did you mean network?"),
        (("criteria", "show", "tr.tcpwb"), "did you mean tr.tcpbw?"),
        (("claims", "list", "--document", "whitepapre"), "did you mean whitepaper?"),
        (("validate", "-i", "inventories/xe968", "--fabric", "tcp10"), "did you mean inventories/xe9680?"),
        (("check", "-i", "inventories/xe968"), "did you mean inventories/xe9680?"),
        (("deploy", "-i", "inventories/xe968"), "did you mean inventories/xe9680?"),
    ],
)
def test_a_misspelt_name_is_refused_with_the_nearest(
    words: tuple[str, ...], near: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    done = toolkit(*words)
    assert (done.exit_code, near in done.stderr) == (2, True), done.stderr


def test_another_number_is_another_node_and_no_misspelling() -> None:
    assert or_nearest("gpu3", ["gpu1", "gpu2"], numbered=True) == "there are: gpu1, gpu2"
    assert or_nearest("h100", ["v100"], "it has v100", numbered=True) == "it has v100"
    assert or_nearest("gup2", ["gpu1", "gpu2"], numbered=True) == "did you mean gpu2?"
