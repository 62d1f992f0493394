#!/usr/bin/env python3
"""Write each role's page, roles/ROLE/README.md, from its meta/argument_specs.yml.

    tools/role_docs.py              all pages
    tools/role_docs.py --check      write nothing; name the pages that are stale, exit status 1 when there are any

Only what stands between the two marks is written; text above and below them is left alone.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jinja2
import yaml

ROOT = Path(__file__).resolve().parent.parent
BEGIN = "<!-- From here on generated from meta/argument_specs.yml by tools/role_docs.py: change it there. -->"
END = "<!-- End of the generated part. -->"
PAGE = """\
{{ begin }}

{{ summary }}.
{% for sentence in description %}
- {{ sentence }}
{%- endfor %}
{% if playbooks %}

```
{%- for playbook in playbooks %}
ansible-playbook playbooks/{{ playbook }}.yml -i inventories/SITE
{%- endfor %}
```
{% endif %}

| Variable | Default | Meaning |
|---|---|---|
{%- for row in rows %}
| `{{ row.name }}` | {{ row.default }} | {{ row.meaning }} |
{%- endfor %}

{{ end }}
"""
LONGEST_TEMPLATE = 80  # characters that a reader takes in within a table
#: A default that comes from the stack release: its part, its key, and what holds without a release.
_STACK = re.compile(
    r"^\{\{ \(stack_set \| default\(\{\}\)\)\.get\('(\w+)', \{\}\)\.get\('(\w+)'(?:, (?:'([^']*)'|\[\]))?\) \}\}$"
)


def plain(text: str) -> str:
    """Ansible's own markup as Markdown: C(), V(), O(), RV() are code, B() and I() emphasis, M() and U() their text."""
    text = re.sub(r"\b(?:C|V|O|RV|E)\(((?:\\.|[^)\\])*)\)", lambda m: "`" + re.sub(r"\\(.)", r"\1", m[1]) + "`", text)
    text = re.sub(r"\bB\(([^)]*)\)", r"**\1**", text)
    text = re.sub(r"\bI\(([^)]*)\)", r"*\1*", text)
    text = re.sub(r"\bL\(([^,)]*), *([^)]*)\)", r"[\1](\2)", text)
    return " ".join(re.sub(r"\b[MU]\(([^)]*)\)", r"\1", text).split())


def sentences(value: Any) -> list[str]:
    """A description, which is a text or a list of them."""
    return [plain(str(item)) for item in (value if isinstance(value, list) else [value] if value else [])]


def cell(text: str) -> str:
    """Text that does not end its cell of a table."""
    return text.replace("|", "\\|")


def default_of(option: dict[str, Any]) -> str:
    """The default for a reader: code, or in words where it comes from the stack release."""
    if "default" not in option:
        return "**required**" if option.get("required") else "none"
    value = option["default"]
    text = value if isinstance(value, str) else json.dumps(value)
    found = _STACK.match(" ".join(text.split()))
    if found:
        otherwise = f", else `{found[3]}`" if found[3] else ""
        return f"stack release: `{found[1]}.{found[2]}`{otherwise}"
    if "{{" in text and len(text) > LONGEST_TEMPLATE:
        return "computed, see [defaults](defaults/main.yml)"
    return f"`{cell(' '.join(text.split()))}`" if text else "empty"


def rows(options: dict[str, Any], above: str = "") -> Iterator[dict[str, str]]:
    """A table row for each option, and for those inside it."""
    for name, option in options.items():
        kind = option.get("type", "str")
        meaning = " ".join(sentences(option.get("description")))
        if option.get("choices"):
            meaning += f" One of {', '.join(f'`{choice}`' for choice in option['choices'])}."
        elif kind not in ("str", "raw"):
            meaning += f" ({kind})"
        meaning = meaning[:1].upper() + meaning[1:]
        yield {"name": above + name, "default": default_of(option), "meaning": cell(meaning)}
        inside = f"{above}{name}[]." if kind == "list" else f"{above}{name}."
        yield from rows(option.get("options", {}), inside)


def playbooks_of(role: str) -> list[str]:
    """Playbooks of a stage that run the role."""
    found = []
    for path in sorted((ROOT / "playbooks").glob("*.yml")):
        plays = yaml.safe_load(path.read_text(encoding="utf-8")) or []
        used = [entry["role"] for play in plays for entry in play.get("roles", [])]
        imports = [task.get("ansible.builtin.import_role", {}) for play in plays for task in play.get("tasks", [])]
        used += [one["name"] for one in imports if one and "tasks_from" not in one]
        if role in used and path.stem != "teardown":
            found.append(path.stem)
    return found


def generated(role: Path) -> str:
    """The generated part of a role's page, marks included."""
    spec = yaml.safe_load((role / "meta/argument_specs.yml").read_text(encoding="utf-8"))["argument_specs"]["main"]
    defaults = role / "defaults/main.yml"
    values = (yaml.safe_load(defaults.read_text(encoding="utf-8")) if defaults.is_file() else None) or {}
    options = {  # a default that is a template may stand in defaults/main.yml alone
        name: {"default": values[name], **option} if name in values else option
        for name, option in spec.get("options", {}).items()
    }
    template = jinja2.Environment(keep_trailing_newline=True, autoescape=False).from_string(PAGE)  # noqa: S701 - no HTML
    page = template.render(
        begin=BEGIN,
        end=END,
        summary=plain(spec["short_description"]).rstrip("."),
        description=sentences(spec.get("description")),
        playbooks=playbooks_of(role.name),
        rows=list(rows(options)),
    )
    return re.sub(r"\n{3,}", "\n\n", page)


def page(role: Path) -> str:
    """The whole page: the generated part in its place, after what was written by hand where there is no place yet."""
    path, part = role / "README.md", generated(role)
    text = path.read_text(encoding="utf-8") if path.is_file() else f"# {role.name}\n"
    before, mark, rest = text.partition(BEGIN)
    if not mark:
        return f"{text.rstrip()}\n\n{part}"
    return before + part.rstrip("\n") + rest.partition(END)[2]


def main() -> int:
    """Write the pages, or name those that are stale."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--check", action="store_true", help="write nothing; exit status 1 when a page is stale")
    parser.add_argument("--roles", type=Path, default=ROOT / "roles", help="folder of the roles")
    arguments = parser.parse_args()
    stale = []
    for spec in sorted(arguments.roles.glob("*/meta/argument_specs.yml")):
        path = spec.parents[1] / "README.md"
        text = page(spec.parents[1])
        if path.is_file() and path.read_text(encoding="utf-8") == text:
            continue
        stale.append(path)
        if not arguments.check:
            path.write_text(text, encoding="utf-8")
    for path in stale:
        print(f"{path}: " + ("stale; run tools/role_docs.py" if arguments.check else "written"))
    return int(arguments.check and bool(stale))


if __name__ == "__main__":
    sys.exit(main())
