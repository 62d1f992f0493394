"""A partner's own templates: rendered in a sandbox, and looked at before they are let into the report.

They get plain data and may bring words, links within the file and pictures in data: URIs; nothing that runs, hides or
restyles, so that no template can change what the report says of the run.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterable, Iterator, Mapping
from html import escape
from html.parser import HTMLParser
from pathlib import Path, PurePosixPath
from typing import Any

from jinja2 import (
    ChoiceLoader,
    FunctionLoader,
    PackageLoader,
    StrictUndefined,
    TemplateError,
    TemplateSyntaxError,
    nodes,
)  # fmt: skip
from jinja2.exceptions import SecurityError
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment
from markupsafe import Markup

from validation.model import RunInfo, Topology, VerdictDoc
from validation.model.load import ConfigError
from validation.report import numbers
from validation.report.customer import TEMPLATES, Customer, load_customer, logo_uri, template_texts
from validation.report.documents import RunDocuments
from validation.rules.fabric import Fabric

MOST_CHARACTERS = 200_000

_VOID = {"br", "hr", "img", "wbr"}
_ELEMENTS = {
    *_VOID, "a", "abbr", "address", "article", "aside", "b", "blockquote", "caption", "cite", "code", "dd", "div", "dl",
    "dt", "em", "figcaption", "figure", "h2", "h3", "h4", "i", "li", "ol", "p", "pre", "q", "section", "small", "span",
    "strong", "sub", "sup", "table", "tbody", "td", "tfoot", "th", "thead", "time", "tr", "u", "ul",
}  # fmt: skip
_ATTRIBUTES = {
    "alt", "class", "colspan", "datetime", "height", "href", "lang", "rowspan", "scope", "src", "title", "width",
}  # fmt: skip
_FILTERS = {
    "abs", "capitalize", "count", "d", "default", "e", "escape", "first", "float", "int", "last", "length", "list",
    "lower", "max", "min", "round", "safe", "sort", "string", "striptags", "sum", "title", "trim", "truncate", "unique",
    "upper",
}  # fmt: skip
_COUNTED = "turns_counted"
_CALLED = {"get", "items", "keys", "values", "lower", "upper", "title", "strip", "startswith", "endswith"}
#: classes of ours that state a verdict, or take something out of sight
_CLASSES = {"mark", "edge", "word", "state", "skip", "v", "outcome"}


class _Sandbox(ImmutableSandboxedEnvironment):
    """Jinja2's sandbox, which also counts: a template of a stranger's bundle may not keep `toolkit verify` busy."""

    intercepted_binops = frozenset({"*", "**", "%", "+"})

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        for name in ("range", "lipsum", "cycler", "joiner", "namespace", "dict"):
            del self.globals[name]
        for name in set(self.filters) - _FILTERS:
            del self.filters[name]
        self.filters[_COUNTED] = self._counted
        self.turns = 0

    def _counted(self, things: Iterable[Any]) -> Iterator[Any]:
        for thing in things:
            self.turns += 1
            if self.turns > MOST_CHARACTERS:
                raise SecurityError(f"more than {MOST_CHARACTERS} turns of its loops")
            yield thing

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        """A partner's template may loop over data and print them: nothing in it makes much out of little."""
        tree = super()._parse(source, name, filename)
        if name not in TEMPLATES:
            return tree
        for node in tree.find_all((nodes.Macro, nodes.CallBlock, nodes.AssignBlock, nodes.Assign)):
            if not isinstance(node, nodes.Assign) or next(node.find_all((nodes.Concat, nodes.Add)), None):
                raise TemplateSyntaxError("macros, blocks and sums that are kept are not allowed here", node.lineno)
        for call in tree.find_all(nodes.Call):
            if isinstance(call.node, nodes.Getattr) and call.node.attr not in _CALLED:
                raise TemplateSyntaxError(f"calls {call.node.attr}, which is not allowed here", call.lineno)
            if not isinstance(call.node, (nodes.Getattr, nodes.Name)):
                raise TemplateSyntaxError("calls what has no name", call.lineno)
        for loop in tree.find_all(nodes.For):
            if loop.recursive:
                raise TemplateSyntaxError("a recursive loop is not allowed here", loop.lineno)
            loop.iter = nodes.Filter(loop.iter, _COUNTED, [], [], None, None, lineno=loop.lineno)
        return tree

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """Products and powers of small numbers alone, sums of short texts."""
        if operator == "+" and all(isinstance(v, str) for v in (left, right)):
            if len(left) + len(right) > MOST_CHARACTERS:
                raise SecurityError(f"more than {MOST_CHARACTERS} characters")
            return super().call_binop(context, operator, left, right)
        if not all(isinstance(v, (int, float)) and abs(v) < MOST_CHARACTERS for v in (left, right)):
            raise SecurityError(f"{operator} is for small numbers alone")
        if operator == "**" and abs(right) > 8:
            raise SecurityError("an exponent above 8")
        return super().call_binop(context, operator, left, right)


def _joined(things: Iterable[Any], between: str = "") -> str:
    """The filter `join`, of what together is no longer than a template may be."""
    texts = [str(thing) for thing in things]
    if len(between) * len(texts) + sum(map(len, texts)) > MOST_CHARACTERS:
        raise SecurityError(f"more than {MOST_CHARACTERS} characters")
    return between.join(texts)


class _Rewriter(HTMLParser):
    """Writes a partner's block anew, element by element, and keeps words for the first thing that it may not hold.

    What comes out is what was understood here, so that no browser can understand it otherwise.
    """

    def __init__(self, heading: str | None) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.out: list[str] = []
        self.headings = 0
        self.fault: str | None = None
        self.allowed = _ELEMENTS | ({heading} if heading else set())

    def _say(self, words: str) -> None:
        if self.fault is None:
            self.fault = words

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in self.allowed:
            self._say(f"<{tag}> is not allowed here; use plain text elements")
        self.headings += tag == "h1"
        for name, value in attrs:
            self._attribute(tag, name, value or "")
        pairs = "".join(f' {name}="{escape(value or "", quote=True)}"' for name, value in attrs)
        self.out.append(f"<{tag}{pairs}>")
        if tag not in _VOID:
            self.open.append(tag)

    def _attribute(self, tag: str, name: str, value: str) -> None:
        if name not in _ATTRIBUTES:
            self._say(f"<{tag}> has the attribute {name}, which is not allowed here; remove it")
        elif name in ("href", "src") and not value.strip().lower().startswith(
            ("#", "mailto:") if name == "href" else ("data:image/png;", "data:image/svg+xml;")
        ):
            self._say(f"<{tag}> leads out of the file: {value[:60]}; the report opens without a network")
        elif name == "class":
            for word in value.split():
                if word in _CLASSES or word.startswith(("v-", "s-", "o-")):
                    self._say(f"class {word!r} states a verdict, which is the report's alone; take another name")

    def handle_endtag(self, tag: str) -> None:
        if tag in _VOID:
            return
        if not self.open or self.open.pop() != tag:
            self._say(f"</{tag}> closes nothing; balance the elements")
        self.out.append(f"</{tag}>")

    def handle_data(self, data: str) -> None:
        self.out.append(escape(data))

    def handle_comment(self, data: str) -> None:
        self._say("HTML comments are not allowed here; use {# ... #}")

    def handle_decl(self, decl: str) -> None:
        self._say("a declaration is not allowed here; remove it")

    def unknown_decl(self, data: str) -> None:
        self.handle_decl(data)

    def handle_pi(self, data: str) -> None:
        self.handle_decl(data)


def _rewritten(html: str, heading: str | None) -> str:
    """The block, looked at; ValueError with words for what it may not hold."""
    if len(html) > MOST_CHARACTERS:
        raise ValueError(f"more than {MOST_CHARACTERS} characters; shorten it")
    found = _Rewriter(heading)
    found.feed(html)
    if "<" in found.rawdata:
        raise ValueError("ends inside a tag; close it")
    found.close()
    if found.fault is None and found.open:
        found.fault = f"<{found.open[-1]}> is never closed; balance the elements"
    if found.fault is None and heading and found.headings != 1:
        found.fault = f"has {found.headings} <{heading}>, and page one needs exactly one"
    if found.fault is not None:
        raise ValueError(found.fault)
    return "".join(found.out)


def _context(
    info: RunInfo, customer: Customer, logo: str | None, fabric: Fabric, topology: Topology, sign_off: str, outcome: str
) -> dict[str, Any]:
    """Plain data only: a model's methods would let a template read files."""
    return {
        "info": info.model_dump(mode="json"),
        "customer": customer.model_dump(mode="json"),
        "logo": logo,
        "fabric": fabric.model_dump(mode="json"),
        "nodes": [{"name": n.name, "groups": list(n.groups)} for n in topology.nodes],
        "sign_off": sign_off,
        "outcome": outcome,
        "language": customer.language,
    }


Blocks = dict[str, Markup | None]
"""`head`, `intro` and `closing`; None where there is no template."""


def partner_blocks(documents: RunDocuments, verdict: VerdictDoc) -> Blocks:
    """What a partner's templates make of a run. Raises ConfigError: `FILE:LINE: what is wrong`."""
    d = documents
    context = _context(d.info, d.customer, d.logo, d.fabric, d.topology, verdict.sign_off, verdict.outcome)
    return _blocks(d.templates, f"{d.customer.templates}", context)


def try_templates(report_yml: Path, fabric: Fabric, topology: Topology) -> None:
    """Render a partner's templates for a run that has yet to begin. ConfigError where they cannot be used."""
    customer = load_customer(report_yml)
    info = RunInfo(
        run="trial", created="2000-01-01T00:00:00Z", toolkit_version="0", site=topology.site, inventory="",
        fabric=fabric.name, suites=(), command=(), documents={},
    )  # fmt: skip
    texts = template_texts(report_yml, customer)
    context = _context(info, customer, logo_uri(report_yml, customer), fabric, topology, "REHEARSAL", "passed")
    _blocks(texts, f"{report_yml.parent / (customer.templates or '')}", context)


def _blocks(texts: Mapping[str, str], folder: str, context: dict[str, Any]) -> Blocks:
    def theirs(name: str) -> tuple[str, str, None] | None:
        # with a file name, so that errors have a line of the template and not of the code made from it
        return (texts[name], name, None) if name in texts else None

    environment = _Sandbox(
        loader=ChoiceLoader([FunctionLoader(theirs), PackageLoader("validation.report", "templates")]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        join=_joined, moment=numbers.moment, number=numbers.number, percent=numbers.percent, quantity=numbers.quantity
    )
    blocks: Blocks = {"head": None, "intro": None, "closing": None}
    for name in texts:
        place = f"{folder}/{name}"
        try:
            html = environment.get_template(name).render(context)
        except Exception as fault:  # whatever a partner's template does wrong is the partner's to correct
            raise ConfigError(f"{place}:{_line(fault, name)}: {_words(fault)}; correct the template") from None
        try:
            block = _rewritten(html, "h1" if name == "_head.html" else None)
        except ValueError as fault:
            raise ConfigError(f"{place}:1: {fault}") from None
        blocks[PurePosixPath(name).stem.lstrip("_")] = Markup(block)  # noqa: S704 - written anew, escaped
    return blocks


def _line(fault: Exception, name: str) -> int:
    """The line of the template in which it failed."""
    line = getattr(fault, "lineno", None)
    if isinstance(line, int):
        return line
    lines = [frame.lineno for frame in traceback.extract_tb(fault.__traceback__) if frame.filename == name]
    return (lines[-1] if lines else None) or 1


def _words(fault: Exception) -> str:
    words = fault.message if isinstance(fault, TemplateError) else f"{type(fault).__name__}: {fault}"
    return " ".join(str(words or type(fault).__name__).split())
