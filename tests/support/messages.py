"""Finds where a message for people is taken apart: in code, and in templates. tests/unit/test_no_sentence_parsed.py
holds the product against it."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path

from jinja2 import Environment, nodes

from validation.base.project import ROOT

MESSAGES = re.compile(
    "_?(.*_)?(why|words|said|told|reasons?|messages?|notes?|details?|headline|cause|troubles?|remedy|statement|"
    "explanation|problem|finding|sentence|complaint|summary|caption|fault|error|text)_?", re.IGNORECASE
)  # fmt: skip
"""Names of what is written for people, by their last word. A variable `text` by itself is a whole document."""
TAKING_APART = re.compile("r?split|r?partition|(starts|ends)with|remove(prefix|suffix)|r?find|r?index|count")
SEARCHING = re.compile("search|(full)?match|find(all|iter)|split|subn?")
AS_IT_IS = re.compile("lower|upper|[lr]?strip|casefold|decode|replace|join|format")
"""Methods whose result is the same message."""
SINGLE = re.compile(
    "_?(.*_)?(why|reason|message|detail|headline|cause|remedy|statement|explanation|problem|sentence|complaint|"
    "summary|caption|fault|error|text)_?", re.IGNORECASE
)  # fmt: skip
"""Those of them that are the names of one message, and never of a list."""
TWO_WORDS = re.compile(r"[A-Za-z]{2}[^A-Za-z]* [^A-Za-z]*[A-Za-z]{2}")


def _name(node: ast.expr) -> str:
    """What something is called, as far as that says whether it is a message."""
    if isinstance(node, ast.Name):
        return "" if node.id == "text" else node.id
    if isinstance(node, ast.Attribute):
        return node.attr
    if isinstance(node, ast.Subscript):
        if isinstance(node.slice, ast.Constant):
            return node.slice.value if isinstance(node.slice.value, str) else ""  # words[0] is of an argument list
        return _name(node.value)
    if isinstance(node, ast.Call):
        called = node.func
        if isinstance(called, ast.Name):
            return _name(node.args[0]) if called.id in ("str", "repr") and node.args else _of_reader(called.id)
        if isinstance(called, ast.Attribute):
            return _name(called.value) if AS_IT_IS.fullmatch(called.attr) else _of_reader(called.attr)
    return ""


def _of_reader(name: str) -> str:
    """`read_text(...)`, `fields.text(key)`: what they answer is a document, or a field of one."""
    return "" if name.strip("_") in ("text", "read_text") else name


def _is_message(node: ast.expr) -> bool:
    return MESSAGES.fullmatch(_name(node)) is not None


def _holds_message(node: ast.expr) -> bool:
    """Of another object a message, or a string that is made with one: whatever is looked for in it."""
    if isinstance(node, ast.JoinedStr):
        return any(isinstance(part, ast.FormattedValue) and _is_message(part.value) for part in node.values)
    return isinstance(node, ast.Attribute) and _is_message(node)


def _lettered(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or (
        isinstance(node, ast.Constant) and isinstance(node.value, str) and re.search("[A-Za-z]", node.value) is not None
    )


def _sentence(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str) and bool(TWO_WORDS.search(node.value))


def _compared(node: ast.Compare) -> bool:
    sides = [node.left, *node.comparators]
    for operator, left, right in zip(node.ops, sides, sides[1:], strict=False):
        if isinstance(operator, (ast.In, ast.NotIn)):
            among = isinstance(right, (ast.Tuple, ast.List, ast.Set, ast.Dict))
            if not among and ((_lettered(left) and _is_message(right)) or _sentence(left) or _holds_message(right)):
                return True
            if among and _is_message(left) and any(_lettered(one) for one in getattr(right, "elts", ())):
                return True
        if isinstance(operator, (ast.Eq, ast.NotEq)):
            for one, other in ((left, right), (right, left)):
                if _lettered(one) and _is_message(other):
                    return True
    return False


def _called(node: ast.Call, folded: bool) -> bool:
    method = node.func
    if not isinstance(method, ast.Attribute):
        return False
    if TAKING_APART.fullmatch(method.attr):
        if node.args and isinstance(node.args[0], ast.Constant) and node.args[0].value in ("\n", b"\n"):
            return False  # its lines
        if folded and method.attr == "split" and not node.args:
            return False  # " ".join(message.split()): on one line
        if method.attr == "count" and len(node.args) > 1:
            return False  # none of a string
        if _is_message(method.value) or (node.args and _sentence(node.args[0])):
            return True
    return SEARCHING.fullmatch(method.attr) is not None and any(_is_message(argument) for argument in node.args)


def _is_table(node: ast.expr) -> bool:
    """A dictionary that stands there, or a constant: CODES, module.CODES."""
    name = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
    return isinstance(node, ast.Dict) or (re.fullmatch("_?[A-Z][A-Z0-9_]+", name) is not None)


def _asked(node: ast.Subscript | ast.Call) -> bool:
    """A table that is asked with a message, or anything with a sentence for its key."""
    if isinstance(node, ast.Subscript):
        key, of = node.slice, node.value
        if isinstance(of, ast.Name) and of.id in ("list", "dict", "tuple", "Sequence", "Iterator", "Iterable"):
            return False  # a type
    elif isinstance(node.func, ast.Attribute) and node.func.attr in ("get", "pop", "setdefault") and node.args:
        key, of = node.args[0], node.func.value
    else:
        return False
    return (_is_table(of) and _is_message(key)) or _sentence(key)


def _cut(node: ast.expr) -> bool:
    """A piece of a message: why[:4]."""
    return isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Slice) and _is_message(node.value)


def _looked_for(node: ast.Compare) -> bool:
    """A message in another or in a table, a piece of one compared, anything compared with a sentence."""
    sides = [node.left, *node.comparators]
    for operator, left, right in zip(node.ops, sides, sides[1:], strict=False):
        if isinstance(operator, (ast.In, ast.NotIn)):
            if _is_message(left) and (_is_table(right) or _is_single(right)):
                return True
            if _is_single(right) or (isinstance(left, ast.JoinedStr) and _holds_message(left)):
                return True
            if (
                isinstance(left, ast.Attribute)
                and _is_message(left)
                and isinstance(right, ast.Name)
                and (_is_message(right))
            ):
                return True
        if isinstance(operator, (ast.Eq, ast.NotEq)):
            for one, other in ((left, right), (right, left)):
                if (_cut(one) and _lettered(other)) or (_sentence(one) and ast.literal_eval(one) not in _values()):
                    return True
    return False


@functools.cache
def _values() -> frozenset[str]:
    """What fields that are typed by a Literal can be: CONSTRUCTED EXAMPLE."""
    return frozenset(
        constant.value
        for path in product()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name) and node.value.id == "Literal"
        for constant in ast.walk(node.slice)
        if isinstance(constant, ast.Constant) and isinstance(constant.value, str)
    )


def _is_single(node: ast.expr) -> bool:
    """A message by a name that no list has: why, reason, and not words."""
    return _is_message(node) and re.fullmatch(SINGLE, _name(node)) is not None


def _in_string(node: ast.Call) -> bool:
    """A string made with a message that is taken apart or searched."""
    method = node.func
    if not isinstance(method, ast.Attribute):
        return False
    if TAKING_APART.fullmatch(method.attr) and isinstance(method.value, ast.JoinedStr) and _holds_message(method.value):
        return not (node.args and isinstance(node.args[0], ast.Constant) and node.args[0].value == "\n")
    searching = SEARCHING.fullmatch(method.attr) or method.attr in ("fnmatch", "fnmatchcase", "contains")
    return bool(searching) and any(
        (isinstance(argument, ast.JoinedStr) and _holds_message(argument))
        or (method.attr.startswith(("fn", "cont")) and _is_message(argument))
        for argument in node.args
    )


def _takes_apart(node: ast.AST, folded: bool) -> bool:
    if isinstance(node, ast.Compare):
        return _compared(node) or _looked_for(node)
    if isinstance(node, ast.Call):
        return _called(node, folded) or (not folded and _in_string(node)) or _asked(node)
    if isinstance(node, ast.Subscript):
        return isinstance(node.ctx, ast.Load) and _asked(node)
    return isinstance(node, ast.Match) and _is_message(node.subject)


def _asks_caught(node: ast.AST, caught: set[str]) -> bool:
    """`"no such" in str(e)`, `str(e).startswith("no")`, `str(e) == "gone"` of an exception by any name."""

    def text_of(one: ast.AST) -> bool:
        return (
            isinstance(one, ast.Call)
            and isinstance(one.func, ast.Name)
            and one.func.id == "str"
            and len(one.args) == 1
            and isinstance(one.args[0], ast.Name)
            and one.args[0].id in caught
        )

    if isinstance(node, ast.Compare):
        return any(map(text_of, (node.left, *node.comparators)))
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        apart = TAKING_APART.fullmatch(node.func.attr) is not None and text_of(node.func.value)
        return apart or (SEARCHING.fullmatch(node.func.attr) is not None and any(map(text_of, node.args)))
    return False


def _written(node: ast.AST) -> str:
    """The expression; of a search by a pattern what is searched, without the pattern."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and SEARCHING.fullmatch(node.func.attr):
        searched = [argument for argument in node.args if _is_message(argument)]
        if not TAKING_APART.fullmatch(node.func.attr) or not _is_message(node.func.value):
            return f"{ast.unparse(node.func)}({', '.join(map(ast.unparse, searched))})"
    return ast.unparse(node)


def parsed(source: str) -> Iterator[tuple[int, str]]:
    """Line, and `function: expression`, of each place that takes a message apart."""

    caught = {node.name for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ExceptHandler) and node.name}

    def walk(node: ast.AST, function: str, folded: bool) -> Iterator[tuple[int, str]]:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            function = node.name
        if _takes_apart(node, folded) or (not folded and _asks_caught(node, caught)):
            yield node.lineno, f"{function}: {_written(node)}"
        join = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "join"
        for child in ast.iter_child_nodes(node):
            yield from walk(child, function, join)

    yield from walk(ast.parse(source), "", False)


def product() -> list[Path]:
    """All modules."""
    return sorted(path for room in ("toolkit", "validation") for path in (ROOT / room).rglob("*.py"))


def _called_in_template(node: nodes.Node) -> str:
    """The last word of what something is called in a template."""
    if isinstance(node, nodes.Name):
        return node.name
    if isinstance(node, nodes.Getattr):
        return node.attr
    if isinstance(node, nodes.Getitem):
        return node.arg.value if isinstance(node.arg, nodes.Const) and isinstance(node.arg.value, str) else ""
    return _called_in_template(node.node) if isinstance(node, (nodes.Filter, nodes.Call)) and node.node else ""


def _told(node: nodes.Node) -> bool:
    return MESSAGES.fullmatch(_called_in_template(node)) is not None


def parsed_by_template(source: str) -> Iterator[tuple[int, str]]:
    """Line and what is done, of each place of a template that takes a message apart."""

    def letters(one: nodes.Node, pattern: re.Pattern[str]) -> bool:
        return isinstance(one, nodes.Const) and isinstance(one.value, str) and pattern.search(one.value) is not None

    tree = Environment().parse(source)
    for compare in tree.find_all(nodes.Compare):
        left: nodes.Node = compare.expr
        for operand in compare.ops:
            right = operand.expr
            if operand.op in ("in", "notin") and (
                letters(left, TWO_WORDS) or (letters(left, re.compile("[A-Za-z]")) and _told(right))
            ):
                yield compare.lineno, f"{getattr(left, 'value', '')!r} in {_called_in_template(right)}"
            if operand.op in ("eq", "ne"):
                for one, other in ((left, right), (right, left)):
                    value = one.value if isinstance(one, nodes.Const) else ""
                    written = letters(one, TWO_WORDS) and value not in _values()
                    if written or (letters(one, re.compile("[A-Za-z]")) and _told(other)):
                        yield compare.lineno, f"{_called_in_template(other)} == {value!r}"
            left = right
    for call in tree.find_all(nodes.Call):
        if isinstance(call.node, nodes.Getattr) and TAKING_APART.fullmatch(call.node.attr):
            yield call.lineno, f"{call.node.attr}() of {_called_in_template(call.node.node)}"
    for filter_ in tree.find_all(nodes.Filter):
        searching = filter_.name.startswith(("regex", "split")) or filter_.name in ("search", "match")
        if filter_.node is not None and (searching or (filter_.name == "replace" and _told(filter_.node))):
            first = filter_.args[0].value if filter_.args and isinstance(filter_.args[0], nodes.Const) else ""
            yield filter_.lineno, f"{filter_.name}({first!r}) of {_called_in_template(filter_.node)}"
    for test in tree.find_all(nodes.Test):
        if test.name in ("search", "match", "in") and _told(test.node):
            yield test.lineno, f"is {test.name} of {_called_in_template(test.node)}"
