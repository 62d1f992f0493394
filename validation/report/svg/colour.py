"""The palette, and one sequential colour scale, the same for every figure of the report.

The scale is a single hue from pale to deep blue: its lightness falls monotonically, so it reads the same to the
colour-blind and on a grey printer. Text on a coloured cell is black or white, whichever contrasts more.
"""

from __future__ import annotations

Rgb = tuple[int, int, int]

INK = "#16202c"
BLACK = "#000000"
PAPER = "#ffffff"
ALARM = "#b3261e"
MUTED = "#55606e"
LINE = "#c9d1da"
BLUE = "#2f6ba6"
BROWN = "#9a4a00"
GREEN = "#1d6f5c"
VIOLET = "#6b4e9b"
SOFT = "#f4f6f8"
PALE = "#dfe9f3"

# Anchors of the scale, pale to deep; linear interpolation between neighbours.
_ANCHORS: tuple[Rgb, ...] = ((240, 245, 250), (198, 217, 235), (133, 172, 209), (64, 118, 171), (16, 62, 112))


def _rgb(colour: str) -> Rgb:
    return int(colour[1:3], 16), int(colour[3:5], 16), int(colour[5:7], 16)


def sequential(fraction: float) -> str:
    """The scale's colour at `fraction` of its length, clamped to 0..1, as #rrggbb."""
    position = min(max(fraction, 0.0), 1.0) * (len(_ANCHORS) - 1)
    index = min(int(position), len(_ANCHORS) - 2)
    part = position - index
    low, high = _ANCHORS[index], _ANCHORS[index + 1]
    return "#" + "".join(f"{round(a + (b - a) * part):02x}" for a, b in zip(low, high, strict=True))


def luminance(colour: str) -> float:
    """Relative luminance, 0 black to 1 white (WCAG 2.2, definition "relative luminance")."""
    channels = []
    for part in _rgb(colour):
        share = part / 255
        channels.append(share / 12.92 if share <= 0.04045 else ((share + 0.055) / 1.055) ** 2.4)
    return 0.2126 * channels[0] + 0.7152 * channels[1] + 0.0722 * channels[2]


def contrast(one: str, other: str) -> float:
    """Contrast ratio of two colours, 1 to 21 (WCAG 2.2, definition "contrast ratio")."""
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def text_on(background: str) -> str:
    """Black or white, whichever is easier to read on `background`.

    Only pure black keeps a ratio of 4.5 (WCAG AA) to every colour to which white does not.
    """
    return BLACK if contrast(BLACK, background) >= contrast(PAPER, background) else PAPER
