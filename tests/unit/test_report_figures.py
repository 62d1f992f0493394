"""Figures and numbers of the report: pure functions, each alone."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from itertools import pairwise

import pytest

from validation.model import Endpoint
from validation.report.numbers import duration, interval, moment, number, quantity, typeset
from validation.report.render import css_string
from validation.report.svg.charts import Dot, bound_strip
from validation.report.svg.colour import contrast, luminance, sequential, text_on
from validation.report.svg.heatmap import Cell, Heatmap, heat_map

TIMES = "\u00d7"


def test_scale_darkens_steadily_and_text_on_it_is_readable():
    colours = [sequential(i / 100) for i in range(101)]
    lightness = [luminance(c) for c in colours]
    assert all(a > b for a, b in pairwise(lightness))
    assert min(contrast(text_on(c), c) for c in colours) >= 4.5  # WCAG AA
    assert sequential(-1) == colours[0]
    assert sequential(2) == colours[-1]


A, B, C = (Endpoint(node=node, port="p") for node in "abc")


def _map(**more: object) -> str:
    cells = {(A, B): Cell("0.99", "a to b", value=0.99), (B, A): Cell("0.1", "b to a", "fail", 0.1)}
    base = dict(id="x", title="T", description="D", labels=(A, B, C), cells=cells, unit="u", top=1.0, top_label="1")
    return str(heat_map(Heatmap(**(base | more))))


def test_heat_map_hatches_what_was_not_measured_and_outlines_the_suspect():
    text = _map()
    assert text.count('fill="url(#x-hatch)"') == 4 + 1  # 6 pairs, 2 measured, and the legend's key
    assert text.count("not measured</title>") == 4
    frames = text.count('stroke-width="2.5"')
    assert _map(suspect=frozenset({B})).count('stroke-width="2.5"') == frames + 2  # its row and its column
    assert _map(suspect_pairs=frozenset({(B, A)})).count('stroke-width="2.5"') == frames + 1
    ET.fromstring(text)


def test_heat_map_of_many_ports_leaves_numbers_to_the_annex():
    labels = tuple(Endpoint(node=f"node-{i:02d}", port="fab0") for i in range(40))
    cells = {(a, b): Cell("NUMBER", "t", value=1.0) for a in labels for b in labels if a != b}
    assert "NUMBER" not in _map(labels=labels, cells=cells)


def test_bound_strip_draws_failures_as_crosses_within_the_frame():
    text = str(bound_strip("s", [Dot("a", 0.98), Dot("b", 0.1, failed=True)], "Gbit/s", floor=0.94, ceiling=0.99))
    assert text.count("<circle") == 1
    assert text.count("l10 10m0 -10l-10 10") == 1
    assert "1 outside their bound" in text
    for x in re.findall(r'(?:cx|x)="([\d.]+)"', text):
        assert 0 <= float(x) <= 640


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.94051, "0.9405"), (0.1, "0.1000"), (9000.0, "9\u2009000"), (412.0, "412"), (0, "0"), (72.884, "72.88"),
     (123456.7, "123\u2009457"), (-3.14159, "-3.142"), (99999.6, "100\u2009000"), (0.00001234, "0.00001234")],
)  # fmt: skip
def test_numbers(value, text):
    assert number(value) == text


def test_words_of_quantities():
    assert quantity(50.0, "us") == "50 µs"
    assert quantity(None, "us") == "\u2013"
    assert interval(1.0, 1.0) is None
    assert interval(None, 2.0) is None
    assert duration(8.21) == "8.2 s"
    assert duration(185) == "3 min 05 s"
    assert duration(7800) == "2 h 10 min"
    assert moment("2026-11-21T11:15:00+01:00") == "2026-11-21 10:15:00 UTC"
    assert moment("soon") == "soon"
    assert typeset("a/p>b/p, a<>b, 3 > 2") == "a/p → b/p, a ↔ b, 3 > 2"
    assert quantity(0.07, "ratio") == "7 %"
    assert interval(0.9, 0.95, "ratio") == "90 \u2013 95"
    assert typeset(">= 0.90 x line rate, <= 50 us") == f"≥ 0.90 {TIMES} line rate, ≤ 50 µs"
    assert css_string('a"</style>\\') == "a\\000022\\00003c/style\\00003e\\00005c"
