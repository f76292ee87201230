"""Follows exported events of Kasbah, and goes on where it was after each interruption. Needs only Python 3.8.

    KASBAH_SERVER=https://kasbah.example.com KASBAH_TOKEN=... python3 follow.py 'kasbah.sync.*'
"""

import collections
import json
import os
import ssl
import sys
import time
import urllib.error
import urllib.parse
import urllib.request


def follow(server, token, types="", position=None, context=None):
    """Yields events for ever, each once. Store event["position"] to go on from there after a restart."""
    seen = collections.deque(maxlen=1_000)
    while True:
        query = urllib.parse.urlencode({"types": types} if types else {})
        headers = {"Authorization": f"Bearer {token}", "Accept": "text/event-stream"}
        if position:
            headers["Last-Event-ID"] = position
        request = urllib.request.Request(f"{server}/api/events?{query}", headers=headers)
        try:
            # The server says something every ten seconds.
            with urllib.request.urlopen(request, timeout=30, context=context) as answer:
                for line in answer:
                    name, _, value = line.decode().rstrip("\n").partition(": ")
                    if name == "id":
                        position = value
                    if name != "data":
                        continue
                    event = json.loads(value)
                    if event["id"] not in seen:
                        seen.append(event["id"])
                        yield event
        except urllib.error.HTTPError as error:
            if error.code < 500:
                raise
        except OSError:
            pass
        time.sleep(1)


if __name__ == "__main__":
    authority = os.environ.get("KASBAH_CA_FILE")
    trusted = ssl.create_default_context(cafile=authority) if authority else None
    wanted = ",".join(sys.argv[1:])
    for found in follow(os.environ["KASBAH_SERVER"], os.environ["KASBAH_TOKEN"], wanted, os.environ.get("POSITION"), trusted):
        print(found["exportsequence"], found["type"], found["subject"], flush=True)
