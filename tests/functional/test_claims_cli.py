"""`toolkit claims` as a user meets it."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner, Result

from toolkit.cli import cli
from validation.rules.reference import packaged

pytestmark = pytest.mark.engines


def toolkit(*words: str) -> Result:
    return CliRunner().invoke(cli, ["claims", *words], env={"COLUMNS": "200"})


@pytest.mark.parametrize("words", [(), ("list",)])
def test_all_claims_are_listed_and_counted(words: tuple[str, ...]) -> None:
    done = toolkit(*words)
    assert done.exit_code == 0
    claims = packaged().claims
    assert [id_ for id_ in claims if id_ not in done.output] == []
    founding = [c for c in claims.values() if packaged().document(c).founding]
    confirmed = [c for c in founding if c.confirmed_by]
    assert f"{len(founding)} claims of founding documents; a criterion confirms {len(confirmed)} of them" in done.output


def test_a_documents_claims_alone() -> None:
    done = toolkit("list", "--document", "vmware", "--json")
    listed = json.loads(done.output)["claims"]
    assert {c["id"].partition(".")[0] for c in listed} == {"vmware"}
    assert next(c for c in listed if c["id"] == "vmware.roce")["used_by"] == ["remote_ratio of roce100"]
    wrong = toolkit("list", "--document", "vmwara")
    assert wrong.exit_code == 2
    assert "there is no document 'vmwara'; did you mean vmware?" in wrong.output


def test_one_claim_with_all_that_is_known() -> None:
    done = toolkit("show", "whitepaper.inter-k")
    assert done.exit_code == 0
    for words in (
        "figure 28",
        "2 x C4140-K",
        "ib-edr",
        "precision: the document does not say it",
        "~90 %",
        "0.8986 ratio, at least, printed within 0.005",
        "whitepaper.rate-resnet50-k / (8 x whitepaper.rate-resnet50-k-1)",
        "tn.inter: total images over total time",
        "model resnet50, batch 128, ranks 8",
    ):
        assert words in done.output
    assert "rm.layout: rate of each layout over N4's" in toolkit("show", "blog.layouts").output
    assert "bound of tr.p2plat" in toolkit("show", "blog.p2plat").output
    assert "bound of tn.inter" in done.output
    assert "no part of the reference architecture" in toolkit("show", "others.ratio-infer-1").output


def test_an_unknown_claim_is_told_with_the_nearest() -> None:
    done = toolkit("show", "whitepaper.inter-q")
    assert done.exit_code == 2
    assert "did you mean whitepaper.inter-k?" in done.output


def test_help_teaches_by_example() -> None:
    assert toolkit("--help").output.count("toolkit claims") >= 3
