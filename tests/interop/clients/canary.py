"""Whether a process or a file has a credential."""

import base64
import contextlib
import re
import subprocess

# Of a process's memory that is read at a time.
PIECE = 8 << 20


def forms(plane, user):
    """What to look for, by name: the newest token and key of a user, in each form that a program could hold."""
    found = {}
    tokens = [token for token in (plane.folder / "tokens").iterdir() if re.fullmatch(f"{user}-[0-9a-f]{{32}}", token.name)]
    if tokens:
        found["token"] = max(tokens, key=lambda token: token.stat().st_mtime).name.encode()
    file = plane.folder / "keys" / user
    if file.exists():
        lines = [line for line in file.read_text().splitlines() if not line.startswith("-----")]
        text = subprocess.run(["openssl", "pkey", "-noout", "-text", "-in", file], capture_output=True, text=True, check=True)
        # An elliptic curve's number, or the exponent of RSA.
        number = re.search(r"(?:priv|privateExponent):\s*((?:[0-9a-f]{2}[:\s]*)+)", text.stdout)[1]
        number = bytes.fromhex(re.sub(r"[:\s]", "", number)).lstrip(b"\0")
        found |= {
            # The beginning is that of all keys of a kind.
            "key as PEM": lines[-2].encode(),
            "key as DER": base64.b64decode("".join(lines))[-60:],
            "number of the key": number,
            "number of the key, least first": number[::-1],
        }
    return found


def in_memory(pid, forms):
    """The names of what is in the memory of a process and of those that it started."""
    longest = max(map(len, forms.values()))
    found = set()
    with open(f"/proc/{pid}/task/{pid}/children") as children:
        for child in children.read().split():
            # It may have ended.
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                found |= in_memory(child, forms)
    with open(f"/proc/{pid}/maps") as maps, open(f"/proc/{pid}/mem", "rb", 0) as memory:
        for line in maps:
            bounds, access = line.split()[:2]
            begin, end = (int(bound, 16) for bound in bounds.split("-"))
            if not access.startswith("rw"):
                continue
            at, before = begin, b""
            while at < end:
                try:
                    memory.seek(at)
                    piece = memory.read(min(PIECE, end - at))
                except (OSError, ValueError):
                    # Pages of the kernel's.
                    break
                if not piece:
                    break
                at += len(piece)
                text = before + piece
                found |= {name for name, form in forms.items() if form in text}
                before = text[-longest:]
    return found


def in_files(files, secrets):
    """Those of the files that have one of the secrets."""
    return [str(file) for file in files if any(secret in file.read_bytes() for secret in secrets)]
