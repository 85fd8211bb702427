"""What the drivers of the Python clients share: the line protocol with the runner, see ../README.md.

A driver gives `main` a class with one method for each operation, called with the order as a dict and returning the fields of its reply, and a
function that is a member of a group.
"""

import base64
import json
import signal
import sys
import threading
import traceback


class Absent(Exception):
    """Raised when the client does not offer what was asked for; its text says what."""


def decoded(text):
    """Bytes of a field; None stays None."""
    return None if text is None else base64.b64decode(text)


def encoded(data):
    """The text of bytes; None stays None."""
    return None if data is None else base64.b64encode(data).decode()


def record(key, value, headers, offset):
    """A record of a reply. headers are pairs of a name and bytes."""
    return {
        "key": encoded(key),
        "value": encoded(value),
        "headers": [{"key": k, "value": encoded(v)} for k, v in headers or []],
        "offset": offset,
    }


def records(order):
    """The records of an order: key, value, pairs of headers."""
    for r in order["records"]:
        yield decoded(r["key"]), decoded(r["value"]), [(h["key"], decoded(h["value"])) for h in r["headers"] or []]


def say(line):
    """Prints a line that the runner reads at once."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


class Assignment:
    """Tells the runner of the partitions of a member when they change."""

    def __init__(self):
        self.before = None

    def show(self, names):
        names = sorted(names)
        if names != self.before:
            self.before = names
            say(" ".join(["has", *names]))


def ended():
    """An event that SIGTERM sets."""
    event = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: event.set())
    return event


def reply(driver, order):
    """Carries out one order."""
    operation = getattr(driver, order["do"], None)
    try:
        if operation is None:
            raise Absent(f"it has no call for '{order['do']}'")
        return operation(order) or {}
    except Absent as e:
        return {"absent": str(e)}
    except Exception as e:  # whatever a client raises is what the runner wants to know
        traceback.print_exc()
        return {"error": f"{type(e).__name__}: {e}"}


def main(driver, member):
    """Runs `serve BOOTSTRAP` or `member BOOTSTRAP GROUP TOPIC`."""
    if sys.argv[1] == "member":
        member(*sys.argv[2:])
        return
    operations = driver(sys.argv[2])
    for line in sys.stdin:
        say(json.dumps(reply(operations, json.loads(line))))
