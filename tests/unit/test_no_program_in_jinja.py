"""No program in YAML: what decides much or puts a sentence together is a function of plugins/plugin_utils, with tests.

What stays is a lookup, a condition, or a table of conditions (filter `chosen`). Found by the structure of every
expression, of whatever file, and not by a list of files.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.jinja_programs import Expression, expression, expressions, in_templates, lost_escapes

REPO = Path(__file__).parents[2]
#: Places that may be over a limit, each with its reason.
EXCEPTIONS: dict[str, str] = {
    # The two lines that stand in the file and by which our part of it is found again: texts of a file.
    "roles/base/templates/hosts.j2": "a text of",
}


def told(found: list[Expression]) -> list[str]:
    return [
        f"{one.place}: {why}: {one.text[:100]}"
        for one in found
        for why in one.why()
        if not why.startswith(EXCEPTIONS.get(one.place.split(":")[0], " "))
    ]


def test_no_expression_of_roles_and_playbooks_is_a_program() -> None:
    found = expressions(REPO)
    assert len(found) > 1500, "the files are read"
    assert told(found) == []


def test_no_expression_of_a_template_is_a_program() -> None:
    found = in_templates(REPO)
    assert len(found) > 300, "the templates are read"
    assert told(found) == []


def test_every_exception_is_needed() -> None:
    over = {one.place.split(":")[0] for one in [*expressions(REPO), *in_templates(REPO)] if one.why()}
    assert set(EXCEPTIONS) == over


def test_escapes_stand_where_they_mean_something() -> None:
    """A comparison with the byte 1 never held: Ansible hands `\\x01` of a folded scalar on as four characters."""
    assert lost_escapes(REPO) == []


def test_an_escape_that_is_lost_is_found(tmp_path: Path) -> None:
    (tmp_path / "site.yml").write_text(
        """a: >-\n  {{ b == '\\x01' }}\nc: "{{ d | join('\\n') }}"\n""", encoding="utf-8"
    )
    assert lost_escapes(tmp_path) == [r"site.yml:1: \x01"]


@pytest.mark.parametrize(
    "text",
    [
        "{{ ['kernel modules of the driver: user space only was asked for'] if only else [] }}",
        "{{ (['a'] if a else []) + (['b'] if b else []) + (['c'] if c else []) }}",
        "{{ 'no package of ' ~ part ~ ' is known for ' ~ system }}",
        "{{ 'package ' + name + ' of ' + origin + ' is missing' }}",
        "{{ x if a else y if b else z if c else w }}",
        "{% if a %}one{% else %}two{% endif %}",
        "{% set many = [] %}{{ many }}",
        "{{ node.packages | dict2items | selectattr('key', 'in', names) | selectattr('value') | map(attribute='key')"
        " | list | difference(others) | sort | unique | join(', ') }}",
        "{{ a and b or c and not d or e and not f and g or h }}",
        "{{ names | map('regex_replace', '$', ' was active before and is not') | list }}",
    ],
)
def test_a_program_is_known_by_its_structure(text: str) -> None:
    assert expression(text).why()


@pytest.mark.parametrize(
    "text",
    [
        "{{ node.in_container }}",
        "{{ 'present' if driver.plan.flavour else 'absent' }}",
        "{{ [sentence] if wanted else [] }}",
        "{{ inventory_hostname }}: the driver is not there; {{ faults | join('; ') }}",
        "{{ node | elastic_ai.toolkit.driver_judged(plan, user_space_only=only, sysfs_root='/sys') }}",
        "{{ etc ~ '/munge.key' }}",
        "{% raw %}{{json .RepoDigests}}{% endraw %}",
    ],
)
def test_a_lookup_and_a_condition_are_none(text: str) -> None:
    assert expression(text).why() == []
