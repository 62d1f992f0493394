"""A partner's template in a stranger's bundle makes nothing large or long out of little: verify renders it."""

from __future__ import annotations

from pathlib import Path

import pytest

from validation.model.load import ConfigError
from validation.report.customer import load_customer
from validation.report.partner import _blocks

NODES = [{"name": f"gpu{number}", "groups": []} for number in range(9)]
LETTERS = "a" * 1000

LARGE = {
    "wide format": "{{ '%999999999d'|format(1) }}",
    "wide remainder": "{{ '%999999999d' % 1 }}",
    "wide method": "{{ '{:>999999999}'.format(1) }}",
    "centred": "{{ 'a'|center(999999999) }}",
    "centred method": "{{ 'a'.center(999999999) }}",
    "indented": "{{ 'a'|indent(999999999) }}",
    "replaced": f"{{{{ '{LETTERS}'|replace('a', '{LETTERS}')|replace('a', '{LETTERS}') }}}}",
    "loops within loops": "{% for a in x %}{% for b in x %}{% for c in x %}{% endfor %}{% endfor %}{% endfor %}",
    "doubled": "{% set x = 'a' %}" + "{% set x = x ~ x %}" * 40,
    "summed": "{% set x = 'a' %}" + "{% set x = x + x %}" * 40,
    "doubled block": "{% set x %}aa{% endset %}" + "{% set x %}{{ x }}{{ x }}{% endset %}" * 40,
    "macros": "{% macro m() %}{{ m() }}{{ m() }}{% endmacro %}{{ m() }}",
    "kept in a namespace": "{% set n = namespace(x='a') %}",
    "a recursive loop": "{% for n in nodes recursive %}{{ loop(nodes) }}{% endfor %}",
    "joined": f"{{{{ '{LETTERS}'|join('{LETTERS}') }}}}",
    "itself": "{% include '_intro.html' %}",
}


@pytest.mark.parametrize("text", LARGE.values(), ids=LARGE)
def test_little_stays_little(text: str) -> None:
    with pytest.raises(ConfigError, match=r"^here/_intro\.html:1: .*; correct the template$"):
        _blocks({"_intro.html": text}, "here", {"nodes": NODES, "x": LETTERS})


def test_what_partners_write_goes_on() -> None:
    text = (
        "{% set who = 'Partner' %}<p>{{ who ~ ' & Co' }}, {{ 'of ' + who|upper }}"
        "{% for n in nodes if n.name != 'gpu0' %}{{ loop.index }}: {{ n['name'].upper() }} {% endfor %}"
        "{{ suites|join(', ') }}{{ 2 * 3 % 4 }}{{ absent|default('-') }}</p>"
    )
    block = _blocks({"_intro.html": text}, "here", {"nodes": NODES, "suites": ["a", "b"]})["intro"]
    assert block is not None
    for words in ("Partner &amp; Co, of PARTNER", "1: GPU1 2: GPU2", "a, b2-</p>"):
        assert words in block


@pytest.mark.parametrize("text", ["{{" * 5000, "{{ " + "(" * 3000 + "1" + ")" * 3000 + " }}"])
def test_a_template_that_is_nested_deeply_is_told(tmp_path: Path, text: str) -> None:
    (tmp_path / "t").mkdir()
    (tmp_path / "t/_intro.html").write_text(text)
    (tmp_path / "report.yml").write_text("templates: t\n")
    with pytest.raises(ConfigError, match="nested too deeply; correct the template"):
        load_customer(tmp_path / "report.yml")
