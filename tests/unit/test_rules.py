"""Rules are known by what they say, not by how their files are written; the register holds those of this release."""

from __future__ import annotations

import json
from dataclasses import replace
from importlib import resources
from pathlib import Path

import pytest
import yaml

from validation.model import RunInfo
from validation.model.load import Source
from validation.plan.suites import SUITES
from validation.rules.fabric import load_fabric, read_fabric
from validation.rules.profile import load_profile
from validation.rules.reference import load_reference, packaged
from validation.rules.release import release
from validation.run import rules_hashes
from validation.run.catalogue import load_criteria, packaged_files, read_criteria

INFO = RunInfo(
    run="r", created="2026-11-21T10:15:00Z", toolkit_version=release(), site="s", inventory="i", fabric="tcp10",
    suites=("preflight",), command=("toolkit",), documents={},
)  # fmt: skip


def test_the_register_holds_the_rules_of_this_release() -> None:
    """Written by tools/make_docs.py; a later release knows runs of this one by it."""
    path = Path(str(resources.files("validation.rules"))) / rules_hashes.REGISTER
    assert path.read_text() == rules_hashes.register_text(), "run tools/make_docs.py"


def refolded(source: Source) -> Source:
    """The same file as another hand would write it: keys sorted, no comments, one file's flow in another's block."""
    return Source(source.path, "# ours\n" + yaml.safe_dump(yaml.safe_load(source.text), sort_keys=True, width=60))


def test_a_file_that_is_moved_folded_or_commented_on_is_the_same_rule() -> None:
    reference = load_reference([refolded(source) for source in packaged().sources])
    criteria = load_criteria([refolded(source) for source in reversed(read_criteria())], reference)
    fabric = read_fabric("tcp10")
    loaded = load_fabric(refolded(fabric.source))
    profile = load_profile("training", criteria, SUITES)
    found = rules_hashes.rules_of(INFO, criteria, reference, loaded, profile, {})
    assert (found.release, found.other) == (release(), ())
    assert found.sha256 == rules_hashes.rules_of(INFO, load_criteria(), packaged(), fabric.fabric, profile, {}).sha256


@pytest.mark.parametrize(
    ("field", "value"), [("required", False), ("min_samples", 999), ("statement", "all is well"), ("remedy", "wait")]
)
def test_whatever_a_criterion_says_counts(field: str, value: object) -> None:
    first, *others = load_criteria()
    changed = first.model_copy(update={field: value})
    fabric = read_fabric("tcp10").fabric
    found = rules_hashes.rules_of(INFO, [changed, *others], packaged(), fabric, None, {})
    assert found.release is None
    assert found.other == (f"criteria {first.id}",)
    found = rules_hashes.rules_of(INFO, others, packaged(), fabric, None, {})
    assert found.other == (f"criteria {first.id} (missing)",)


def test_a_claim_a_fabric_and_a_template_count_too() -> None:
    fabric = read_fabric("tcp10").fabric
    other = fabric.model_copy(update={"mtu": 1500})
    criteria = load_criteria()
    found = rules_hashes.rules_of(INFO, criteria, packaged(), other, None, {"_intro.html": "ACCEPTED"})
    assert found.other == ("fabric profile tcp10", "templates of the report: _intro.html")
    own = fabric.model_copy(update={"name": "ours"})
    assert rules_hashes.rules_of(INFO, criteria, packaged(), own, None, {}).other == (
        "fabric profile ours (of the site's own)",
    )


def test_an_earlier_release_is_known_by_the_register(monkeypatch: pytest.MonkeyPatch) -> None:
    fabric = read_fabric("tcp10").fabric
    first, *others = load_criteria()
    older = [first.model_copy(update={"statement": "as it was"}), *others]
    theirs = rules_hashes.ReleaseRules(
        rules_hashes.criteria_hashes(older),
        rules_hashes.claims_hashes(packaged()),
        {"tcp10": rules_hashes.said_by(fabric)},
        {},
    )
    known = {**rules_hashes.register(), "0.0.1": theirs}
    monkeypatch.setattr(rules_hashes, "register", lambda: known)
    earlier = INFO.model_copy(update={"toolkit_version": "0.0.1"})
    assert rules_hashes.rules_of(earlier, older, packaged(), fabric, None, {}).release == "0.0.1"
    assert rules_hashes.rules_of(INFO, older, packaged(), fabric, None, {}).other == (f"criteria {first.id}",)
    assert rules_hashes.rules_of(earlier, load_criteria(), packaged(), fabric, None, {}).release == release()
    assert packaged_files()


def test_texts_that_have_other_names_today_stay_in_the_register(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that keeps them was judged by this release's rules, and can be verified."""
    own = rules_hashes.own()
    monkeypatch.setattr(rules_hashes, "own", lambda: replace(own, texts={"criteria moved.yml": "0" * 64}))
    texts = json.loads(rules_hashes.register_text())[release()]["texts"]
    assert texts["criteria moved.yml"] == "0" * 64
    assert set(own.texts.values()) < set(texts.values())
