"""Expressions of Ansible files that decide or compose instead of looking up: found by their structure.

`python -m tests.support.jinja_programs [FOLDER]` lists them for a tree.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import yaml
from jinja2 import Environment, nodes

#: Options of a task that are an expression without braces.
BARE = {"when", "until", "changed_when", "failed_when", "that"}
FILES = ("site.yml", "roles/**/*.yml", "playbooks/**/*.yml", "inventories/**/*.yml", "stacks/*.yml")
#: Templates of files: text with statements; each expression in them has the same limits.
TEMPLATES = "roles/**/*.j2"
#: Not Ansible's: Prometheus has a template language of its own.
OTHERS = ("roles/monitoring/files/",)
WORDS_MAX = 3
WEIGHT_MAX = 7
CONDITIONALS_MAX = 2
_ENVIRONMENT = Environment(autoescape=True)


@dataclass(frozen=True)
class Expression:
    """A scalar with a template: where it stands, and what it is made of."""

    place: str
    text: str
    filters: int
    conditionals: int
    operators: int  # and, or, not
    joins: int  # ~ and +
    statements: int  # {% if %}, {% for %}, {% set %}
    words: int  # of the longest text that is chosen or put together, as blanks separate them

    @property
    def weight(self) -> int:
        """How much a reader has to keep in mind."""
        return self.filters + 2 * self.conditionals + self.operators + self.joins

    def why(self) -> list[str]:
        """What makes it a program; [] for a lookup or a condition."""
        limits = {
            f"a text of {self.words} words is put together": self.words > WORDS_MAX,
            f"{self.conditionals} conditionals": self.conditionals > CONDITIONALS_MAX,
            f"{self.statements} statements": self.statements > 0,
            f"weight {self.weight}": self.weight > WEIGHT_MAX,
        }
        return [reason for reason, holds in limits.items() if holds]


def _count(tree: nodes.Template, *kinds: type[nodes.Node]) -> int:
    return sum(1 for _ in tree.find_all(kinds))


def _texts(tree: nodes.Template) -> Iterator[int]:
    """Words of each literal in an expression, and of those that one operator joins."""
    for output in tree.find_all(nodes.Output):
        for part in output.nodes:
            if isinstance(part, nodes.TemplateData):
                continue
            constants = [part] if isinstance(part, nodes.Const) else part.find_all(nodes.Const)
            yield from (len(one.value.split()) for one in constants if isinstance(one.value, str))
            for joined in [part, *part.find_all((nodes.Concat, nodes.Add, nodes.Mod))]:
                if isinstance(joined, nodes.Concat | nodes.Add | nodes.Mod):
                    yield sum(len(text.split()) for text in _joined(joined) if re.search(r"\s", text))


def _joined(node: nodes.Node) -> Iterator[str]:
    """Literals that stand in a chain of ~, + or % themselves, and not in lists or arguments below it."""
    for child in node.iter_child_nodes():
        if isinstance(child, nodes.Const) and isinstance(child.value, str):
            yield child.value
        elif isinstance(child, nodes.Concat | nodes.Add | nodes.Mod | nodes.CondExpr):
            yield from _joined(child)


def expression(text: str, place: str = "") -> Expression:
    """What a template is made of."""
    return measured(_ENVIRONMENT.parse(text), " ".join(text.split()), place)


def measured(tree: nodes.Template, text: str, place: str) -> Expression:
    """What a parsed template is made of."""
    return Expression(
        place=place,
        text=text,
        filters=_count(tree, nodes.Filter),
        conditionals=_count(tree, nodes.CondExpr),
        operators=_count(tree, nodes.And, nodes.Or, nodes.Not),
        joins=_count(tree, nodes.Concat, nodes.Add),
        statements=_count(tree, nodes.If, nodes.For, nodes.Assign, nodes.AssignBlock, nodes.Macro),
        words=max(_texts(tree), default=0),
    )


def lost_escapes(root: Path) -> list[str]:
    """Texts of templates with an escape like `\\x01` or `\\n` outside of a double-quoted scalar, with their place.

    Ansible hands such an escape to Jinja as its characters, not as what it stands for.
    """
    read = [(place, text) for place, text, style in templates(root) if style != '"']
    return [f"{place}: {found[0]}" for place, text in read for found in [re.search(r"\\[nrtxu]\w*", text)] if found]


def _scalars(node: yaml.Node | None, key: str = "") -> Iterator[tuple[str, yaml.ScalarNode]]:
    if isinstance(node, yaml.MappingNode):
        for name, value in node.value:
            yield from _scalars(value, str(name.value))
    elif isinstance(node, yaml.SequenceNode):
        for value in node.value:
            yield from _scalars(value, key)
    elif isinstance(node, yaml.ScalarNode):
        yield key, node


def templates(root: Path) -> Iterator[tuple[str, str, str]]:
    """Place, text and YAML style of every scalar that holds an expression."""
    for path in sorted({path for pattern in FILES for path in root.glob(pattern)}):
        name = str(path.relative_to(root))
        if name.startswith(OTHERS):
            continue
        for key, scalar in _scalars(yaml.compose(path.read_text(encoding="utf-8"))):
            text = str(scalar.value)
            if key in BARE and "{{" not in text and scalar.tag.endswith(":str"):
                text = "{{ " + text + " }}"
            if "{{" in text or "{%" in text:
                yield f"{name}:{scalar.start_mark.line + 1}", text, scalar.style or ""


def expressions(root: Path) -> list[Expression]:
    """All of a tree, each with file and line."""
    return [expression(text, place) for place, text, _ in templates(root)]


def in_templates(root: Path) -> list[Expression]:
    """The expressions of the roles' templates, each by itself."""
    found = []
    for path in sorted(root.glob(TEMPLATES)):
        for node in _ENVIRONMENT.parse(path.read_text(encoding="utf-8")).find_all(
            (nodes.Output, nodes.Assign, nodes.If, nodes.For)
        ):
            parts = {
                nodes.Output: lambda one: one.nodes,
                nodes.Assign: lambda one: [one.node],
                nodes.If: lambda one: [one.test],
                nodes.For: lambda one: [one.iter],
            }[type(node)](node)
            for part in parts:
                if not isinstance(part, nodes.TemplateData):
                    place = f"{path.relative_to(root)}:{part.lineno}"
                    tree = nodes.Template([nodes.Output([part], lineno=part.lineno)], lineno=part.lineno)
                    found.append(measured(tree, f"{type(node).__name__} of line {part.lineno}", place))
    return found


def main() -> None:
    """Print what is a program, and the counts of the tree."""
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parents[2]
    found = [*expressions(root), *in_templates(root)]
    programs = [one for one in found if one.why()]
    for one in programs:
        print(f"{one.place}: {', '.join(one.why())}: {one.text[:140]}")
    texts, heavy = (sum(one.words > WORDS_MAX for one in found), sum(one.weight > WEIGHT_MAX for one in found))
    print(
        f"{len(found)} expressions, {len(programs)} programs, {texts} with a text of "
        f"more than {WORDS_MAX} words, {heavy} of a weight over {WEIGHT_MAX}, "
        f"heaviest {max(one.weight for one in found)}"
    )


if __name__ == "__main__":
    main()
