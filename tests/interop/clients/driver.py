"""A client that runs, and is asked for requests."""

import contextlib
import json
import os
import queue
import subprocess
import threading
import time

# Seconds between two requests. A command for each request takes more of the machine.
PACE, PACE_OF_COMMANDS = 0.25, 1
# How long a client may take to recover.
PATIENCE = 30


class Driver:
    """The client of a cell, with the credentials of `user`."""

    def __init__(self, cell, user, variables=None):
        self.cell, self.seen, self.process = cell, set(), None
        name = cell.home / user if cell.client.profile else user
        self.command = [*cell.inside, *(str(part) for part in cell.client.command(cell.file, name, cell.user))]
        self.environment = os.environ | {"KUBECONFIG": str(cell.file), "HOME": str(cell.home)} | (variables or {})
        self.answers = queue.Queue()
        if not cell.client.once:
            self.process = subprocess.Popen(
                self.command,
                env=self.environment,
                text=True,
                bufsize=1,
                start_new_session=True,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=cell.log,
            )
            self.reader = threading.Thread(target=self.read, daemon=True)
            self.reader.start()

    def read(self):
        for line in self.process.stdout:
            try:
                line = json.loads(line)
            except ValueError:
                self.cell.log.write(line)
                continue
            if "seen" in line:
                self.seen.add(line["seen"])
            else:
                self.answers.put(line["status"] == 200)
                if line["status"] != 200:
                    self.cell.log.write(f"{time.time():.3f} {line}\n")
                    self.cell.log.flush()
        self.answers.put(None)

    def once(self):
        """One request: whether it succeeded. A client that has ended fails."""
        if self.process is None:
            return not subprocess.run(
                self.command,
                env=self.environment,
                timeout=60,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=self.cell.log,
            ).returncode
        try:
            self.process.stdin.write("get\n")
        except OSError:
            return False
        answer = self.answers.get(timeout=60)
        if answer is None:
            self.answers.put(None)
        return bool(answer)

    def request(self, until, meanwhile=lambda: None):
        """Requests at an even pace. `recovered` is whether the last ones succeeded."""
        results, changes = [], time.time() + 3
        while not until():
            began = time.time()
            results.append(self.once())
            if began > changes:
                meanwhile()
                changes = began + 3
            time.sleep(max(0, began + (PACE if self.process else PACE_OF_COMMANDS) - time.time()))
        return {"requests": len(results), "failed": results.count(False), "recovered": all(results[-3:])}

    def recover(self):
        """Requests until three in a row succeed."""
        results, end = [], time.time() + PATIENCE
        while not (len(results) > 2 and all(results[-3:])) and time.time() < end:
            results.append(self.once())
            time.sleep(PACE)
        return {"requests": len(results), "failed": results.count(False), "recovered": all(results[-3:])}

    def await_seen(self, names):
        end = time.time() + (PATIENCE if self.cell.client.watches else 0)
        while not self.seen.issuperset(names) and time.time() < end:
            time.sleep(0.1)

    def stop(self):
        if self.process:
            # It may have ended.
            with contextlib.suppress(BrokenPipeError):
                self.process.stdin.close()
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
            self.reader.join(10)
