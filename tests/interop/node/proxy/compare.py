"""Compares the times of requests without and with unread streams: prints both, and exits with 1 if the p99 has more than doubled.

usage: compare.py WAY WITHOUT WITH"""

import statistics
import sys

way, *files = sys.argv[1:]
p99 = []
for name, file in zip(("without", "with"), files):
    with open(file) as lines:
        times = sorted(map(float, lines))
    p99.append(times[len(times) * 99 // 100])
    print(f"{way}, {name} three unread logs: {len(times)} requests, p50 {statistics.median(times):.2f} ms, p99 {p99[-1]:.2f} ms")
print(f"{way}: the p99 with them is {p99[1] / p99[0]:.2f} of that without")
sys.exit(p99[1] > 2 * p99[0])
