"""The claims of the founding documents as data: read, looked up, refused with file and line."""

from __future__ import annotations

from pathlib import Path

import pytest

from validation.model.load import ConfigError, Source
from validation.rules.fabric import fabric_names, load_fabric, read_fabric
from validation.rules.reference import load_reference, packaged
from validation.run.catalogue import load_criteria, read_criteria

CLAIM = """document: {{key: paper, title: A paper, cite: Paper 2020, founding: true}}
machines:
  - {{key: box, title: A box, short: box, match: {{gpu_model: V100}}}}
claims:
  - id: paper.one
    section: table 1
    statement: it is fast
    published: {{value: 10, unit: GB/s, sense: at-least, rounding: 0.5, printed: about 10 GB/s}}
    confirmed_by: {{criterion: tr.p2p, statistic: bandwidth}}
{more}"""
WHY = "    why_not: nobody measures it\n"


def read(tmp_path: Path, more: str = "", text: str | None = None) -> None:
    (tmp_path / "paper.yml").write_text(CLAIM.format(more=more) if text is None else text)
    load_reference(tmp_path)


def claim(id_: str, rest: str = WHY) -> str:
    return f"  - id: {id_}\n    section: table 2\n    statement: it is good\n{rest}"


def test_packaged_claims_are_of_the_five_documents_and_name_what_exists() -> None:
    reference = packaged()
    founding = [d.key for d in reference.documents.values() if d.founding]
    assert sorted(founding) == ["blog", "denneman", "technote", "vmware", "whitepaper"]
    reference.check([c.id for c in load_criteria()], fabric_names())
    assert len({c.statement for c in reference.claims.values()}) == len(reference.claims)


def test_a_ratio_follows_from_the_figures_that_stand_once() -> None:
    inter = packaged().claim("whitepaper.inter-k")
    rates = [packaged().claim(f"whitepaper.rate-resnet50-{key}").value for key in ("k", "k-1")]
    assert inter.value == round(rates[0] / (8 * rates[1]), 4) == 0.8986
    assert inter.printed == "~90 %"
    assert inter.limit == pytest.approx(0.8936)


@pytest.mark.parametrize(
    ("more", "line", "words"),
    [
        (claim("paper.one"), 10, "paper.one is in paper.yml:5 too; keep one"),
        ("  - id: paper.two\n    statement: no source\n" + WHY, 10, "claims.1.section: is missing; add it"),
        (claim("other.two"), 10, "its id must begin with paper."),
        (claim("paper.two", ""), 10, "either confirmed_by (a criterion) or why_not"),
        (claim("paper.two", "    machines: [bax]\n" + WHY), 13, "unknown machine 'bax'; there are: box"),
        (claim("paper.two", "    inferred: [batch]\n" + WHY), 10, "inferred: batch is neither"),
        (
            claim(
                "paper.two",
                "    published: {ratio: {of: paper.one, over: paper.nine}, unit: ratio, sense: reported, base: x, "
                "printed: x}\n" + WHY,
            ),
            13,
            "paper.nine is no claim with a value of its own",
        ),
        (claim("paper.two", "    published: {value: 1, unit: s, sense: at-least}\n" + WHY), 13, "printed: is missing"),
    ],
)
def test_a_fault_is_told_with_file_and_line(tmp_path: Path, more: str, line: int, words: str) -> None:
    with pytest.raises(ConfigError) as fault:
        read(tmp_path, more)
    assert str(fault.value).startswith(f"{tmp_path / 'paper.yml'}:{line}: ")
    assert words in str(fault.value)


def test_a_document_twice_and_no_claims_at_all_are_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no files of claims"):
        load_reference(tmp_path)
    (tmp_path / "again.yml").write_text(CLAIM.format(more=""))
    with pytest.raises(ConfigError, match=r"paper\.yml:1: document\.key: document paper is in another file too"):
        read(tmp_path)


def test_a_machine_is_known_by_its_bill_of_materials(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"paper\.yml:3: machines\.0: match: gpu is no part of a bom"):
        read(tmp_path, text=CLAIM.format(more="").replace("gpu_model: V100", "gpu: V100"))


def test_an_unknown_criterion_or_fabric_is_told_with_file_and_line(tmp_path: Path) -> None:
    (tmp_path / "paper.yml").write_text(CLAIM.format(more=claim("paper.two", "    fabrics: [roce41]\n" + WHY)))
    reference = load_reference(tmp_path)
    with pytest.raises(ConfigError, match=r"paper\.yml:9: .*unknown criterion 'tr\.p2p'; did you mean tr\.p2plat\?"):
        reference.check(["tr.p2plat"], ["roce40"])
    with pytest.raises(ConfigError, match=r"paper\.yml:13: .*unknown fabric 'roce41'; did you mean roce40\?"):
        reference.check(["tr.p2p"], ["roce40"])


def criteria(tmp_path: Path, bound: str) -> Path:
    text = next(s.text for s in read_criteria() if s.path.name == "20-transport.yml").splitlines(keepends=True)
    start = next(n for n, line in enumerate(text) if "id: tr.p2p\n" in line)
    end = next(n for n, line in enumerate(text) if n > start and "- id:" in line)
    own, inside = [], False
    for line in text[start:end]:
        inside = line.startswith("    bound:") or (inside and line.startswith("      "))
        own += [f"    bound: {bound}\n"] if line.startswith("    bound:") else [] if inside else [line]
    (tmp_path / "own.yml").write_text("criteria:\n" + "".join(own))
    return tmp_path


def test_a_bound_is_the_claims_and_its_words_have_what_the_document_prints(tmp_path: Path) -> None:
    folder = criteria(tmp_path, '{kind: minimum, claim: blog.p2p, words: ">= {value}; {claim:blog.local}"}')
    bound = load_criteria(folder)[0].bound
    assert (bound.value, bound.words) == (packaged().claim("blog.p2p").limit, ">= 5; about 7 us")


@pytest.mark.parametrize(
    ("bound", "words"),
    [
        ("{kind: minimum, claim: blog.p2q, words: x}", "unknown claim 'blog.p2q'; did you mean blog.p2p?"),
        ("{kind: minimum, claim: blog.grow, words: x}", "blog.grow: the document has no figure"),
        ("{kind: minimum, claim: blog.p2p, value: 5, words: x}", "the value is the claim's; remove value, or claim"),
        ('{kind: minimum, value: 5, words: "{claim:blog.x}"}', "unknown claim 'blog.x'"),
    ],
)
def test_a_bound_of_no_claim_is_told_with_file_and_line(tmp_path: Path, bound: str, words: str) -> None:
    with pytest.raises(ConfigError) as fault:
        load_criteria(criteria(tmp_path, bound))
    lines = (tmp_path / "own.yml").read_text().splitlines()
    line = next(number for number, text in enumerate(lines, 1) if text.lstrip().startswith("bound:"))
    assert str(fault.value).startswith(f"{tmp_path / 'own.yml'}:{line}: criteria.0.bound: ")
    assert words in str(fault.value)


def test_a_profiles_figure_is_the_claims_and_a_runs_copy_is_complete(tmp_path: Path) -> None:
    loaded = read_fabric("roce100")
    ratio = loaded.fabric.remote_ratio
    assert ratio is not None
    assert ratio.minimum == packaged().claim("vmware.roce").limit == 0.95
    assert ratio.source == "VMware blog part 2, 2019, text on figures 2 to 4"
    assert load_fabric(Source(tmp_path / "copy.yml", loaded.text)) == loaded.fabric
    (tmp_path / "own.yml").write_text(
        loaded.text.replace("vmware.roce\n", "vmware.rocce\n").split("# figures of its claims")[0]
    )
    with pytest.raises(ConfigError, match=r"own\.yml:14: claims\.remote_ratio: unknown claim 'vmware\.rocce'; did you"):
        read_fabric(str(tmp_path / "own.yml"))


@pytest.mark.parametrize("name", fabric_names())
def test_no_packaged_profile_states_a_figure_beside_its_claim(name: str) -> None:
    loaded = read_fabric(name)
    own = loaded.text.split("# figures of its claims")[0]
    assert not [key for key in loaded.fabric.claims if f"\n{key}:" in own]
