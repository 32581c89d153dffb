"""Compares the times of requests without and with unread streams, through the proxy and directly. Prints both, and exits with 1 if the
p99 through the proxy has more than doubled and the direct one has not.

usage: compare.py WAY WITHOUT WITH"""

import statistics
import sys

way, *files = sys.argv[1:]
ratios = []
columns = [list(zip(*(map(float, line.split()) for line in open(file)))) for file in files]
for index, name in enumerate([f"{way}, through the proxy", f"{way}, directly"]):
    p99 = []
    for state, column in zip(("without", "with"), columns):
        times = sorted(column[index])
        p99.append(times[len(times) * 99 // 100])
        print(f"{name}, {state} three unread logs: {len(times)} requests, p50 {statistics.median(times):.2f} ms, p99 {p99[-1]:.2f} ms")
    ratios.append(p99[1] / p99[0])
    print(f"{name}: the p99 with them is {ratios[-1]:.2f} of that without")
sys.exit(ratios[0] > 2 * max(1, ratios[1]))
