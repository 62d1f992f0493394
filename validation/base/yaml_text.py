"""YAML text as a tree or as values. Whatever the text is, the only error is yaml.YAMLError, marked where it can be.

The only reader of YAML with lines: plugins load this file by its path, for Ansible's Python need not have this package.

PyYAML's own constructors raise what Python raises (ValueError, TypeError, KeyError, RecursionError), and its composer
in C ends the process where a text is nested deeply: here the parser alone is C, and the tree is made with a limit.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import yaml
from yaml.composer import Composer, ComposerError
from yaml.constructor import ConstructorError, SafeConstructor
from yaml.reader import ReaderError

DEPTH = 60
"""How deep a document may be nested: ours have at most ten levels."""
_SHOWN = 40
_WIDTH = 1000


class _Bounded(Composer, SafeConstructor):
    """What both loaders have: a limit of depth, no duplicate key, and YAML's errors alone."""

    _depth = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        self._depth += 1
        if self._depth > DEPTH:
            mark = parent.start_mark if parent is not None else None
            raise ComposerError(None, None, f"nested more than {DEPTH} levels deep", mark)
        node = super().compose_node(parent, index)
        self._depth -= 1
        return node

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        try:
            return super().construct_object(node, deep)
        except yaml.YAMLError:
            raise
        except Exception:
            what = f"{_short(node.value)} is" if isinstance(node, yaml.ScalarNode) else "this is"
            kind = node.tag.rpartition(":")[2]
            raise ConstructorError(None, None, f"{what} not a valid {kind}", node.start_mark) from None


class _Loader(_Bounded, yaml.SafeLoader):
    """In Python, whose words for faults are the clearer ones."""


def _short(text: str) -> str:
    return repr(text if len(text) <= _SHOWN else f"{text[:_SHOWN]}...")


def _no_duplicates(loader: _Bounded, node: yaml.Node) -> dict[object, object]:
    """A duplicate key is a mistake of the author, not a choice of the last one."""
    if not isinstance(node, yaml.MappingNode):
        raise ConstructorError(None, None, "a mapping of keys is expected", node.start_mark)
    seen: set[str] = set()
    for key, _ in node.value:
        if not isinstance(key, yaml.ScalarNode):
            words = 'a key must be text, not a list or a mapping; quote a template: "{{ name }}"'
            raise ConstructorError(None, None, words, key.start_mark)
        if key.value in seen:
            raise ConstructorError(None, None, f"duplicate key: {_short(key.value)[1:-1]}", key.start_mark)
        seen.add(key.value)
    loader.flatten_mapping(node)
    return dict(loader.construct_pairs(node, deep=True))


def _date(loader: _Bounded, node: yaml.ScalarNode) -> object:
    """A day that no calendar has stays text, so that the model refuses it with its line."""
    try:
        return loader.construct_yaml_timestamp(node)
    except ValueError:
        return node.value


_LOADERS: list[Any] = [_Loader]
if hasattr(yaml, "CSafeLoader"):

    class _FastLoader(_Bounded, yaml.CSafeLoader):
        """Parsed in C, several times as fast. Its words differ: a faulty text is read by the other again."""

        def __init__(self, text: str) -> None:
            yaml.CSafeLoader.__init__(self, text)
            Composer.__init__(self)

    _LOADERS.insert(0, _FastLoader)

for _loader in _LOADERS:
    _loader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _no_duplicates)
    _loader.add_constructor("tag:yaml.org,2002:timestamp", _date)


def _read(text: str, method: str) -> Any:
    for loader in _LOADERS:
        try:
            reading = loader(text)
            try:
                return getattr(reading, method)()
            finally:
                reading.dispose()
        except yaml.YAMLError:
            if loader is _LOADERS[-1]:
                raise
        except Exception as fault:  # a tag that wants another kind of node, or a merge of a mapping with itself
            if loader is _LOADERS[-1]:
                raise yaml.YAMLError(f"{type(fault).__name__} in a tag or merge ({_short(str(fault))})") from None
    raise AssertionError("there is a loader")


def parse_yaml(text: str) -> object:
    """YAML text as Python values; yaml.YAMLError where it is none."""
    return _read(text, "get_single_data")


def yaml_tree(text: str) -> yaml.Node | None:
    """YAML text as a tree with lines, its tags left alone, None where it is empty; yaml.YAMLError where it is none."""
    tree: yaml.Node | None = _read(text, "get_single_node")
    return tree


def value_of(node: yaml.Node) -> object:
    """A tree, or a part of one, as Python values; yaml.YAMLError where it is none."""
    loader = _Loader("")
    try:
        return loader.construct_document(node)
    except yaml.YAMLError:
        raise
    except Exception as fault:  # as in _read
        raise yaml.YAMLError(f"{type(fault).__name__} in a tag or merge ({_short(str(fault))})") from None
    finally:
        loader.dispose()


def fault_of(fault: yaml.YAMLError, text: str) -> tuple[int, str]:
    """Line (from 1) and words of what is wrong with a text."""
    if isinstance(fault, ReaderError):
        line = text.count("\n", 0, fault.position) + 1
        return line, f"the character U+{ord(text[fault.position]):04X} is not allowed"
    if isinstance(fault, yaml.MarkedYAMLError):
        mark = fault.problem_mark or fault.context_mark
        return mark.line + 1 if mark else 1, str(fault.problem or fault.context)
    return 1, " ".join(str(fault).split())


def child(node: yaml.Node | None, key: int | str) -> tuple[yaml.Node, int] | None:
    """The value under a key or at a position of a tree, and the line (from 1) of the key; None where there is none."""
    if isinstance(node, yaml.MappingNode):
        for name, value in reversed(node.value):
            if getattr(name, "value", None) == str(key):
                return value, name.start_mark.line + 1
    if isinstance(node, yaml.SequenceNode) and isinstance(key, int) and key < len(node.value):
        return node.value[key], node.value[key].start_mark.line + 1
    return None


def repeated(node: yaml.Node | None, seen: set[yaml.Node] | None = None) -> Iterator[tuple[yaml.Node, yaml.Node]]:
    """Keys that a mapping has already, and the first of each; by an alias the tree may contain itself."""
    seen = set() if seen is None else seen
    if not isinstance(node, yaml.CollectionNode) or node in seen:
        return
    seen.add(node)
    keys: dict[str, yaml.Node] = {}
    for part in node.value:
        if isinstance(node, yaml.MappingNode):
            key, value = part
            if isinstance(key, yaml.ScalarNode) and key.value != "<<":
                first = keys.setdefault(key.value, key)
                if first is not key:
                    yield key, first
            yield from repeated(value, seen)
        else:
            yield from repeated(part, seen)


class _Plain(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:
        """Everything is written where it stands."""
        return True


def plain(data: object) -> str:
    """A YAML document as the toolkit writes it: no comment, each value in one form."""
    return yaml.dump(data, Dumper=_Plain, allow_unicode=True, sort_keys=False, width=_WIDTH)
