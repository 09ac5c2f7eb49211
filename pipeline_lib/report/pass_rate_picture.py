"""The pool's pass rates as one small SVG, for pages that take a picture and no script."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from pipeline_lib.report.difficulty_charts import BUCKETS, count_by_bucket
from pipeline_lib.report.figure import FAINT, INK

WIDTH, HEIGHT = 560, 220
BASE, TOP = HEIGHT - 40, 34


def pass_rate_picture(rows: Iterable[Mapping[str, Any]]) -> str:
    """A bar a bucket; the rows have `pass_rate` and `n_prompts`."""
    counts = count_by_bucket(rows)
    step = WIDTH / len(BUCKETS)
    drawn = []
    for i, ((_, label, shade), n) in enumerate(zip(BUCKETS, counts, strict=True)):
        middle = step * (i + 0.5)
        height = (BASE - TOP) * n / max(1, *counts)
        drawn.append(
            f'<rect x="{middle - 0.36 * step:.1f}" y="{BASE - height:.1f}" width="{0.72 * step:.1f}" '
            f'height="{height:.1f}" fill="{shade}"/>'
            f'<text x="{middle:.1f}" y="{BASE - height - 6:.1f}" fill="{INK}">{n:,}</text>'
            f'<text x="{middle:.1f}" y="{BASE + 16}" fill="{FAINT}">{label}</text>'
        )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}" '
        'font-family="sans-serif" font-size="12" text-anchor="middle">'
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>{"".join(drawn)}'
        f'<line x1="0" y1="{BASE}" x2="{WIDTH}" y2="{BASE}" stroke="{FAINT}"/>'
        f'<text x="{WIDTH / 2}" y="{HEIGHT - 6}" fill="{FAINT}">share of right completions, prompts by it</text></svg>'
    )
