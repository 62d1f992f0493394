"""Acceptance profiles: what is owed decides, what is left out is shown, and no profile can say nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.site import (
    ALL,
    CRITERIA,
    LAB,
    PLAN,
    REAL,
    REAL_FACTS,
    criterion,
    healthy,
    judged_by,
    plan_of,
    result,
    spoil,
    waiver,
)
from tests.support.site import results_of as results
from validation.model.load import ConfigError, Source
from validation.plan.suites import SUITES
from validation.rules.bounds import bounds_of
from validation.rules.fabric import fabric_names, load_fabric
from validation.rules.profile import Profile, load_profile, profile_names, profile_path, read_profile
from validation.run.kept import as_kept

NETWORK = ("preflight", "transport")


def profile(name: str) -> Profile:
    return load_profile(name, CRITERIA, SUITES)


def real(m: Any) -> Any:
    return healthy(m, 10.0, facts=REAL_FACTS)


@pytest.mark.parametrize("name", profile_names())
def test_every_packaged_profile_speaks_of_every_required_criterion(name: str) -> None:
    found = profile(name)
    spoken = {*found.owed, *(c for entry in found.left_out for c in entry.criteria)}
    assert {c.id for c in CRITERIA if c.required} <= spoken
    for fabric in fabric_names():
        assert found.owed_on(CRITERIA, load_fabric(fabric))


def test_profiles_grow_from_quick_to_full_to_long_and_from_network_to_elastic() -> None:
    names = profile_names()
    assert names[:5] == ["network-quick", "network", "training-quick", "training", "training-long"]
    assert names[5:] == ["elastic-quick", "elastic", "elastic-long"]
    owed = {name: set(profile(name).owed) for name in names}
    for less, more in (
        ("network-quick", "network"), ("network", "training-quick"), ("training-quick", "training"),
        ("training", "training-long"), ("training", "elastic"), ("elastic-quick", "elastic"),
        ("elastic", "elastic-long"), ("training-long", "elastic-long"),
    ):  # fmt: skip
        assert owed[less] < owed[more], (less, more)
    assert owed["elastic-long"] == {c.id for c in CRITERIA if c.required}


def test_no_profile_owes_what_this_release_cannot_measure() -> None:
    bare = {c.id for c in CRITERIA if c.no_probe}
    for name in ("network-quick", "network", "training-quick", "training", "elastic-quick", "elastic", "elastic-long"):
        assert not bare & set(profile(name).owed), name


def test_the_same_results_are_accepted_by_network_and_incomplete_without_a_profile() -> None:
    plan = plan_of(REAL, NETWORK)
    found = [real(m) for m in plan.measurements]
    accepted = judged_by(REAL, plan, found, profile("network"))
    assert (accepted.sign_off, accepted.exit_code) == ("ACCEPTED", 0)
    assert accepted.profile.name == "network"
    shown = criterion(accepted, "tr.nccl")
    assert (shown.verdict, shown.owed) == ("not-measured", False)
    assert "the delivery ends at the fabric ports" in shown.not_owed
    assert judged_by(REAL, plan, found, None).sign_off == "INCOMPLETE"
    assert judged_by(REAL, plan, found, profile("elastic")).sign_off == "INCOMPLETE"


def test_what_is_owed_and_not_measured_withholds_the_sign_off() -> None:
    plan = plan_of(REAL, ("preflight",))
    found = [real(m) for m in plan.measurements]
    assert judged_by(REAL, plan, found, profile("network-quick")).sign_off == "ACCEPTED"
    verdict = judged_by(REAL, plan, found, profile("network"))
    assert verdict.sign_off == "INCOMPLETE"
    assert "tr.tcpbw" in verdict.headline
    lost = found[:-1]
    assert judged_by(REAL, plan, lost, profile("network-quick")).sign_off == "INCOMPLETE"


def slow_step(m: Any) -> Any:
    """Training that is too noisy, or that fails."""
    return None if m.kind != "training-short" else result(m, status="failed", error="mpirun: killed")


def test_what_is_left_out_does_not_decide_unless_it_was_measured_and_failed() -> None:
    plan = plan_of(REAL, ALL)
    lost = results(plan, lambda m: slow_step(m) or real(m))
    verdict = judged_by(REAL, plan, lost, profile("network"))
    assert verdict.missing
    assert criterion(verdict, "tn.short").verdict == "not-measured"
    assert verdict.sign_off == "ACCEPTED"
    assert judged_by(REAL, plan, lost, profile("training-quick")).sign_off == "INCOMPLETE"
    failing = results(plan, lambda m: real(m))  # the lab's rates scale too badly for hardware
    failed = judged_by(REAL, plan, failing, profile("network"))
    assert criterion(failed, "tn.intra").verdict == "fail"
    assert not criterion(failed, "tn.intra").owed
    assert failed.sign_off == "REJECTED"
    waivers = [waiver(id_) for id_ in ("tn.intra", "tn.inter")]
    assert judged_by(REAL, plan, failing, profile("network"), waivers).sign_off == "ACCEPTED"


def test_a_criterion_without_a_figure_on_this_fabric_is_left_out_there_alone() -> None:
    network, fabric = profile("network"), load_fabric("roce40")
    assert "tr.rdmalat" not in network.not_owed(CRITERIA, fabric)
    assert "tr.rdmalat" in network.not_owed(CRITERIA, fabric.model_copy(update={"rdma_write_latency": None}))


def test_the_network_of_every_rdma_fabric_can_be_accepted() -> None:
    """Nothing that the network profile owes lacks a bound on any fabric of the package."""
    for name in fabric_names():
        fabric = load_fabric(name)
        bounds = bounds_of(fabric)
        for criterion_ in profile("network").owed_on(CRITERIA, fabric):
            key = criterion_.bound.fabric_key
            assert key is None or key in bounds, f"{name}: {criterion_.id} has no bound"


def test_a_profile_in_a_rehearsal_decides_no_sign_off() -> None:
    verdict = judged_by(LAB, PLAN, results(PLAN), profile("elastic"))
    assert (verdict.sign_off, verdict.outcome) == ("REHEARSAL", "passed")
    bad = spoil("tcp-bandwidth", lambda a, b: True, 0.1)
    assert judged_by(LAB, PLAN, results(PLAN, bad), profile("network-quick")).outcome == "failed"


TEXT = profile_path("network").read_text()
BEFORE = TEXT[: TEXT.index("- tr.tcpbw")]
LINE, PLACE = BEFORE.count("\n") + 1, BEFORE[BEFORE.index("owed:") :].count("  - ")
"""Where tr.tcpbw stands in the file, and among what is owed."""


def cut(a: str, b: str = "") -> Callable[[str], str]:
    def change(text: str) -> str:
        assert a in text
        return text.replace(a, b, 1)

    return change


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (cut("- tr.tcpbw", "- tr.tcpbv"), f":{LINE}: owed.{PLACE}: unknown criterion 'tr.tcpbv'; did you mean"),
        (cut("  - tr.tcpbw\n"), ":7: owed: neither owed nor left out: tr.tcpbw; put each"),
        (cut("  - tr.netlat\n", "  - tr.netlat\n  - tr.netlat\n"), "duplicate criterion: tr.netlat"),
        (cut("[tn.short,", "[pf.bom, tn.short,"), "pf.bom is owed too; keep one of the two"),
        (cut("[tn.short,", "[tr.h2d, tn.short,"), "tr.h2d is left out twice"),
        (cut("[tn.short,", "[tn.shrt,"), "unknown criterion 'tn.shrt'; did you mean tn.short?"),
        (cut("when: no-bound", "when: never"), "left_out.0.when: input should be 'always' or 'no-bound'"),
        (cut("[tr.rdmalat]", "[pf.bom]"), "pf.bom: when: no-bound is for what is owed and has"),
        (cut("why: \"no training stack is part of this delivery\"", "why: ' '"), "why: is blank"),
        (cut("suites: [preflight, transport]", "suites: [preflight, trnsport]"), ":6: suites.1: unknown suite"),
        (cut("suites: [preflight, transport]", "suites: []"), ":6: suites: "),
        (cut("delivery: network", "delivery: everything"), ":4: delivery: "),
        (cut("test: full", "tset: full"), ":5: tset: unknown key; did you mean test?"),
        (lambda text: text[: text.index("owed:")] + "owed: []\n", ":7: owed: a profile that owes nothing"),
        (lambda text: text[: text.index("owed:")], ": owed: is missing"),
        (lambda text: text[: text.index("owed:")] + "owed: [rm.copy]\n", ":7: owed: neither owed nor left out: pf.bom"),
        (lambda text: "- a\n", ":1: a mapping of keys is expected"),
        (lambda text: text.replace("owed:", "owed", 1), ": not valid YAML"),
    ],
)  # fmt: skip
def test_what_is_no_profile_is_refused_with_file_and_line(
    tmp_path: Path, change: Callable[[str], str], words: str
) -> None:
    path = tmp_path / "ours.yml"
    path.write_text(change(TEXT))
    with pytest.raises(ConfigError) as caught:
        load_profile(str(path), CRITERIA, SUITES)
    text = str(caught.value)
    assert text.startswith(f"{path}:"), text
    assert words in text
    assert "\n" not in text


def test_a_profile_of_reports_alone_owes_nothing_that_could_fail(tmp_path: Path) -> None:
    path = tmp_path / "ours.yml"
    everything = ", ".join(c.id for c in CRITERIA if c.required)
    head = TEXT[: TEXT.index("owed:")]
    path.write_text(f"{head}owed: [rm.copy]\nleft_out: [{{criteria: [{everything}], why: not ours}}]\n")
    with pytest.raises(ConfigError, match=r"ours\.yml:7: owed: nothing of it has a bound, so nothing could fail"):
        load_profile(str(path), CRITERIA, SUITES)


def test_unknown_names_and_files_are_told() -> None:
    with pytest.raises(ConfigError, match="unknown acceptance profile 'netwrk'; did you mean network"):
        load_profile("netwrk", CRITERIA, SUITES)
    with pytest.raises(ConfigError, match=r"no/such\.yml: no such file"):
        load_profile("no/such.yml", CRITERIA, SUITES)


EXTENDED = [name for name in profile_names() if "\nextends:" in profile_path(name).read_text()]


@pytest.mark.parametrize("name", EXTENDED)
def test_the_whole_of_what_extends_another_is_read_without_the_other(name: str) -> None:
    """It is what a run keeps, and what `toolkit profiles show --text` prints."""
    agreed, source = read_profile(name, CRITERIA, SUITES)
    assert "extends:" not in source.text
    assert load_profile(source, CRITERIA, SUITES) == agreed
    assert "\nextends:" not in as_kept(source.text), "a text of this release"
    assert as_kept(source.text) == source.text


def extension(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "ours.yml"
    path.write_text(f"name: ours\ntitle: Ours\n{text}")
    return path


def test_an_extension_owes_more_and_leaves_out_more_and_says_nothing_twice(tmp_path: Path) -> None:
    path = extension(
        tmp_path,
        """extends: network
owed: [tr.h2d, pf.asbuilt]
left_out:
  - {criteria: [tr.netlat, tn.long], why: later}
""",
    )
    base, (ours, source) = profile("network"), read_profile(str(path), CRITERIA, SUITES)
    assert (ours.name, ours.delivery, ours.test, ours.suites) == ("ours", base.delivery, base.test, base.suites)
    assert set(ours.owed) == {*base.owed, "tr.h2d", "pf.asbuilt"} - {"tr.netlat"}
    assert ours.owed.index("pf.lossless") < ours.owed.index("pf.asbuilt") < ours.owed.index("tr.rdmafn"), "by suite"
    without = {id_: entry.why for entry in ours.left_out for id_ in entry.criteria}
    assert (without["tr.netlat"], without["tn.long"]) == ("later", "later")
    assert without["pf.converged"] == base.not_owed(CRITERIA, load_fabric("tcp10"))["pf.converged"]
    assert not {"pf.asbuilt", "tr.h2d"} & without.keys()
    assert load_profile(source, CRITERIA, SUITES) == ours


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("extends: netwrk\n", ":3: extends: unknown acceptance profile 'netwrk'; did you mean network?"),
        ("extends: ./other.yml\n", ":3: extends: './other.yml' is a file; only a packaged profile can be extended"),
        ("extends: [network]\n", ":3: extends: "),
        ("extends: network\nowed: [pf.bom]\n", ":4: owed.0: pf.bom is owed by network already; remove it here"),
        ("extends: network\nowed: [tn.shrt]\n", ":4: owed.0: unknown criterion 'tn.shrt'; did you mean tn.short?"),
        ("extends: network\nowed:\n- tn.cpu\n- tn.cpu\n", ":6: owed.1: duplicate criterion: tn.cpu"),
        ("extends: network\nsuites: [preflght]\n", ":4: suites.0: unknown suite"),
        ("extends: network\nwoed: []\n", ":4: woed: unknown key; remove it or correct its spelling"),
        ("extends: network\nleft_out:\n- {criteria: [pf.bom], why: ''}\n", ":5: left_out.0.why: is blank"),
        ("extends: network\nowed: [tn.cpu]\nleft_out:\n- {criteria: [tn.cpu], why: later}\n",
         ":6: left_out.0.criteria.0: tn.cpu is owed too"),
        ("extends: network\nleft_out:\n- {criteria: [tn.cpu], when: no-bound, why: later}\n",
         ":5: left_out.0.criteria.0: tn.cpu: when: no-bound is for what is owed"),
        (f"extends: network\nleft_out:\n- {{criteria: [{', '.join(profile('network').owed)}], why: later}}\n",
         ":4: left_out: a profile that owes nothing would accept anything; leave less out"),
    ],
)  # fmt: skip
def test_what_is_no_extension_is_refused_with_file_and_line(tmp_path: Path, text: str, words: str) -> None:
    path = extension(tmp_path, text)
    with pytest.raises(ConfigError) as caught:
        load_profile(str(path), CRITERIA, SUITES)
    assert str(caught.value).startswith(f"{path}{words}"), caught.value
    assert "\n" not in str(caught.value)


def test_a_runs_copy_extends_nothing() -> None:
    """Otherwise it would say something else with each release."""
    with pytest.raises(ConfigError, match=r"profile\.yml:3: extends: unknown key"):
        load_profile(Source(Path("profile.yml"), "name: a\ntitle: b\nextends: network\n"), CRITERIA, SUITES)
