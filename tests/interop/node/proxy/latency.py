"""Sends requests through the proxy, one after the other on one connection, and prints the milliseconds of each.

usage: latency.py PATH COUNT AUTHORITY PORT UID     at the port, as this user; HANDLE is in the environment
usage: latency.py PATH COUNT SOCKET"""

import http.client
import os
import socket
import ssl
import sys
import time

path, count, *place = sys.argv[1:]
headers = {}
if len(place) == 3:
    uid = int(place[2])
    context = ssl.create_default_context(cafile=place[0])
    connection = http.client.HTTPSConnection("127.0.0.1", int(place[1]), context=context)
    # The program may be in a directory that is not for this user.
    os.setresuid(uid, uid, uid)
    headers["Authorization"] = "Bearer " + os.environ["HANDLE"]
else:
    connection = http.client.HTTPConnection("localhost")
    connection.sock = socket.socket(socket.AF_UNIX)
    connection.sock.connect(place[0])


def request():
    connection.request("GET", path, headers=headers)
    answer = connection.getresponse()
    body = answer.read()
    assert answer.status == 200, body


request()
for _ in range(int(count)):
    began = time.perf_counter()
    request()
    print((time.perf_counter() - began) * 1000)
