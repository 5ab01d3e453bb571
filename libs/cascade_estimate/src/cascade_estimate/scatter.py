"""A scatter plot of estimated over simulated cycles, as SVG."""

from __future__ import annotations

from collections.abc import Sequence
from math import floor, log10

from cascade_estimate.bench import BenchRow

_SIDE = 560
_LEFT, _TOP = 64, 16
_COLOURS = ("#4269d0", "#efb118", "#ff725c", "#6cc5b0", "#3ca951", "#ff8ab7", "#a463f2", "#97bbf5")


def scatter_svg(rows: Sequence[BenchRow]) -> str:
    """Both axes logarithmic, launch latency out of both sides, one colour a config."""
    values = [value for row in rows for value in (row.net_simulated, row.net_estimated)]
    low, high = floor(log10(max(min(values), 1))), log10(max(values)) + 0.05
    configs = sorted({row.config for row in rows})

    def x(value: float) -> float:
        return _LEFT + (log10(max(value, 1.0)) - low) / (high - low) * _SIDE

    def y(value: float) -> float:
        return _TOP + _SIDE - (log10(max(value, 1.0)) - low) / (high - low) * _SIDE

    width, height = _LEFT + _SIDE + 190, _TOP + _SIDE + 48
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}">',
        "<style>text { font: 12px sans-serif }</style>",
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
    ]
    for power in range(low, floor(high) + 1):
        at_x, at_y, label = x(10.0**power), y(10.0**power), f"{10**power}"
        out.append(
            f'<path d="M{at_x:.1f} {_TOP}V{_TOP + _SIDE}M{_LEFT} {at_y:.1f}H{_LEFT + _SIDE}" stroke="#dddddd"/>'
        )
        out.append(f'<text x="{at_x:.1f}" y="{_TOP + _SIDE + 16}" text-anchor="middle">{label}</text>')
        out.append(f'<text x="{_LEFT - 6}" y="{at_y + 4:.1f}" text-anchor="end">{label}</text>')
    first, last = 10.0**low, 10.0**high
    for factor, stroke in ((1.0, "#555555"), (1.25, "#bbbbbb"), (0.8, "#bbbbbb")):
        start, end = max(first, first / factor), min(last, last / factor)
        out.append(
            f'<path d="M{x(start):.1f} {y(start * factor):.1f}L{x(end):.1f} {y(end * factor):.1f}" stroke="{stroke}"/>'
        )
    for row in rows:
        colour = _COLOURS[configs.index(row.config) % len(_COLOURS)]
        out.append(
            f'<circle cx="{x(row.net_simulated):.1f}" cy="{y(row.net_estimated):.1f}" r="3" fill="{colour}" '
            f'fill-opacity="0.7"><title>{row.kernel} on {row.config}: {row.net_simulated} simulated, '
            f"{row.net_estimated} estimated</title></circle>"
        )
    for number, config in enumerate(configs):
        at = _TOP + 14 + 18 * number
        out.append(
            f'<circle cx="{_LEFT + _SIDE + 18}" cy="{at - 4}" r="4" fill="{_COLOURS[number % len(_COLOURS)]}"/>'
        )
        out.append(f'<text x="{_LEFT + _SIDE + 28}" y="{at}">{config}</text>')
    middle = _LEFT + _SIDE / 2
    out.append(
        f'<text x="{middle}" y="{height - 8}" text-anchor="middle">simulated cycles without launch</text>'
    )
    out.append(
        f'<text x="14" y="{_TOP + _SIDE / 2}" text-anchor="middle" '
        f'transform="rotate(-90 14 {_TOP + _SIDE / 2})">estimated cycles without launch</text>'
    )
    out.append("</svg>")
    return "\n".join(out) + "\n"
