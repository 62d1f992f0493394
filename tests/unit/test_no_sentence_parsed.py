"""No code decides by a sentence of ours: what a message says for people is a typed field for code.

A syntax check over the product. It looks for

- a literal searched `in`, or compared with, something whose name says that it is a message (why, words, reason, ...);
- `.split()`, `.partition()`, `.startswith()`, ... and regular expressions applied to such a thing;
- the same with a literal of two words or more, whatever it is applied to, also as a key;
- a table, or a `match`, that is asked with such a thing, and a message that is looked for in another;
- `str()` of an exception that was caught, whatever it is called;
- in templates `in`, `==` with two words or more, and methods and filters that take a text apart.

What a foreign program prints, and files of a foreign form, have to be read so: these are listed in FOREIGN with the
reason. An entry is `function: expression`, so that it survives a move. A search by a
pattern is listed without the pattern.
"""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

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

FOREIGN: dict[str, tuple[str, ...]] = {
    "Ansible's own words, on its stderr": (
        "unmatched_limit: 'Could not match supplied host pattern' in line",
        "complaint: 'parse inventory' in words",
        "complaint: 'Failed to parse inventory' in part",
        "_host_vars: 'vault secrets' in why",
        "_host_vars: 'Decryption failed' in why",
        "read_source: 'Completely failed to parse' in errors[0]",
        "_why: _READER.finditer(said)",
        """_why: "no root 'plugin' key" in told.get('auto', '')""",
        "_is_ini: 'YAML parsing failed' in told.get('yaml', 'YAML parsing failed')",
        "_source_of: error.partition('parse inventory source ')",
        "_place: re.search(why)",
    ),
    "ssh, its library, and the shell of a node": (
        "_understood: 'not found' in line",
        "_explain: 'No authentication methods' in str(fault)",
        "_why_not: 'incorrect passphrase' in low",
        "_why_not: 'are too open' in low",
        "_why_not: 'bad permissions' in low",
        "_why_not: 'no such file' in low",
        "_why_not: 'no private key' in low",
        "_why_not: 'agent refused' in low",
        "of_inventory: _FILE.match(words)",
    ),
    "Slurm's and Docker's commands": (
        "_tell: reason not in ('', 'None')",
        "identity: 'no such image' in said.lower()",
        "most_s: re.findall(words)",
        "_jobs_now: re.search(words)",
        "_reason: words.partition(',')",
        "complaint_of: 'create step' in text",
        "complaint_of: 'Memory required' in text",
        "_watch: _LOST.search(said.decode('utf-8', 'replace'))",
        "_watch: _TASK.sub(said)",
        "_hold: _GIVEN.search(holder.said)",
        "_take_back: _GIVEN.search(holder.said)",
        "_state: reason != 'none'",
        "reason: reason == 'None'",
        "_waiting_for: _REASONS.get(reason, reason)",
        "native_end: 'timed out' not in last",
        "record: _said('sacct', '-nPX', '-j', str(lease), '-o', 'Start,End').split()",
        "record: words[-1].split('|')",
    ),
    "the kernel and its drivers": (
        "module: 'Open Kernel Module' in text",
        "known: self.state != 'not supported'",
        "xid: XID.search(message)",
        "xid: LOST.search(message)",
        "xid: _ADDRESS.findall(message)",
        "xid: LIKE_XID.search(message)",
        "records: _ESCAPED.sub(record['message'])",
        "meaning: _NONFATAL.search(words)",
        "meaning: 'fatal' in words.lower()",
        "meaning: _NOTHING_TO_DO.search(words)",
        "ceiling: at.model.startswith('NVIDIA GB')",
    ),
    "tools that measure, and the libraries that train": (
        "_of_text: 'bandwidth (GB/s)' in line",
        "_of_json: report.get('GPU Device list')",
        "parse: about.get('DCGM Version')",
        "parse: about.get('Driver Version Detected')",
        "parse: said.get('Driver Version Detected')",
        "_sort: row.get('pid') == 'CPU functions'",
        "nccl_path: 'NCCL INFO' not in line",
        "_transport: 'shared memory' in via",
        "_answered: re.search(said)",
        "_answered: re.findall(said)",
        "_used: re.findall(said)",
        "_used: re.search(said)",
        "clock_offset_s: re.search(said)",
        "fastest_mbit: _MODES.search(said)",
        "explain: re.search(said)",
        "way: '--use_cuda_dmabuf' in help_text",
        "read_log: text.partition('packet, txTime(sec), rxTime(sec), rtt(usec)\\n')",
        "one: 'out of memory' in why",
        "exactly: 'out of memory' in why",
        "out_of_memory: 'out of memory' in why",
        "no_memory: 'out of memory' in str(fault)",
        """no_memory: "can't allocate memory" in str(fault)""",
        "last_words: 'out of memory' in str(fault)",
        "_of_torchrun: PARTNER.search(_words(log, one['rank']))",
        "version_of: said.split()",
        """_weasyprint: str(fault).partition("'")""",
    ),
    "pytest's report of as-built checks, a form of recorded runs": (
        "_outcome: said.startswith(NOT_APPLICABLE)",
        "_outcome: said.removeprefix(NOT_APPLICABLE)",
        "_words: re.sub(said)",
    ),
    "pydantic's and click's messages": (
        "explain: first['msg'].removeprefix('Value error, ')",
        "show: words.endswith('?')",
    ),
    "a document of its own form, read as such": (
        "_nodes: 'plugin: elastic_ai.toolkit.lab' in text",
        "listed_lab: _NAMED.search(source.text)",
        "has_rules: _RULES.search(read_source(file).text)",
        "from_file: read_source(path).text.removeprefix('\\ufeff')",
        "heading: self.statement.partition(':')",
        "certificate_names: statement.removesuffix('.txt')",
    ),
    "a form that is signed, or places in words that data fill": (
        "_rules: f'(sha256 {rules.sha256})' not in said",
        "_bound: re.sub(c.bound.words)",
        "_looked_up: _CLAIM.sub(data['words'])",
    ),
    "a dictionary or a list, of which a key is looked for": (
        "_traffic_class: 'NCCL_IB_TC' in told",
        "take_device: 'NCCL_IB_GID_INDEX' not in told",
        "together: 'fault' in said",
        "parse_wish: '--tty' in told",
        "explains: EXPLAINS.get(cause, ())",
        "asked: 'data' in request.words",
        ": list(ATTEMPTS).index('harm to a neighbour by a crash')",
    ),
    "sentences that are joined, none of them twice": (
        "notes: documents.torn not in verdict.notes",
        "_merge: finding.text in old.text",
        "_merge: finding.cause in old.cause",
        "_merge: finding.remedy in old.remedy",
    ),
    "the drill, which examines whether a person can read the node and the cause": (
        "_judged: re.search(one.reason)",
        "_weighed: w in f'{f.text} {f.cause}'",
    ),
    "words of a PDF, which have to be those of the report": ("says: word in self.text",),
}
"""Why -> `function: expression`."""


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
        for path in _files()
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


def _files() -> list[Path]:
    return sorted(path for room in ("toolkit", "validation") for path in (ROOT / room).rglob("*.py"))


@functools.cache
def _product() -> list[tuple[Path, int, str]]:
    return [(path, line, place) for path in _files() for line, place in parsed(path.read_text(encoding="utf-8"))]


def test_no_message_is_taken_apart_by_code() -> None:
    known = {place for places in FOREIGN.values() for place in places}
    new = [f"{path.relative_to(ROOT)}:{line}: {place}" for path, line, place in _product() if place not in known]
    assert not new, "give what decides here a typed field of its own:\n" + "\n".join(new)


def test_what_is_mended_is_struck_from_the_lists() -> None:
    there = {place for _, _, place in _product()}
    listed = [place for places in FOREIGN.values() for place in places]
    assert not [place for place in listed if place not in there]
    assert len(listed) == len(set(listed))


@pytest.mark.parametrize(
    "code",
    [
        "'out of memory' in why",
        "f', batch {size}:' in words",
        "'lost' not in finding.text",
        "one.reason.startswith(OURS)",
        "str(fault).startswith('no lib')",
        "found['reason'].partition(':')",
        "path_words(a, b).partition(':')",
        "words.split()[1]",
        "why.lower() == 'timed out'",
        "why in ('ok', 'lost')",
        "re.search('GPU (.*)', judgement.reason)",
        "_ADDRESS.sub('', said)",
        "'no such device' in anything",
        "name in finding.text",
        "name in f'{finding.text} {finding.cause}'",
        "line.startswith('no such device')",
        "def f():\n    return 'ok' == self.note",
        "CODES[why]",
        "module.CODES.get(finding.reason)",
        "{'lost': 1}[why]",
        "found['nothing was measured']",
        "found.get('nothing was measured')",
        "match why:\n    case 'lost':\n        pass",
        "why in SENTENCES",
        "word in why",
        "cell.words in words",
        "f'{gpu}: {fault}' not in wrong",
        "why[:4] == 'lost'",
        "anything == 'no such device'",
        "f'{one.text} {one.cause}'.split()",
        "re.search('GPU', f'{one.text} {one.cause}')",
        "fnmatch.fnmatch(why, '*lost*')",
        "try:\n    f()\nexcept OSError as e:\n    g = 'busy' in str(e)",
        "try:\n    f()\nexcept OSError as gone:\n    g = str(gone).startswith('no')",
        "try:\n    f()\nexcept OSError as gone:\n    g = str(gone) == NOTHING",
    ],
)
def test_it_is_found(code: str) -> None:
    assert list(parsed(code))


@pytest.mark.parametrize(
    "code",
    [
        "' '.join(str(fault).split())",
        "words[0].startswith('-')",
        "text.split(',')",
        "(proc / 'stat').read_text().rpartition(')')",
        "judgement.reason_code == 'virtual'",
        "fields.text('where') == 'server'",
        "verdict.sign_off == 'CONSTRUCTED EXAMPLE'",
        "list['_Value | None']",
        "why[:160]",
        "try:\n    f()\nexcept OSError as e:\n    g = ' '.join(str(e).split())",
        "why == ''",
        "key in words",
        "kind in ('no such kind', 'other')",
        "words.count(len(nodes), 'node')",
        "message.split('\\n')",
    ],
)
def test_what_decides_nothing_is_left_alone(code: str) -> None:
    assert not list(parsed(code))
