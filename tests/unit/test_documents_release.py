"""Documents of a run that another release of the toolkit wrote: both releases stand in the one error."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.support.edited import edit
from validation.model.load import ConfigError
from validation.rules.release import release
from validation.run.rejudge import judge_files


@pytest.fixture
def slow(site_runs: dict[str, Path], tmp_path: Path) -> Path:
    return Path(shutil.copytree(site_runs["slow"], tmp_path / "slow"))


OF_ANOTHER_RELEASE = {
    "a key more": ("topology.json", lambda d: d.update(noise=1), "noise: unknown key"),
    "a key less": ("plan.json", lambda d: d.pop("rounds"), "rounds: is missing"),
    "in run.json": ("run.json", lambda d: d.pop("site"), "site: is missing"),
}


@pytest.mark.parametrize("version", ["0.0.9", "9.1.0"])
@pytest.mark.parametrize("name", OF_ANOTHER_RELEASE)
def test_what_another_release_wrote_otherwise_is_told_with_both_releases(slow: Path, name: str, version: str) -> None:
    """The cure is not an editor."""
    file, change, words = OF_ANOTHER_RELEASE[name]
    told = f"; toolkit {version} made this run, this is {release()}: use that release for it"
    edit(slow / file, change)
    with pytest.raises(ConfigError, match=words) as caught:
        judge_files(slow)
    assert "made this run" not in str(caught.value), "of this release it is a mistake"
    edit(slow / "run.json", lambda d: d.update(toolkit_version=version))
    with pytest.raises(ConfigError, match=words) as caught:
        judge_files(slow)
    assert str(caught.value).endswith(told)
    assert str(caught.value).count("made this run") == 1


def test_a_result_that_another_release_wrote_otherwise_is_told_so(slow: Path) -> None:
    edit(slow / "run.json", lambda d: d.update(toolkit_version="0.0.9"))
    lines = (slow / "results.jsonl").read_text().splitlines()
    lines[2] = lines[2].replace('"status":', '"state":', 1)
    (slow / "results.jsonl").write_text("\n".join([*lines, ""]))
    with pytest.raises(ConfigError, match=r"results\.jsonl:3: .*toolkit 0\.0\.9 made this run, this is"):
        judge_files(slow)


def test_a_kind_that_only_another_release_measures_is_told_so(slow: Path) -> None:
    edit(slow / "run.json", lambda d: d.update(toolkit_version="0.0.9"))
    path = slow / "criteria" / "20-transport.yml"
    path.write_text(path.read_text().replace("kind: tcp-bandwidth", "kind: older-bandwidth"))
    with pytest.raises(ConfigError, match=r"no 'older-bandwidth'.*toolkit 0\.0\.9 made this run, this is") as caught:
        judge_files(slow)
    assert str(caught.value).count("made this run") == 1


@pytest.mark.parametrize("version", ["0.0.9", None])
def test_two_nodes_of_one_name_are_refused_whoever_planned_the_run(slow: Path, version: str | None) -> None:
    if version is not None:  # then nothing is planned again, which would show that two are there
        edit(slow / "run.json", lambda d: d.update(toolkit_version=version))
    edit(slow / "topology.json", lambda d: d["nodes"][1].update(name=d["nodes"][0]["name"]))
    with pytest.raises(
        ConfigError, match=r"topology\.json:1: nodes: head is there twice; each node has a name of its own"
    ):
        judge_files(slow)
