"""Documents that nobody foresaw: whatever stands in them, the answer is one ConfigError with file and line."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.site import lab, plan_of, results_of
from toolkit.deploy.stages import read_stages
from toolkit.inventory_lines import locate, syntax_fault
from validation.model import Plan, RunInfo
from validation.model.load import ConfigError, load_json, load_yaml, read_results
from validation.plan.suites import SUITES
from validation.report.customer import load_customer
from validation.rules.fabric import load_fabric
from validation.rules.profile import load_profile
from validation.rules.waiver import WaiverFile, load_waivers
from validation.run.catalogue import load_criteria, read_criteria

CRITERIA = load_criteria()
PLAN = plan_of(lab())
DIGITS = "9" * 5000

#: Each begins in the second line of its file, and is wrong there.
ODD_YAML = {
    "a template without quotes": "who: {{ name }}",
    "a list as a key": "? [a, b]\n: c",
    "a hexadecimal number without digits": "who: 0x_",
    "a binary number without digits": "who: 0b_",
    "a number of 5000 digits": f"who: {DIGITS}",
    "no bool": "who: !!bool foo",
    "no int": "who: !!int foo",
    "no float": "who: !!float x",
    "no timestamp": "who: !!timestamp foo",
    "no binary": "who: !!binary ä",
    "no set": "who: !!set [a]",
    "no pairs": "who: !!pairs x",
    "an unknown tag": "who: !vault x",
    "a list in a merge": "<<: 3",
    "an anchor in itself as a key": "who: &x {*x : 1}",
    "an alias of nothing": "who: *x",
    "a control character": "who: \x01",
    "mappings 1000 deep": "who: " + "{a: " * 1000 + "1" + "}" * 1000,
    "lists fifty thousand deep": "who: " + "[" * 50_000 + "]" * 50_000,
    "lists fifty thousand deep, never closed": "who: " + "[" * 50_000,
    "blocks 1000 deep": "".join(f"{' ' * n}a:\n" for n in range(1000)),
    "list items fifty thousand deep": "- " * 50_000 + "a",
}
READERS: dict[str, Callable[[Path], object]] = {
    "waivers": lambda path: load_waivers(path, [c.id for c in CRITERIA]),
    "profile": lambda path: load_profile(str(path), CRITERIA, SUITES),
    "fabric": lambda path: load_fabric(str(path)),
    "criteria": lambda path: load_criteria(path.parent),
    "report.yml": load_customer,
}


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("what", ODD_YAML)
def test_odd_yaml_is_refused_with_its_line(tmp_path: Path, what: str, reader: str) -> None:
    path = tmp_path / "odd.yml"
    path.write_text(f"# a comment\n{ODD_YAML[what]}\n")
    with pytest.raises(ConfigError, match=rf"^{re.escape(str(path))}:\d+: not valid YAML: ") as fault:
        READERS[reader](path)
    assert "\n" not in str(fault.value)
    assert len(str(fault.value)) < 400
    line = int(str(fault.value).removeprefix(f"{path}:").split(":")[0])
    assert line == 2 or (what == "blocks 1000 deep" and line < 200)


TOKENS = [
    *(
        "a",
        "b",
        ": ",
        "- ",
        "? ",
        "[",
        "]",
        "{",
        "}",
        ", ",
        "\n",
        "  ",
        "&x ",
        "*x",
        "<<",
        "!t ",
        "0x_",
        "1:2",
        "~",
        "=",
        "|",
    ),
    *("!!int ", "!!set ", "!!bool ", "!!timestamp ", "!!map ", "!!seq ", "!!omap ", "!!float ", "!!binary ", "!!null "),
    *(
        '"',
        "'",
        "2026-13-01",
        ".inf",
        ">",
        "%",
        "---\n",
        "...\n",
        "#",
        "\t",
        "\0",
        "\ufeff",
        "\u2028",
        "1_",
        "yes",
        "@",
    ),
]


@settings(max_examples=400, deadline=None, derandomize=True)
@given(tokens=st.lists(st.sampled_from(TOKENS), max_size=14))
def test_any_text_is_a_document_or_one_error(tmp_path_factory: pytest.TempPathFactory, tokens: list[str]) -> None:
    path = tmp_path_factory.getbasetemp() / "any.yml"
    path.write_text("".join(tokens))
    with contextlib.suppress(ConfigError):
        load_yaml(path, WaiverFile)


@pytest.mark.parametrize("what", [k for k in ODD_YAML if "deep" in k or "character" in k or "nothing" in k])
def test_an_inventory_that_no_reader_of_yaml_can_take_is_named_with_its_line(tmp_path: Path, what: str) -> None:
    path = tmp_path / "hosts.yml"
    path.write_text(f"# a comment\n{ODD_YAML[what]}\n")
    assert re.match(rf"{re.escape(str(path))}:\d+: not valid YAML: ", syntax_fault(path) or "")
    assert locate(path, "gpu1", ("bom",)) is None


def test_an_inventory_that_contains_itself_has_lines_too(tmp_path: Path) -> None:
    path = tmp_path / "hosts.yml"
    path.write_text("all: &x\n  children: *x\n  hosts:\n    gpu1:\n      bom: 3\n")
    assert syntax_fault(path) is None
    assert locate(path, "gpu1", ("bom",)) == f"{path}:5"


@pytest.mark.parametrize("what", ODD_YAML)
def test_a_playbook_of_odd_yaml_is_refused(tmp_path: Path, what: str) -> None:
    path = tmp_path / "site.yml"
    path.write_text(f"# a comment\n{ODD_YAML[what]}\n")
    with pytest.raises(ConfigError, match=r"site\.yml"):
        read_stages(path)


ODD_JSON = {
    "lists 100,000 deep": "[" * 100_000,
    "closed lists 100,000 deep": "[" * 100_000 + "]" * 100_000,
    "mappings 600 deep in a mapping": '{"a": ' * 600 + "1" + "}" * 600,
    "a number of 5000 digits": DIGITS,
    "a number of 5000 digits in a key": f'{{"schema_version": {DIGITS}}}',
    "a surrogate": '{"run": "\\ud800"}',
    "nothing": "",
    "a NUL": "\0",
}


@pytest.mark.parametrize("what", ODD_JSON)
def test_odd_json_is_refused_with_its_line(tmp_path: Path, what: str) -> None:
    path = tmp_path / "run.json"
    path.write_text(ODD_JSON[what])
    with pytest.raises(ConfigError, match=rf"^{re.escape(str(path))}:1: ") as fault:
        load_json(path, RunInfo)
    assert "\n" not in str(fault.value)
    assert len(str(fault.value)) < 400


@pytest.mark.parametrize("value", [DIGITS, f"{DIGITS}.0", "[" * 3000 + "]" * 3000])
def test_a_figure_that_none_is_in_a_good_document_is_refused(tmp_path: Path, value: str) -> None:
    path, text = tmp_path / "plan.json", PLAN.model_dump_json(indent=2)
    odd = re.sub(r'("timeout_s": )[\d.]+', rf"\g<1>{value}", text, count=1)
    assert odd != text
    path.write_text(odd)
    with pytest.raises(ConfigError, match=rf"^{re.escape(str(path))}:\d+: "):
        load_json(path, Plan)


@pytest.mark.parametrize("last", [True, False])
@pytest.mark.parametrize(
    "what", ["lists 100,000 deep", "closed lists 100,000 deep", "a number of 5000 digits", "in it"]
)
def test_a_whole_line_of_odd_json_is_damage_not_a_torn_tail(tmp_path: Path, what: str, last: bool) -> None:
    path = tmp_path / "results.jsonl"
    lines = [r.model_dump_json() for r in results_of(PLAN)[:4]]
    odd = ODD_JSON.get(what) or re.sub(r'("duration_s":)[\d.]+', rf"\g<1>{DIGITS}", lines[3])
    path.write_text("\n".join([*lines, odd] if last else [odd, *lines]) + "\n")
    with pytest.raises(ConfigError, match=rf"results\.jsonl:{5 if last else 1}: "):
        read_results(path, PLAN.run)


def test_a_name_with_a_nul_is_no_file(tmp_path: Path) -> None:
    for read in (lambda p: load_json(p, Plan), lambda p: load_yaml(p, WaiverFile), lambda p: load_fabric(f"{p}.yml")):
        with pytest.raises(ConfigError, match="null byte"):
            read(tmp_path / "a\0b")
    (tmp_path / "report.yml").write_text('logo: "a\\0b.png"\n')
    with pytest.raises(ConfigError, match=r"report\.yml:1: logo: "):
        load_customer(tmp_path / "report.yml")


def test_packaged_files_are_read_as_before() -> None:
    assert len(CRITERIA) > 20
    assert len(read_criteria()) > 3
