"""A host's lines in an inventory: taken out of the file as they stand, and nothing else of it is touched."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import yaml

from toolkit.errors import UsageFault
from toolkit.inventory_lines import inventory_files
from toolkit.lab.standing import standing_inventory
from toolkit.lab_inventory import listed_lab
from validation.base.yaml_text import yaml_tree
from validation.model.load import read_source


@dataclass(frozen=True)
class Listing:
    """Where an inventory lists a host: the file, and its text without the host."""

    file: Path
    without: str
    lines: int

    def take_out(self) -> None:
        """Write the file without the host; whole, with its mode and its time, by which a lab's record is found."""
        before = self.file.stat()
        new = self.file.with_name(f".{self.file.name}.new")
        try:
            new.write_text(self.without, encoding="utf-8")
            new.chmod(before.st_mode & 0o7777)
            if os.geteuid() == 0:
                os.chown(new, before.st_uid, before.st_gid)
            os.utime(new, ns=(before.st_atime_ns, before.st_mtime_ns))
            new.replace(self.file)
        except OSError as fault:
            raise UsageFault(f"{self.file}: cannot be written: {fault.strerror or fault}") from None


def files_of(inventory: Path) -> list[Path]:
    """The files of an inventory that may list hosts; those of the lab where it lists a lab."""
    lab = listed_lab(inventory)
    if lab is not None:
        return [standing_inventory(lab)]
    if inventory.is_file():
        return [inventory]
    return [path for path in inventory_files(inventory) if path.suffix in (".yml", ".yaml")]


def listing(inventory: Path, host: str) -> Listing:
    """Where a host stands by itself, at one place or in several groups of one file.

    UsageFault where it cannot be taken out by its lines: it is one of a range, in flow style, in several files or in
    none that is YAML. Then a person has to do it, and nothing has been changed.
    """
    found: list[Listing] = []
    for file in files_of(inventory):
        text = read_source(file).text
        try:
            tree = yaml_tree(text)
        except yaml.YAMLError:
            continue
        lines = text.splitlines(keepends=True)
        spans = sorted(set(_spans(tree, host, file))) if tree is not None else []
        if spans:
            gone = {number for first, end in spans for number in range(first, _own(lines, first, end))}
            found.append(Listing(file, _closed(lines, gone), len(gone)))
    if not found:
        raise UsageFault(
            f"{inventory}: no file there lists {host} by a line of its own (a range, an INI file, a program?); nothing "
            f"was changed: list the hosts one by one in YAML first"
        )
    if len(found) > 1:
        files = ", ".join(str(one.file) for one in found)
        raise UsageFault(f"{host} is in several files ({files}); nothing was changed: keep it in one")
    return found[0]


def _closed(lines: list[str], gone: set[int]) -> str:
    """The text without these lines; a mapping that has lost its last host is closed as empty."""
    kept = [line for number, line in enumerate(lines) if number not in gone]
    text = "".join(kept)
    tree = yaml_tree(text)
    empty = sorted({number for number in _empty_hosts(tree)}) if tree is not None else []
    for number in empty:
        line = kept[number].rstrip("\n")
        body, mark, remark = line.partition(" #")
        kept[number] = f"{body.rstrip()} {{}}{mark}{remark}\n"
    return "".join(kept)


def _spans(node: yaml.Node, host: str, file: Path, seen: frozenset[int] = frozenset()) -> Iterator[tuple[int, int]]:
    """First line and the line after the last, from 0, of a host below every `hosts`."""
    if not isinstance(node, yaml.MappingNode) or id(node) in seen:
        return
    for key, value in node.value:
        if getattr(key, "value", None) == "hosts" and isinstance(value, yaml.MappingNode):
            for position, (name, content) in enumerate(value.value):
                if getattr(name, "value", None) == host:
                    yield _span(value, position, name, content, host, file)
        else:
            yield from _spans(value, host, file, seen | {id(node)})


def _own(lines: list[str], first: int, end: int) -> int:
    """The line after a host's last: blank lines and remarks above what follows are not the host's."""
    column = len(lines[first]) - len(lines[first].lstrip())
    end = min(end, len(lines))
    while end > first + 1:
        line = lines[end - 1]
        rest = line.strip()
        if rest and not (rest.startswith("#") and len(line) - len(line.lstrip()) <= column):
            break
        end -= 1
    return end


def _span(
    hosts: yaml.MappingNode, position: int, name: yaml.Node, content: yaml.Node, host: str, file: Path
) -> tuple[int, int]:
    if hosts.flow_style:
        raise UsageFault(
            f"{file}:{name.start_mark.line + 1}: {host} stands among others on one line; nothing was changed: give "
            "each host a line of its own"
        )
    # A block ends where the next token begins, anything else on its own line.
    end = content.end_mark.line + (0 if _block(content) else 1)
    if position + 1 < len(hosts.value):
        end = min(end, hosts.value[position + 1][0].start_mark.line)
    return name.start_mark.line, max(end, name.start_mark.line + 1)


def _block(node: yaml.Node) -> bool:
    return isinstance(node, yaml.CollectionNode) and not node.flow_style


def _empty_hosts(node: yaml.Node, seen: frozenset[int] = frozenset()) -> Iterator[int]:
    """Lines of `hosts:` keys with nothing below."""
    if not isinstance(node, yaml.MappingNode) or id(node) in seen:
        return
    for key, value in node.value:
        if getattr(key, "value", None) == "hosts" and isinstance(value, yaml.ScalarNode) and value.value == "":
            yield key.start_mark.line
        else:
            yield from _empty_hosts(value, seen | {id(node)})
