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

import functools
from pathlib import Path

import pytest

from tests.support.messages import parsed, parsed_by_template, product
from validation.base.project import ROOT

FOREIGN: dict[str, tuple[str, ...]] = {
    "Ansible's own words, on its stderr": (
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
    "age, which encrypts backups": (
        "_last: 'report unexpected' not in line",
        "_last: lines[-1].removeprefix('age: error: ')",
        "_why: 'no identity matched' in said",
        """_why: f'reading "{key}"' in said""",
        "_why: 'unexpected EOF' in said",
        "_why: 'failed to parse header' in said",
        "_why: 'decrypt and authenticate' in said",
        "_why: 'failed to parse' in said",
        "_why: 'header MAC' in said",
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
    "apt, dnf and gpg, which fetch what a mirror holds": (
        "_fetched: CLOCK.search(str(fault))",
        "explained: CLOCK.search(said)",
        "explained: FULL.search(said)",
        "_offered: re.search(said)",
    ),
    "Slurm's and Docker's commands": (
        "_tell: reason not in ('', 'None')",
        "drained_by_slurm: reason.startswith(_BY_A_FAULT)",
        "drained_by_somebody: reason.startswith(_SLURMS_OWN)",
        "still_drained: reason.startswith(_SLURMS_OWN)",
        "identity: 'no such image' in said.lower()",
        "most_s: re.findall(words)",
        "_jobs_now: re.search(words)",
        "_reason: words.partition(',')",
        "heard: _EVENT.search(words)",
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
        "record: words[-1].split('|')",
    ),
    "LLDP's daemons, and ethtool": (
        "_age: re.fullmatch(words)",
        "optic: about.get('Vendor name', '')",
        "optic: about.get('Vendor PN', '')",
        "optic: about.get('Vendor SN', '')",
    ),
    "configurations of switches": (
        "numbers: words.split(',')",
        "ports: 'system qos' in heads",
        "ports: heads['system qos']",
        "_bundled: one.form == 'mtu {mtu}'",
        "_queuing: line.text == 'priority'",
        "_queuing: line.text == 'random-detect ecn'",
        "_queuing: line.form == 'random-detect {name}'",
        "_queuing: mark.text == 'random-detect ecn'",
        "read_text: line.form == 'hostname {name}'",
        "_scheduler: line.text == 'type strict'",
        "_wred: line.text in ('ecn green', 'ecn all')",
        "once: _ONCE.match(line.text)",
        "_port: line.text == 'mode on'",
        "_port: line.form == 'mtu {mtu}'",
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
        "_op: raw['fio'].get('global options', {})",
        "_op: job['job options']",
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
    "what openssl prints of a certificate": (
        "certificates: said.startswith('notAfter=')",
        "certificates: said.strip().split('=', 1)",
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
        "_listen: 'limit_s' in said",
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


@functools.cache
def _product() -> list[tuple[Path, int, str]]:
    return [(path, line, place) for path in product() for line, place in parsed(path.read_text(encoding="utf-8"))]


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


IN_TEMPLATES: dict[str, tuple[str, ...]] = {
    "places in words that data fill": ("replace('--resume RUN') of remedy",),
    "an arrow for the sign that a subject has": ("replace('<>') of text", "replace('>') of text"),
}
"""Why -> `what is done`, as for FOREIGN."""


def test_no_message_is_taken_apart_by_a_template() -> None:
    files = sorted((ROOT / "validation").rglob("templates/*.html"))
    known = {place for places in IN_TEMPLATES.values() for place in places}
    found = {
        (f"{p.relative_to(ROOT)}:{line}", place) for p in files for line, place in parsed_by_template(p.read_text())
    }
    new = [f"{where}: {place}" for where, place in sorted(found) if place not in known]
    assert files
    assert not new, "give what decides here a typed field of its own:\n" + "\n".join(new)
    assert known <= {place for _, place in found}


@pytest.mark.parametrize(
    "template",
    [
        "{% if 'lost' in finding.text %}x{% endif %}",
        "{% if 'slowest measured link' in figures[0].svg %}x{% endif %}",
        "{% if row.reason == 'lost' %}x{% endif %}",
        "{% if state == 'not measured' %}x{% endif %}",
        "{% for x in y if not x.id.startswith('node-') %}x{% endfor %}",
        "{{ finding.text.split(':')[0] }}",
        "{{ finding.text | replace('a', 'b') }}",
        "{{ name | regex_replace('a', 'b') }}",
    ],
)
def test_it_is_found_in_a_template(template: str) -> None:
    assert list(parsed_by_template(template))


@pytest.mark.parametrize(
    "template",
    [
        "{% if verdict == 'fail' %}x{% endif %}",
        "{{ name | replace('-', ' ') }}",
        "{% if anchor in anchors %}x{% endif %}",
        "{% if verdict.sign_off == 'CONSTRUCTED EXAMPLE' %}x{% endif %}",
    ],
)
def test_what_decides_nothing_in_a_template_is_left_alone(template: str) -> None:
    assert not list(parsed_by_template(template))
