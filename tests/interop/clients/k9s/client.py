"""k9s in a terminal: it shows ConfigMaps, and describes one for each line of standard input, which is a request.

usage: client.py K9S KUBECONFIG CONTEXT NAMESPACE"""

import fcntl
import json
import os
import pty
import re
import select
import struct
import sys
import termios
import time

ROWS, COLUMNS = 60, 200
# k9s draws everything again when the terminal has another size. It is done when nothing more comes.
QUIET, DRAWING = 0.3, 5
PATIENCE = 20
ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[()][0-9A-B]|[=>78])")
ESCAPE = "\x1b"


class Terminal:
    def __init__(self, command):
        self.columns = COLUMNS
        self.process, self.terminal = pty.fork()
        if not self.process:
            os.environ["TERM"] = "xterm-256color"
            os.execv(command[0], command)

    def types(self, text):
        os.write(self.terminal, text.encode())

    def shown(self):
        """The text on the screen; ends the program if k9s has ended."""
        self.columns = COLUMNS + (self.columns == COLUMNS)
        fcntl.ioctl(self.terminal, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, self.columns, 0, 0))
        text, end = b"", time.time() + DRAWING
        while time.time() < end and select.select([self.terminal], [], [], QUIET)[0]:
            try:
                text += os.read(self.terminal, 1 << 16)
            except OSError:
                sys.exit(f"k9s has ended: {ESCAPES.sub('', text.decode(errors='replace'))[-1000:]}")
        return ESCAPES.sub("", text.decode(errors="replace"))

    def shows(self, *words):
        """Whether the words are on the screen in time."""
        end = time.time() + PATIENCE
        while time.time() < end:
            text = self.shown()
            if all(word in text for word in words):
                return text
        return ""


def main():
    program, file, context, namespace = sys.argv[1:]
    options = ["--kubeconfig", file, "--context", context, "--namespace", namespace, "--command", "configmaps"]
    terminal = Terminal([program, *options, "--readonly", "--logoless", "--splashless", "--refresh", "2"])
    seen = set()

    def look(text):
        for name in re.findall(r"change-\d+", text):
            if name not in seen:
                seen.add(name)
                print(json.dumps({"seen": name}), flush=True)

    look(terminal.shows("change-0"))
    while True:
        if not select.select([sys.stdin], [], [], 1)[0]:
            look(terminal.shown())
            continue
        if not os.read(sys.stdin.fileno(), 1 << 10):
            return
        terminal.types("d")
        described = terminal.shows("Name:", "Annotations:")
        print(json.dumps({"status": 200 if described else 0}), flush=True)
        terminal.types(ESCAPE)
        look(terminal.shows("AGE"))


main()
