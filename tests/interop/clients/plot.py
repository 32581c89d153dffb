"""A plot of bars as SVG, without a library. It is readable on light and on dark pages."""

from xml.sax.saxutils import escape

STYLE = """
    text { font: 13px system-ui, sans-serif; fill: #1f2328 }
    .title { font-weight: 600 }
    .bar { fill: #0969da }
    .whisker { stroke: #57606a; stroke-width: 2 }
    @media (prefers-color-scheme: dark) {
      text { fill: #e6edf3 }
      .bar { fill: #4493f8 }
      .whisker { stroke: #9198a1 }
    }
"""
LEFT, WIDTH, ROW, TOP = 170, 460, 34, 44


def write(file, title, bars):
    """Each bar is a label, a median and a 95th percentile in milliseconds."""
    scale = WIDTH / max(p95 for _, _, p95 in bars)
    height = TOP + ROW * len(bars) + 8
    width = LEFT + WIDTH + 80
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" role="img">',
        f"  <title>{escape(title)}</title>",
        f"  <style>{STYLE}  </style>",
        f'  <text class="title" x="10" y="22">{escape(title)}</text>',
    ]
    for index, (label, median, p95) in enumerate(bars):
        y = TOP + ROW * index
        middle, end = y + 11, LEFT + p95 * scale
        parts += [
            f'  <text x="{LEFT - 10}" y="{y + 16}" text-anchor="end">{escape(label)}</text>',
            f'  <rect class="bar" x="{LEFT}" y="{y}" width="{median * scale:.1f}" height="22" rx="3"/>',
            f'  <path class="whisker" d="M{LEFT + median * scale:.1f} {middle}H{end:.1f}M{end:.1f} {y + 5}V{y + 17}"/>',
            f'  <text x="{end + 8:.1f}" y="{y + 16}">{median:.0f} ms</text>',
        ]
    file.write_text("\n".join([*parts, "</svg>", ""]))
