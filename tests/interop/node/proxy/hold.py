"""Holds listening sockets and runs a program that serves on them, as systemd does for a `.socket` and its `.service`.

usage: hold.py NAME ADDRESS[,ADDRESS...] PIDFILE UID COMMAND...

NAME is the `FileDescriptorName=`. An ADDRESS is a path or 127.0.0.1:PORT. At SIGHUP, as with `systemctl restart`, the program gets
SIGTERM, and the next one starts when it has ended. PIDFILE gets the process id of each. At SIGTERM, both end."""

import os
import pathlib
import signal
import socket
import sys

name, addresses, pidfile, uid = sys.argv[1:5]
command = sys.argv[5:]


def listening(address):
    if address.startswith("/"):
        held = socket.socket(socket.AF_UNIX)
        held.bind(address)
        os.chmod(address, 0o666)
    else:
        held = socket.socket()
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind((address.rpartition(":")[0], int(address.rpartition(":")[2])))
    held.listen(4096)
    return held


def start():
    pid = os.fork()
    if pid == 0:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
        # Out of the way of the numbers that the program expects.
        copies = [os.dup(held.fileno()) for held in SOCKETS]
        high = [os.dup2(copy, 100 + index) for index, copy in enumerate(copies)]
        for index, copy in enumerate(high):
            os.dup2(copy, 3 + index)
        os.closerange(3 + len(high), 1024)
        os.setgroups([])
        os.setresgid(int(uid), int(uid), int(uid))
        os.setresuid(int(uid), int(uid), int(uid))
        listen = {"LISTEN_PID": os.getpid(), "LISTEN_FDS": len(high), "LISTEN_FDNAMES": ":".join([name] * len(high))}
        os.execve(command[0], command, os.environ | {key: str(value) for key, value in listen.items()})
    new = pathlib.Path(pidfile + ".new")
    new.write_text(str(pid))
    new.rename(pidfile)
    return pid


SIGNALS = {signal.SIGHUP, signal.SIGTERM, signal.SIGCHLD}
signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
SOCKETS = [listening(address) for address in addresses.split(",")]
child = start()
while True:
    received = signal.sigwait(SIGNALS)
    if received == signal.SIGCHLD:
        if os.waitpid(child, os.WNOHANG)[0]:
            sys.exit(f"{command[0]} has ended by itself")
        continue
    os.kill(child, signal.SIGTERM)
    status = os.waitpid(child, 0)[1]
    if received == signal.SIGTERM:
        sys.exit(os.waitstatus_to_exitcode(status))
    child = start()
