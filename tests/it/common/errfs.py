#!/usr/bin/python3
"""A file `disk` on a FUSE mount whose reads fail or come short in given ranges, to put a loop device on.

    errfs.py MOUNTPOINT BACKING RULE...       RULE is eio:OFFSET:LENGTH, short:OFFSET:LENGTH, when:OFFSET:LENGTH:FILE, where
                                              reads fail once FILE exists, after:COUNT:0, where every read fails after so
                                              many, or stall:OFFSET:LENGTH:FILE,
                                              where nothing is answered before FILE exists, or a minute has gone by:
                                              a disk that hangs for good hangs the whole machine; or noise:SEED:0, where
                                              everything reads as noise, the same in every run, and
                                              nothing can be written

Runs in the foreground and ends when it is unmounted.
"""
import ctypes
import errno
import hashlib
import os
import signal
import stat
import sys
import time

import fuse

fuse.fuse_python_api = (0, 2)


# What one hash is stretched to.
CHUNK = 1 << 17


def noise(seed, offset, length):
    """Of a disk that is full of it, without the disk."""
    first, last = offset // CHUNK, (offset + length - 1) // CHUNK
    chunks = (hashlib.shake_128(b"%d:%d" % (seed, chunk)).digest(CHUNK) for chunk in range(first, last + 1))
    return b"".join(chunks)[offset - first * CHUNK:][:length]


class ErrFs(fuse.Fuse):
    def __init__(self, backing, rules):
        super().__init__(dash_s_do="setsingle")
        self.disk = os.open(backing, os.O_RDWR)
        self.rules = rules
        self.reads = 0
        self.patience = time.monotonic() + 60

    def getattr(self, path):
        answer = fuse.Stat()
        if path == "/":
            answer.st_mode, answer.st_nlink = stat.S_IFDIR | 0o755, 2
        elif path == "/disk":
            answer.st_mode, answer.st_nlink = stat.S_IFREG | 0o600, 1
            answer.st_size = os.fstat(self.disk).st_size
        else:
            return -errno.ENOENT
        return answer

    def readdir(self, path, offset):
        return (fuse.Direntry(name) for name in (".", "..", "disk"))

    def open(self, path, flags):
        return 0

    def read(self, path, length, offset):
        self.reads += 1
        for kind, start, size, release in self.rules:
            if kind == "noise":
                size = os.fstat(self.disk).st_size
                return noise(start, offset, max(0, min(length, size - offset)))
            if kind == "after":
                if self.reads > start:
                    return -errno.EIO
                continue
            if kind == "when" and not os.path.exists(release):
                continue
            if offset < start + size and offset + length > start:
                if kind == "stall":
                    while not os.path.exists(release) and time.monotonic() < self.patience:
                        time.sleep(0.02)
                    continue
                if kind in ("eio", "when"):
                    return -errno.EIO
                length = max(0, start - offset)
        return os.pread(self.disk, length, offset)

    def write(self, path, data, offset):
        if any(kind == "noise" for kind, *_ in self.rules):
            return -errno.EROFS
        return os.pwrite(self.disk, data, offset)

    def fsync(self, path, datasync):
        return 0


def die_with_parent():
    """A server that outlives a killed test leaves a loop device on which every `losetup -a` of the machine hangs."""
    PR_SET_PDEATHSIG = 1
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def main():
    die_with_parent()
    mountpoint, backing = sys.argv[1:3]
    rules = []
    for rule in sys.argv[3:]:
        kind, start, size, *release = rule.split(":", 3)
        assert kind in ("eio", "short", "stall", "when", "after", "noise"), kind
        rules.append((kind, int(start, 0), int(size, 0), *(release or [None])))
    server = ErrFs(backing, rules)
    server.parse(["-f", "-s", mountpoint], errex=1)
    server.main()


main()
