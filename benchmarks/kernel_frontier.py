"""A picture of what kernel_sharing.py's `frontier` part found: the service's latency against what the job gets.

    python benchmarks/kernel_sharing.py --part frontier --rounds 3 > frontier.json
    python benchmarks/kernel_frontier.py frontier.json docs/images/kernel-frontier.svg

To the left the service is faster, upwards the job gets more of the device. Small dots are single pairs, large ones
medians over the pairs. `fill` is a line: how much others may slow the service down is its user's choice.
"""

import argparse
import json
import math
from pathlib import Path
from typing import Any

import numpy as np

WIDTH, HEIGHT, LEFT, BOTTOM, TOP, RIGHT = 760, 440, 70, 60, 40, 20
COLOURS = {"share": "#8a8a8a", "strict": "#c2571a", "fikit": "#7b4fa3", "fill": "#1f6fb2"}
LATENCIES = (0.9, 1, 1.1, 1.2, 1.3, 1.5, 1.75, 2, 2.5, 3)
LABELLED = {0.0: "0 %", 0.02: "2 %", 0.1: "fill, 10 %", 1.0: "100 %"}
Point = tuple[float, float]


def points(rows: list[dict[str, Any]], mode: str) -> list[Point]:
    """For each pair: latency relative to exclusive, and the job's part of the device relative to default sharing."""
    details = [row[f"{mode}_detail"] for row in rows]
    return [(one["ratio_to_exclusive"]["median"], one["low_rate_ratio"]["median"]) for one in details]


def middle(found: list[Point]) -> Point:
    x, y = np.median(np.array(found), axis=0)
    return float(x), float(y)


def across(latency: float) -> float:
    """Higher ones stand at the right edge."""
    least, most = math.log(LATENCIES[0]), math.log(LATENCIES[-1])
    at = math.log(min(max(latency, LATENCIES[0]), LATENCIES[-1]))
    return LEFT + (at - least) / (most - least) * (WIDTH - LEFT - RIGHT)


def up(rate: float) -> float:
    return HEIGHT - BOTTOM - min(rate, 1.15) / 1.15 * (HEIGHT - BOTTOM - TOP)


def text(x: float, y: float, content: str, colour: str = "#333", anchor: str = "middle", size: int = 12) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" fill="{colour}" text-anchor="{anchor}" font-size="{size}">{content}</text>'


def dot(at: Point, colour: str, radius: float, opacity: float = 1) -> str:
    x, y = across(at[0]), up(at[1])
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius}" fill="{colour}" fill-opacity="{opacity}"/>'


def axes() -> list[str]:
    floor = HEIGHT - BOTTOM
    lines = [f'<path d="M{LEFT},{TOP}V{floor}H{WIDTH - RIGHT}" fill="none" stroke="#333"/>']
    for latency in LATENCIES:
        lines.append(f'<path d="M{across(latency):.1f},{TOP}V{floor}" stroke="#e4e4e4"/>')
        lines.append(text(across(latency), floor + 18, f"{latency:g}"))
    for tenth in range(0, 11, 2):
        lines.append(f'<path d="M{LEFT},{up(tenth / 10):.1f}H{WIDTH - RIGHT}" stroke="#e4e4e4"/>')
        lines.append(text(LEFT - 8, up(tenth / 10) + 4, f"{tenth / 10:g}", anchor="end"))
    lines.append(text((LEFT + WIDTH) / 2, HEIGHT - 18, "service: latency relative to exclusive", size=13))
    lines.append(
        f'<g transform="translate(20 {HEIGHT / 2}) rotate(-90)">'
        + text(0, 0, "job beside it: part of the device, relative to default sharing", size=13)
        + "</g>"
    )
    return lines


def sweep(rows: list[dict[str, Any]]) -> list[tuple[float, Point]]:
    """`fill` by its slowdown."""
    modes = [name.removesuffix("_detail") for name in rows[0] if name.startswith("fill_") and name.endswith("_detail")]
    found = [(float(mode.removeprefix("fill_")), middle(points(rows, mode))) for mode in modes if mode != "fill"]
    return sorted([*found, (0.1, middle(points(rows, "fill")))])


def picture(rows: list[dict[str, Any]]) -> str:
    lines = axes()
    for mode, colour in COLOURS.items():
        lines += [dot(one, colour, 3, 0.35) for one in points(rows, mode)]
    curve = sweep(rows)
    path = " L".join(f"{across(x):.1f},{up(y):.1f}" for _, (x, y) in curve)
    lines.append(f'<path d="M{path}" fill="none" stroke="{COLOURS["fill"]}" stroke-width="2"/>')
    for slowdown, at in curve:
        lines.append(dot(at, COLOURS["fill"], 7 if slowdown == 0.1 else 4))
    for slowdown, label in LABELLED.items():
        at = dict(curve)[slowdown]
        lines.append(text(across(at[0]) - 9, up(at[1]) - 9, label, COLOURS["fill"], "end"))
    for mode in ("strict", "fikit"):
        at = middle(points(rows, mode))
        lines += [dot(at, COLOURS[mode], 7), text(across(at[0]) + 11, up(at[1]) + 4, mode, COLOURS[mode], "start")]
    shared = middle(points(rows, "share"))
    lines.append(dot(shared, COLOURS["share"], 7))
    lines.append(text(WIDTH - RIGHT - 11, up(shared[1]) - 12, f"share: {shared[0]:.1f} →", COLOURS["share"], "end"))
    body = "\n".join(lines)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif">\n'
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>\n{body}\n</svg>\n'
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path)
    parser.add_argument("picture", type=Path)
    given = parser.parse_args()
    rows = json.loads(given.results.read_text(encoding="utf-8"))["frontier"]
    given.picture.write_text(picture(rows), encoding="utf-8")
    print(
        json.dumps({"fill_by_slowdown": sweep(rows)} | {mode: middle(points(rows, mode)) for mode in COLOURS}, indent=2)
    )


if __name__ == "__main__":
    main()
