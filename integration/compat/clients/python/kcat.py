"""The driver of kcat: each order is a run of it, and what it prints is taken apart."""

import os
import re
import subprocess
import tempfile
import threading

import common

TIMEOUT = 30  # seconds
NO_ADMIN = "it has no admin calls"


class Driver:
    def __init__(self, bootstrap):
        self.bootstrap = bootstrap

    def run(self, *arguments, stdin=b""):
        """The standard output of a run."""
        done = subprocess.run(["kcat", "-b", self.bootstrap, *arguments], capture_output=True, timeout=TIMEOUT, input=stdin, check=False)
        if done.returncode:
            raise RuntimeError(done.stderr.decode().strip().splitlines()[-1])
        return done.stdout

    def produce(self, o):
        """Each record is a file, since kcat divides its standard input at a byte that a record may have. A null is a line with a key alone."""
        settings = ["-P", "-t", o["topic"], "-p", str(o["partition"]), "-z", o.get("codec", "none"), "-X", f"acks={o['acks']}",
                    "-X", f"enable.idempotence={str(o.get('idempotent', False)).lower()}"]
        if o["acks"] == "0":
            settings += ["-X", "queue.buffering.max.ms=0"]
        for key, value, headers in common.records(o):
            words = [w for k, v in headers for w in ("-H", f"{k}={v.decode()}")]
            if value is None:
                self.run(*settings, *words, "-Z", "-K", "|", stdin=key + b"|\n")
                continue
            if key is not None:
                words += ["-k", key.decode()]
            with tempfile.NamedTemporaryFile() as file:
                file.write(value)
                file.flush()
                self.run(*settings, *words, file.name)

    def transact(self, o):
        raise common.Absent("it has no transactions")

    def fetch(self, o):
        level = "read_committed" if o.get("committed") else "read_uncommitted"
        out = self.run("-C", "-q", "-t", o["topic"], "-p", str(o["partition"]), "-o", str(o["offset"]), "-c", str(o["count"]),
                       "-X", f"isolation.level={level}", "-f", "%o %K %S %h\n%k%s")
        got = []
        while out:
            head, _, out = out.partition(b"\n")
            offset, key_bytes, value_bytes, headers = head.split(b" ", 3)
            parts = []
            for size in (int(key_bytes), int(value_bytes)):
                parts.append(None if size < 0 else out[:size])
                out = out[max(size, 0):]
            pairs = [h.split(b"=", 1) for h in headers.split(b",") if h]
            got.append(common.record(parts[0], parts[1], [(k.decode(), v) for k, v in pairs], int(offset)))
        return {"records": got}

    def at(self, o):
        out = self.run("-Q", "-t", f"{o['topic']}:{o['partition']}:{o['time']}").decode()
        return {"offset": int(re.search(r"offset (-?\d+)", out)[1])}

    def member(self, o):
        pass

    def metadata(self, *arguments):
        """Topics with their counts of partitions."""
        out = self.run("-L", *arguments).decode()
        return {name: int(count) for name, count in re.findall(r'topic "(.+?)" with (\d+) partitions', out)}

    def topics(self, o):
        return {"names": list(self.metadata())}

    def describe(self, o):
        return {"number": self.metadata("-t", o["topic"])[o["topic"]]}

    def absent(self, o):
        raise common.Absent(NO_ADMIN)

    create = grow = configure = config = groups = group = delete = absent


def forward(out, err):
    """Prints what kcat reads, and its partitions, which are among its messages."""
    assignment = common.Assignment()

    def show():
        for line in err:
            found = re.search(r"rebalanced .*(assigned|revoked): (.*)", line)
            if found:
                names = re.findall(r"(\S+) \[(\d+)\]", found[2]) if found[1] == "assigned" else []
                assignment.show(f"{t}-{p}" for t, p in names)

    watcher = threading.Thread(target=show)
    watcher.start()
    for line in out:
        common.say(line.rstrip("\n"))
    watcher.join()


def member(bootstrap, group, topic):
    """Becomes kcat -G, so that the runner's signals are kcat's; what it prints goes through a child, which ends after it."""
    out, err = os.pipe(), os.pipe()
    if os.fork() == 0:
        os.close(out[1])
        os.close(err[1])
        forward(os.fdopen(out[0]), os.fdopen(err[0]))
        return
    os.dup2(out[1], 1)
    os.dup2(err[1], 2)
    os.execvp("kcat", [
        "kcat", "-b", bootstrap, "-G", group, "-u", "-f", "read %p %o\n", "-X", "auto.offset.reset=earliest",
        "-X", "auto.commit.interval.ms=300", "-X", "session.timeout.ms=6000", "-X", "heartbeat.interval.ms=500", topic])


common.main(Driver, member)
