"""The run directory: whole documents, one writer, nothing overwritten."""

from __future__ import annotations

import errno
import os
from dataclasses import replace
from datetime import datetime, timezone
from importlib import resources
from pathlib import Path

import pytest

from tests.support.run_case import plan, topology
from tests.support.site import run_info
from toolkit import acceptance, rundir
from toolkit.agreement import Agreement
from toolkit.errors import UsageFault
from validation.base.errors import ConfigError
from validation.model import Origin
from validation.rules.fabric import LoadedFabric, load_fabric, read_fabric
from validation.run.catalogue import read_criteria
from validation.run.kept import as_kept
from validation.run.names import FABRIC
from validation.run.read import read, tied

MOMENT = datetime(2026, 11, 21, 10, 15, tzinfo=timezone.utc)


def begun(runs: Path, moment: datetime = MOMENT, loaded: LoadedFabric | None = None) -> Path:
    loaded = loaded or read_fabric("tcp10")
    path = rundir.create(runs, "tcp10", moment)
    topo = topology(2)
    whole = plan(topo).model_copy(update={"run": path.name})
    info = run_info(topo, whole, created=moment.isoformat(), origins={FABRIC: loaded.origin})
    rundir.begin(path, rundir.NewRun(info, topo, whole, loaded, read_criteria()))
    return path


def test_a_run_is_named_by_time_and_fabric_and_never_reused(tmp_path: Path) -> None:
    names = [rundir.create(tmp_path / "runs", "tcp10", MOMENT).name for _ in range(3)]
    assert names == ["2026-11-21T10-15-00Z-tcp10", "2026-11-21T10-15-00Z-tcp10-2", "2026-11-21T10-15-00Z-tcp10-3"]


def test_a_run_stands_on_its_own(tmp_path: Path) -> None:
    path = begun(tmp_path)
    info, topo, whole = rundir.asked(path)
    assert (info.run, topo, whole.run) == (path.name, topology(2), path.name)
    assert load_fabric(str(path / "fabric.yml")) == load_fabric("tcp10")
    assert len(list((path / "criteria").glob("*.yml"))) >= 1
    assert not list(path.glob("*.part"))
    assert not list(path.glob(".*.part"))


def test_the_newest_run_is_found_and_half_begun_ones_are_not(tmp_path: Path) -> None:
    first = begun(tmp_path)
    second = begun(tmp_path, MOMENT.replace(hour=11))
    half = rundir.create(tmp_path, "tcp10", MOMENT.replace(hour=12))
    assert rundir.find(tmp_path, None) == second
    assert rundir.find(tmp_path, first.name) == first
    assert rundir.find(tmp_path / "elsewhere", str(first)) == first
    with pytest.raises(UsageFault, match="killed before it began"):
        rundir.find(tmp_path, half.name)
    with pytest.raises(UsageFault, match=f"the newest is {second.name}"):
        rundir.find(tmp_path, "nothing")


def test_a_full_disk_leaves_the_old_document(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "verdict.json"
    rundir.write_text(path, "old")

    def full(fd: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ConfigError, match=r"verdict\.json: cannot be written: No space left on device; make room"):
        rundir.write_text(path, "new")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_the_lock_is_exclusive_and_ends_with_its_holder(tmp_path: Path) -> None:
    with rundir.lock(tmp_path), pytest.raises(UsageFault, match=f"process {os.getpid()}"), rundir.lock(tmp_path):
        pass
    with rundir.lock(tmp_path):
        pass


def test_judging_again_keeps_what_was_judged_before(tmp_path: Path) -> None:
    path = begun(tmp_path)
    assert rundir.supersede(path, MOMENT) is None
    assert (path / "fabric.yml").is_file(), "a run that was never judged keeps its rules"
    for number in (1, 2):
        rundir.write_text(path / "verdict.json", f"verdict {number}")
        rundir.copy_rules(path, read_fabric("tcp10"), read_criteria())
        kept = rundir.supersede(path, MOMENT)
        assert (kept / "verdict.json").read_text() == f"verdict {number}"
        assert (kept / "fabric.yml").is_file()
    assert len(list((path / "superseded").iterdir())) == 2


def test_new_rules_are_sealed_and_an_edited_plan_is_not(tmp_path: Path) -> None:
    path = begun(tmp_path)
    before, _, _ = rundir.asked(path)
    assert set(before.documents) == set(tied(path))
    rundir.renew(path, before, (FABRIC,), "the same again")
    assert rundir.asked(path)[0] == before
    for name in ("fabric.yml", "plan.json", "criteria/20-transport.yml"):
        (path / name).write_text((path / name).read_text() + "\n")
    (path / "waivers.yml").write_text("waivers: []\n")
    rundir.renew(path, before, (FABRIC,), "rules of another release")
    after, _, _ = rundir.asked(path)
    assert after.replaced == "rules of another release"
    now = tied(path)
    assert {name for name in now if after.documents.get(name) != now[name]} == {"plan.json", "waivers.yml"}


def of_the_site(folder: Path) -> Path:
    """A site's own profile that is called like one of ours and asks for less."""
    path = folder / "tcp10.yml"
    figure = "tcp_bandwidth: {fraction: 0.5, source: agreed with the customer}\n"
    path.write_text((Path(str(resources.files("validation.rules"))) / "fabrics" / "tcp10.yml").read_text() + figure)
    return path


def test_what_is_kept_is_the_text_that_was_planned_with(tmp_path: Path) -> None:
    profile = of_the_site(tmp_path)
    loaded = read_fabric(str(profile))
    profile.write_text("edited meanwhile")
    path = begun(tmp_path / "runs", loaded=loaded)
    kept = read(path)
    assert kept.source(FABRIC).text == as_kept(loaded.text)
    assert kept.fabric == loaded.fabric
    assert kept.info.origins == {FABRIC: "site"}
    assert kept.info.documents[FABRIC] == kept.source(FABRIC).sha256


@pytest.mark.parametrize("origin", ["site", "packaged"])
def test_judging_again_never_takes_our_profile_for_a_sites_by_its_name(tmp_path: Path, origin: Origin) -> None:
    mine = read_fabric(str(of_the_site(tmp_path)))
    path = begun(tmp_path / "runs", loaded=replace(mine, origin=origin))
    (path / "verdict.json").write_text("{}")
    acceptance.rejudge(path, Agreement(None, "", (), {}))
    wanted = mine if origin == "site" else read_fabric("tcp10")
    assert read(path).source(FABRIC).text == as_kept(wanted.text)
    (before,) = (path / "superseded").iterdir()
    assert (before / FABRIC).read_text() == as_kept(mine.text)
