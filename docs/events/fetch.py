"""Fetches exported events of Kasbah from a durable consumer on NATS, and acknowledges each. Needs only Python 3.8.

`kasbah subscription create orders --nats` shows the stream and the consumer. A client library of NATS does the same in fewer lines.

    NATS_PASSWORD=... python3 fetch.py nats.example.com:4222 <organization> <stream> <consumer>
"""

import json
import os
import socket
import ssl
import sys
import time

# Events of one request, and how many seconds the server may take to fill it.
BATCH, WAIT = 100, 30


class Connection:
    """As much of the NATS protocol as this needs: https://docs.nats.io/reference/reference-protocols/nats-protocol."""

    def __init__(self, server, user, password):
        host, port = server.rsplit(":", 1)
        self.socket = socket.create_connection((host, int(port)), timeout=WAIT + 30)
        self.file = self.socket.makefile("rb")
        info = json.loads(self.line()[5:])
        if info.get("tls_required"):
            context = ssl.create_default_context(cafile=os.environ.get("NATS_CA_FILE"))
            self.socket = context.wrap_socket(self.socket, server_hostname=host)
            self.file = self.socket.makefile("rb")
        options = {"verbose": False, "headers": True, "no_responders": True, "user": user, "pass": password}
        self.send("CONNECT " + json.dumps(options))

    def send(self, line):
        self.socket.sendall(line.encode() + b"\r\n")

    def publish(self, subject, payload, reply=""):
        self.send(f"PUB {subject} {reply} {len(payload)}\r\n{payload}")

    def line(self):
        line = self.file.readline()
        if not line:
            raise OSError("the server closed the connection")
        return line.decode().rstrip("\r\n")

    def message(self):
        """The next message: where to acknowledge it, its status (empty for an event), and its payload."""
        while True:
            words = self.line().split(" ")
            if words[0] == "PING":
                self.send("PONG")
            elif words[0] == "-ERR":
                raise PermissionError(" ".join(words[1:]))
            elif words[0] in ("MSG", "HMSG"):
                total = int(words[-1])
                head = int(words[-2]) if words[0] == "HMSG" else 0
                reply = words[3] if len(words) > (5 if head else 4) else ""
                body = self.file.read(total + 2)[:-2]
                status = body[:head].decode().split("\r\n")[0][len("NATS/1.0") :].strip()
                return reply, status, body[head:]


def fetch(connection, stream, consumer):
    """Yields events for ever. Each is acknowledged once the next one is asked for: deal with it before."""
    connection.send("SUB _INBOX.fetch.* 1")
    request, number, outstanding = {"batch": BATCH, "expires": WAIT * 1_000_000_000}, 0, 0
    while True:
        if not outstanding:
            number, outstanding = number + 1, BATCH
            subject = f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{consumer}"
            connection.publish(subject, json.dumps(request), f"_INBOX.fetch.{number}")
        reply, status, payload = connection.message()
        if status:
            # The request ended before it was full: 404 and 408 say that there is nothing now.
            outstanding = 0
            if not status.startswith(("404", "408", "409")):
                time.sleep(1)
            continue
        outstanding -= 1
        event = json.loads(payload)
        if event["type"] != "kasbah.export.began":
            yield event
        connection.publish(reply, "+ACK")


if __name__ == "__main__":
    address, organization, its_stream, its_consumer = sys.argv[1:]
    server = Connection(address, organization, os.environ["NATS_PASSWORD"])
    seen = set()
    for found in fetch(server, its_stream, its_consumer):
        # An event comes at least once.
        if found["id"] not in seen:
            seen.add(found["id"])
            print(found["exportsequence"], found["type"], found["subject"], flush=True)
