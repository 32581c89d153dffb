#!/usr/bin/env python3
"""Writes the table of cases/controllers.sh to docs/kubernetes.md, between its two marks.

usage: record.py TABLE MINUTES"""

import datetime
import pathlib
import sys

PAGE = pathlib.Path(__file__).resolve().parents[3] / "docs/kubernetes.md"
BEGIN, END = "<!-- controllers -->\n", "<!-- /controllers -->\n"
before, rest = PAGE.read_text().split(BEGIN)
_, after = rest.split(END)
table = pathlib.Path(sys.argv[1]).read_text()
day = datetime.datetime.now(datetime.timezone.utc).date()
PAGE.write_text(f"{before}{BEGIN}Measured on {day} for {sys.argv[2]} minutes:\n\n{table}{END}{after}")
