"""The broker and the proxy as services of systemd: their sockets stay while the programs are started again."""

import os
import pathlib
import signal
import subprocess
import time

PATIENCE = 60

# Starts the program one time after the other on the sockets that systemd passed.
SUPERVISOR = """
home=$0
while [ ! -e "$home/stop" ]; do
    /bin/sh -c 'echo $$ >"$0/pid.new"; mv "$0/pid.new" "$0/pid"; export LISTEN_PID=$$; exec "$@"' "$home" "$@"
    echo "$?" >>"$home/codes"
done
"""


def until(what, is_so):
    end = time.time() + PATIENCE
    while not (result := is_so()):
        if time.time() > end:
            raise RuntimeError(f"not in time: {what}")
        time.sleep(0.02)
    return result


class Service:
    """`listen` are the addresses of the unit's `ListenStream=`."""

    def __init__(self, home, name, listen, command):
        self.home = home / name
        self.home.mkdir()
        self.log = self.home / "log"
        sockets = [f"--listen={address}" for address in listen]
        names = ":".join([name] * len(listen))
        with open(self.log, "w") as log:
            self.supervisor = subprocess.Popen(
                ["systemd-socket-activate", *sockets, f"--fdname={names}", "/bin/sh", "-c", SUPERVISOR, self.home, *command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        for address in listen:
            if address.startswith("/"):
                until(f"{address} is there", pathlib.Path(address).exists)

    @property
    def pid(self):
        try:
            return int((self.home / "pid").read_text())
        except FileNotFoundError:
            return None

    def restart(self):
        """As `systemctl restart`: the next program starts when this one has ended."""
        old = self.pid
        os.kill(old, signal.SIGTERM)
        until(f"{self.home.name} starts again", lambda: self.pid != old)

    def failures(self):
        """The exit codes other than 0 of the programs that have ended."""
        codes = self.home / "codes"
        return [code for code in codes.read_text().split() if code != "0"] if codes.exists() else []

    def stop(self):
        (self.home / "stop").touch()
        if self.pid:
            os.kill(self.pid, signal.SIGTERM)
        else:
            self.supervisor.terminate()
        self.supervisor.wait(PATIENCE)
