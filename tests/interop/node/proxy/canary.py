"""Looks for credentials where none may be: every token and every private key that the plugins have issued.

usage: canary.py ISSUED PLACE...

ISSUED is a directory with the ExecCredentials. A PLACE is uid:UID (the memory of all processes of that user), pid:PID, or a file or
directory. Prints a line for each place, and exits with 1 if one has a credential. A place with nothing in it is an error (2)."""

import base64
import json
import os
import pathlib
import re
import sys


def shapes(issued):
    """What to look for: bytes, and an expression for what follows. One finds all tokens, as a memory is large."""
    found = {}
    for file in issued.iterdir():
        status = json.loads(file.read_text())["status"]
        if "token" in status:
            name = status["token"][:-32].encode()
            found[name, b"[0-9a-f]{32}"] = "token"
            found[base64.b64encode(name)[: len(name) // 3 * 4], b"[0-9A-Za-z+/]{40}"] = "token in base64"
        if "clientKeyData" in status:
            lines = status["clientKeyData"].split("\n")
            der = base64.b64decode("".join(lines[1:-2]))
            start = der.index(b"\x02\x01\x01\x04\x20") + 5
            scalar = der[start : start + 32]
            # All keys of this kind begin so, in PEM and in DER.
            found[lines[1][:48].encode(), b""] = "key in PEM"
            found[base64.b64encode(status["clientKeyData"].encode())[36:96], b""] = "key in base64"
            found[scalar, b""] = "key"
            found[scalar[::-1], b""] = "key, little endian"
    return found


def has(part, start, rest):
    at = part.find(start)
    while at >= 0:
        if re.compile(rest).match(part, at + len(start)):
            return True
        at = part.find(start, at + 1)
    return False


def memory(pid):
    """The readable memory that can have changed."""
    with open(f"/proc/{pid}/maps") as maps, open(f"/proc/{pid}/mem", "rb", 0) as mem:
        for line in maps:
            addresses, rights, _, _, inode, *name = line.split()
            if rights[0] != "r" or name[:1] in (["[vvar]"], ["[vsyscall]"], ["[vvar_vclock]"]) or (inode != "0" and rights[1] != "w"):
                continue
            start, end = (int(part, 16) for part in addresses.split("-"))
            try:
                mem.seek(start)
                yield mem.read(end - start)
            except OSError:
                # It has been unmapped meanwhile.
                continue


def processes(uid):
    for entry in os.listdir("/proc"):
        try:
            if entry.isdigit() and os.stat(f"/proc/{entry}").st_uid == uid:
                yield int(entry)
        except FileNotFoundError:
            continue


def contents(place):
    """Names, and the parts of what each of them holds."""
    kind, _, number = place.partition(":")
    if kind in ("uid", "pid"):
        for pid in processes(int(number)) if kind == "uid" else [int(number)]:
            try:
                arguments = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
                parts = list(memory(pid))
            except (FileNotFoundError, ProcessLookupError):
                continue
            if parts:
                yield b" ".join([os.path.basename(arguments[0]), *arguments[1:4]]).decode(), parts
        return
    top = pathlib.Path(place)
    for file in [top] if top.is_file() else top.rglob("*"):
        if file.is_file() and not file.is_symlink():
            yield str(file), [file.read_bytes()]


known = shapes(pathlib.Path(sys.argv[1]))
assert known, "no credential has been issued"
code = 0
for place in sys.argv[2:]:
    count = size = 0
    seen = {}
    for name, parts in contents(place):
        count += 1
        size += sum(map(len, parts))
        for shape, what in known.items():
            if any(has(part, *shape) for part in parts):
                seen.setdefault(name, set()).add(what)
    print(f"{place}: {count} places, {size >> 20} MiB, {len(known)} patterns:", seen or "none")
    if not count:
        sys.exit(2)
    code |= bool(seen)
sys.exit(code)
