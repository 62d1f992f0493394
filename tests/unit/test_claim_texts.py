"""What a claim says of the criteria that measure it: it names those that there are, and misses none."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import click
import pytest

from toolkit.cli import cli
from validation.rules.criterion import Criterion
from validation.rules.fabric import fabric_names, read_fabric
from validation.rules.reference import Claim, WhyKind, packaged
from validation.run.catalogue import load_criteria, read_criteria

ROOT = Path(__file__).parents[2]
REFERENCE = packaged()
CRITERIA = {c.id: c for c in load_criteria()}
OPEN = [c for c in REFERENCE.claims.values() if c.confirmed_by is None]
"""Claims that no criterion confirms."""
NAMED = re.compile(r"\b(?:pf|tr|co|bi|tn|rm|op)\.[a-z0-9]+\b")
SAYS_NONE = re.compile(
    r"\b(no criterion|no criteria|no measurement|nothing measures|not measured|none (?:of them )?\w+s\b)"
)


def named(claim: Claim) -> set[str]:
    by = claim.confirmed_by
    return {by.criterion} if by is not None else set(claim.measured_by or ())


def pointers() -> Iterator[tuple[str, str]]:
    """(criterion, claim) of every criterion whose text points to a claim: by its bound, by a machine, in its words."""
    for source in read_criteria():
        parts = re.split(r"^  - id: (\S+)$", source.text, flags=re.MULTILINE)
        for id_, text in zip(parts[1::2], parts[2::2], strict=True):
            for claim in REFERENCE.claims:
                if re.search(rf"(?<![\w.-]){re.escape(claim)}(?![\w-])", text):
                    yield id_, claim


def figures() -> Iterator[tuple[str, str]]:
    """The same of criteria whose bound is a fabric's figure, and of the claims that the profiles take it from."""
    for name in [*fabric_names(), "_defaults"]:
        text = read_fabric(name).text if name != "_defaults" else ""
        for key, claim in re.findall(r"(\w+): ([a-z]+\.[a-z0-9.-]+)", text):
            if claim in REFERENCE.claims:
                yield from ((c.id, claim) for c in CRITERIA.values() if c.bound.fabric_key == key)


def cited(criterion: Criterion, claim: Claim) -> bool:
    """Whether the criterion's source cites the very table, figure or section of the claim's document."""
    cite = REFERENCE.document(claim).cite
    if cite not in criterion.source:
        return False
    rest = criterion.source.partition(cite)[2].partition(";")[0]
    places = re.findall(r"(table|tables|figure|figures|section|sections) ([\d.]+)(?:-([\d.]+))?", rest)
    spans = [(what.rstrip("s"), first, last or first) for what, first, last in places]
    wanted = re.findall(r"(table|figure) (\d+)", claim.section) or [
        ("section", one) for one in re.findall(r"^\d+(?:\.\d+)+", claim.section)
    ]
    for what, number in wanted:
        for kind, first, last in spans:
            if what == kind == "section" and number == first:
                return True
            if what == kind != "section" and int(first.split(".")[0]) <= int(number) <= int(last.split(".")[0]):
                return True
    return False


def test_every_claim_that_none_confirms_says_what_measures_it() -> None:
    assert [c.id for c in OPEN if c.measured_by is None] == []


@pytest.mark.parametrize("claim", OPEN, ids=lambda c: c.id)
def test_its_text_names_only_criteria_of_its_data_and_leaves_the_rest_to_it(claim: Claim) -> None:
    assert claim.why_not is not None
    assert set(NAMED.findall(claim.why_not)) <= set(claim.measured_by or ())
    assert not SAYS_NONE.search(claim.why_not), "whether a criterion measures it follows from measured_by"
    assert ("no criterion" in claim.unconfirmed) == (not claim.measured_by)
    assert all(id_ in CRITERIA for id_ in claim.measured_by or ())
    assert all(f"{id_}" in claim.unconfirmed for id_ in claim.measured_by or ())


@pytest.mark.parametrize(("criterion", "claim"), sorted({*pointers(), *figures()}))
def test_a_criterion_that_takes_something_of_a_claim_is_named_by_it(criterion: str, claim: str) -> None:
    """By its own bound: it is named. In words beside a bound of something else: some criterion is."""
    mine, bound = REFERENCE.claims[claim], CRITERIA[criterion].bound
    own = {bound.claim, *(machine.claim for machine in bound.machines)}
    assert named(mine)
    assert claim not in own or mine.confirmed_by is not None or criterion in named(mine)


@pytest.mark.parametrize("claim", [c for c in OPEN if not c.measured_by], ids=lambda c: c.id)
def test_where_no_criterion_measures_a_claim_none_cites_the_place_where_it_stands(claim: Claim) -> None:
    assert [c.id for c in CRITERIA.values() if cited(c, claim)] == []


def test_what_was_not_measured_once_and_is_now_is_named() -> None:
    """The ten texts that had grown old, each with the criteria that measure it since."""
    since = {
        "technote.rdma": "rm.same", "whitepaper.links-k": "pf.pcie", "whitepaper.links-m": "pf.pcie",
        "whitepaper.gpudirect": "tn.gdr", "whitepaper.cpu": "tn.cores", "denneman.hbm": "tr.hbm",
        "denneman.hbm-peak": "tr.hbm", "denneman.nvlink": "pf.nvlink",
    }  # fmt: skip
    for claim, criterion in since.items():
        assert criterion in named(REFERENCE.claims[claim])
    assert "toolkit node add" in (REFERENCE.claims["blog.grow"].why_not or "")


def test_every_published_rate_is_confirmed_by_the_program_of_the_document_with_its_conditions() -> None:
    rates = [c for c in REFERENCE.claims.values() if c.id.startswith("whitepaper.rate-")]
    assert len(rates) == 26
    for claim in rates:
        assert claim.confirmed_by is not None, claim.id
        assert claim.confirmed_by.criterion == "tn.tfcnn"
        of = claim.conditions
        wanted = {"model": of["model"], "ranks": of["gpus"], "batch": of["batch"], "precision": of["precision"]}
        assert claim.confirmed_by.where == wanted


def test_every_claim_has_a_criterion_or_a_reason_of_a_known_kind() -> None:
    """The table of `toolkit claims`: no row without a way or a reason, and most founding claims have a way."""
    assert [c.id for c in OPEN if c.why_kind not in get_args(WhyKind)] == []
    founding = [c for c in REFERENCE.claims.values() if REFERENCE.document(c).founding]
    assert [c.id for c in founding if c.confirmed_by is None] == [
        "blog.any-fraction", "blog.transports", "blog.grow", "denneman.hbm-peak", "denneman.nvlink",
        "denneman.utilisation", "denneman.no-p2p", "technote.policies",
        "whitepaper.configurations", "whitepaper.cpu",
    ]  # fmt: skip


@pytest.mark.parametrize("claim", OPEN, ids=lambda c: c.id)
def test_a_reason_is_true_as_far_as_its_kind_can_be_checked(claim: Claim) -> None:
    figure, why = claim.published, claim.why_not or ""
    known = {key for key in re.findall(r"`(toolkit [a-z]+ [a-z]+)`", why)}
    checks: dict[WhyKind, bool] = {
        # a figure of the maker that a measured value does not pass, and a criterion that asks a share of it
        "data-sheet": figure is not None and figure.sense == "at-most" and bool(claim.measured_by),
        "others": figure is not None and figure.sense == "reported",
        "past": figure is None and bool(claim.measured_by),
        # of no machine alone: with one its rates could be held against the document's
        "several-sites": figure is None and not claim.machines and bool(claim.measured_by),
        "not-offered": f"`{claim.id}`" in (ROOT / "docs/explanation/scope.md").read_text(),
        "own-command": bool(known) and all(exists(*words.split()[1:]) for words in known),
    }
    assert claim.why_kind is not None
    assert checks[claim.why_kind]


def exists(group: str, command: str) -> bool:
    context = click.Context(cli)
    found = cli.get_command(context, group)
    return isinstance(found, click.Group) and found.get_command(context, command) is not None


def test_the_scope_page_names_no_claim_that_a_criterion_confirms() -> None:
    text = (ROOT / "docs/explanation/scope.md").read_text()
    named_there = {id_ for id_ in REFERENCE.claims if f"`{id_}`" in text}
    assert named_there == {c.id for c in OPEN if c.why_kind == "not-offered"}


@pytest.mark.parametrize("claim", [c for c in REFERENCE.claims.values() if c.confirmed_by], ids=lambda c: c.id)
def test_what_a_criterion_measures_can_decide_the_claim(claim: Claim) -> None:
    """A criterion without values decides by its verdict; one that only reports decides by a figure, or as done."""
    by, criterion = claim.confirmed_by, CRITERIA[claim.confirmed_by.criterion] if claim.confirmed_by else None
    assert by is not None
    assert criterion is not None
    if criterion.bound.kind == "report" and by.criterion != "tr.remotelat":
        assert claim.published is not None or by.by == "done"
    if criterion.bound.kind == "exact" and claim.published is not None:
        assert by.by == "verdict"
    assert not (by.over or by.against) or claim.published is not None


def test_a_comparison_with_a_machine_that_is_not_there_is_over_what_the_document_prints_of_it() -> None:
    ratios = [c for c in REFERENCE.claims.values() if c.id.startswith("whitepaper.outup-")]
    assert len(ratios) == 14
    for claim in ratios:
        by, ratio = claim.confirmed_by, claim.published.ratio if claim.published else None
        assert by is not None
        assert ratio is not None
        of = REFERENCE.claim(ratio.of)
        assert of.confirmed_by is not None
        assert (by.criterion, by.over, by.where) == (of.confirmed_by.criterion, ratio.over, of.confirmed_by.where)
        assert (claim.machines, claim.fabrics) == (of.machines, of.fabrics)


def test_texts_of_runs_of_before_stay_as_they_were() -> None:
    old = Claim(id="paper.one", section="1", statement="x", why_not="no criterion judges it")
    assert old.unconfirmed == "no criterion judges it"
