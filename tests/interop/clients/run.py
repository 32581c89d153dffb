"""Runs every client with every kind of credential, without the broker, with it, and through the proxy; and writes the tables.

usage: run.py FOLDER PROGRAMS BROKER SHIM [--write PAGE] [--only WORD] [--jobs N]
  FOLDER      a control plane that start.sh has started
  PROGRAMS    the folder that setup.sh has filled
  --write     the page whose tables are replaced
  --only      the clients whose names contain the word

It fails if a client recovers without the broker and not with it, or does not work through the proxy."""

import argparse
import concurrent.futures
import json
import pathlib
import sys
import traceback

from cell import PROXIED, Cell
from clients import clients, javascript_next
from plane import Plane
from table import broken, proxied_table, replace, table, worse


def main():
    arguments = argparse.ArgumentParser(usage=__doc__)
    for name in ("folder", "programs", "broker", "shim"):
        arguments.add_argument(name, type=pathlib.Path)
    arguments.add_argument("--write", type=pathlib.Path)
    arguments.add_argument("--only", default="")
    arguments.add_argument("--jobs", type=int, default=12)
    given = arguments.parse_args()

    plane = Plane(given.folder.resolve())
    (plane.folder / "keys").mkdir(mode=0o700, exist_ok=True)
    here = pathlib.Path(__file__).resolve().parent
    programs = {"plugin": here / "plugin", "broker": given.broker.resolve(), "shim": given.shim.resolve()}
    rows = [client for client in clients(given.programs.resolve()) if given.only in client.name]
    cells = [(client, kind, way) for client in rows for kind in client.kinds for way in ("direct", "broker")]
    cells += [(client, kind, way) for client in rows for kind in client.proxied for way in PROXIED]

    def run(cell):
        try:
            done = Cell(plane, programs, *cell).run()
        except Exception:
            traceback.print_exc()
            return None
        print(done.user, json.dumps(done.results), flush=True)
        return done

    with concurrent.futures.ThreadPoolExecutor(given.jobs) as pool:
        done = list(pool.map(run, cells))
    if None in done:
        sys.exit("a client could not be measured")
    results = {(cell.client.name, cell.kind, cell.way): cell.results for cell in done}
    text = table(rows, results, javascript_next(given.programs.resolve()))
    proxied = proxied_table(rows, results)
    print(text, proxied, sep="\n\n")
    if given.write:
        replace(given.write, "clients", text)
        replace(given.write, "proxied", proxied)
    failures = [line for client in rows for line in worse(client, results)]
    if failures:
        failures.insert(0, "with the broker, these do not recover, and without it they do:")
    through = [line for client in rows for line in broken(client, results)]
    if through:
        failures += ["through the proxy, these do not work:", *through]
    if failures:
        sys.exit("\n".join(failures))


main()
