"""What a page would load from outside is found, in each way that a page can; a link to somewhere is none."""

from pathlib import Path

import pytest

from tools.docsite import outside

ADDRESS = "https://example.net/x"


@pytest.mark.parametrize(
    "html",
    [
        f'<script src="{ADDRESS}"></script>',
        '<script src="//example.net/x"></script>',
        f'<link rel="stylesheet" href="{ADDRESS}">',
        f'<link rel="preconnect" href="{ADDRESS}" crossorigin>',
        f'<link rel="icon" href={ADDRESS}>',
        f'<img src="{ADDRESS}">',
        f'<img src="a.png" srcset="a.png 1x, {ADDRESS} 2x">',
        f'<video poster="{ADDRESS}"></video>',
        f'<iframe src="{ADDRESS}"></iframe>',
        f'<object data="{ADDRESS}"></object>',
        f'<svg><image xlink:href="{ADDRESS}"/></svg>',
        f"<style>@import '{ADDRESS}';</style>",
        f"<style>@font-face {{src: url({ADDRESS})}}</style>",
        f"<p style=\"background: url('{ADDRESS}')\">",
        f'<meta http-equiv="refresh" content="0;url={ADDRESS}">',
        '<pre class="mermaid">graph</pre>',
    ],
)
def test_a_load_from_outside_is_found(html: str, tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text(f"<!doctype html><title>x</title>{html}")
    (fault,) = outside.faults(tmp_path)
    assert fault.startswith("a.html: loads ")


@pytest.mark.parametrize(
    "html",
    [
        f'<a href="{ADDRESS}">x</a>',
        f'<link rel="canonical" href="{ADDRESS}">',
        '<script src="a.js"></script><img src="data:image/png;base64,//x"><link rel="stylesheet" href="../a.css">',
        f"<p>{ADDRESS} @import url({ADDRESS})</p>",
        '<svg xmlns="http://www.w3.org/2000/svg"></svg>',
    ],
)
def test_what_loads_nothing_is_none(html: str, tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text(f"<!doctype html><title>x</title>{html}")
    assert outside.faults(tmp_path) == []


def test_style_sheets_are_looked_at_too(tmp_path: Path) -> None:
    (tmp_path / "a.css").write_text(f'@import "{ADDRESS}";\nbody {{background: url("a.png")}}')
    assert outside.faults(tmp_path) == [f"a.css: loads {ADDRESS} from outside; bundle it or leave it out"]
