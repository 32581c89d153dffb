"""Sends requests to the API server in turns: through the proxy, and directly. Prints the milliseconds of both, a line for each turn.

usage: latency.py REQUEST COUNT CONTROLPLANE TARGET AUTHORITY PORT UID     at the port, as this user; HANDLE is in the environment
usage: latency.py REQUEST COUNT CONTROLPLANE TARGET SOCKET"""

import encodings.idna  # noqa: F401  Later, this user could not read it.
import http.client
import os
import socket
import ssl
import sys
import time

path, count, controlplane, target, *place = sys.argv[1:]
context = ssl.create_default_context(cafile=controlplane + "/ca.pem")
context.load_cert_chain(controlplane + "/admin.pem", controlplane + "/admin.key")
direct = http.client.HTTPSConnection("10.0.0.1", 443, context=context)
direct.connect()
headers = {}
if len(place) == 3:
    uid = int(place[2])
    context = ssl.create_default_context(cafile=place[0])
    proxied = http.client.HTTPSConnection("127.0.0.1", int(place[1]), context=context)
    # The program may be in a directory that is not for this user.
    os.setresuid(uid, uid, uid)
    headers["Authorization"] = "Bearer " + os.environ["HANDLE"]
else:
    proxied = http.client.HTTPConnection("localhost")
    proxied.sock = socket.socket(socket.AF_UNIX)
    proxied.sock.connect(place[0])


def timed(connection, path, headers):
    began = time.perf_counter()
    connection.request("GET", path, headers=headers)
    answer = connection.getresponse()
    body = answer.read()
    assert answer.status == 200, body
    return (time.perf_counter() - began) * 1000


def turn():
    return timed(proxied, target + path, headers), timed(direct, path, {})


turn()
for _ in range(int(count)):
    print(*turn())
