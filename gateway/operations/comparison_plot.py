"""Plot of compared evaluations: mean differences with their intervals, as SVG."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from html import escape

from gateway.operations.paired_scores import Comparison
from runtime.terminal import printable

__all__ = ["render"]

_WIDTH = 760
_ROW_HEIGHT = 30
_TOP = 44
_BOTTOM = 46
_PLOT_LEFT = 240
_PLOT_RIGHT = 640
_LABEL_CHARACTERS = 34
_TICKS = 5
_LOSS, _GAIN, _UNCERTAIN = "#b3261e", "#1b6e3c", "#5f6368"


def render(comparisons: Sequence[Comparison], before: str, after: str) -> str:
    """Return an SVG with one row for each comparison.

    A row shows the mean difference of nDCG@10 as a dot and its 95 % interval as a line; it is grey
    if the interval contains 0.
    """
    height = _TOP + _ROW_HEIGHT * len(comparisons) + _BOTTOM
    bottom = height - _BOTTOM
    ticks = _ticks(comparisons)
    scale = _Scale(ticks[0], ticks[-1])
    size = f'viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" height="{height}"'
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="13">',
        f'<rect width="{_WIDTH}" height="{height}" fill="#ffffff"/>',
        _text(16, 24, f"nDCG@10 of {after} less that of {before}, with 95 % intervals"),
    ]
    for value in ticks:
        x = scale(value)
        colour = "#202124" if value == 0 else "#dadce0"
        lines.append(f'<path d="M{x:.1f} {_TOP}V{bottom}" stroke="{colour}"/>')
        lines.append(_text(x, bottom + 18, f"{value:+.3g}" if value else "0", anchor="middle"))
    for number, comparison in enumerate(comparisons):
        lines.extend(_row(comparison, _TOP + _ROW_HEIGHT * (number + 0.5), scale))
    return "\n".join([*lines, "</svg>", ""])


class _Scale:
    """Horizontal position, in pixels, of a difference."""

    def __init__(self, low: float, high: float) -> None:
        self._low = low
        self._per_unit = (_PLOT_RIGHT - _PLOT_LEFT) / (high - low)

    def __call__(self, value: float) -> float:
        return _PLOT_LEFT + (value - self._low) * self._per_unit


def _row(comparison: Comparison, y: float, scale: _Scale) -> Iterator[str]:
    low, high = comparison.interval or (comparison.difference, comparison.difference)
    colour = _GAIN if low > 0 else _LOSS if high < 0 else _UNCERTAIN
    label = f"{comparison.set_name}, {comparison.mode}"
    is_long = len(label) > _LABEL_CHARACTERS
    yield _text(16, y + 4, label[: _LABEL_CHARACTERS - 1] + "…" if is_long else label)
    yield (
        f'<path d="M{scale(low):.1f} {y:.1f}H{scale(high):.1f}" stroke="{colour}"'
        ' stroke-width="2"/>'
    )
    yield f'<circle cx="{scale(comparison.difference):.1f}" cy="{y:.1f}" r="4" fill="{colour}"/>'
    counts = f"{comparison.won} won, {comparison.lost} lost"
    yield _text(_PLOT_RIGHT + 14, y + 4, counts)


def _ticks(comparisons: Sequence[Comparison]) -> list[float]:
    """Round values that enclose 0 and all intervals; at least two."""
    ends = [0.0]
    for comparison in comparisons:
        ends += comparison.interval or (comparison.difference,)
    span = max(ends) - min(ends) or 0.01
    magnitude = 10 ** math.floor(math.log10(span / _TICKS))
    step = next(magnitude * n for n in (1, 2, 5, 10) if magnitude * n * _TICKS >= span)
    first, last = math.floor(min(ends) / step), math.ceil(max(ends) / step)
    return [number * step for number in range(first, max(last, first + 1) + 1)]


def _text(x: float, y: float, text: str, anchor: str = "start") -> str:
    plain = " ".join(printable(text).split())
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(plain)}</text>'
