"""Appends to a ledger what a newer volhold may have written: an entry of a kind that this one does not know, not marked as one
that must be understood. The form is told in src/record/ledger.rs."""
import hashlib
import json

MAGIC = b"\x89vhL\r\n\x1a\x01"


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def frame(before, flags, payload):
    return MAGIC + bytes([flags, 0, 0, 0]) + len(payload).to_bytes(4, "little") + before + payload


def append(path):
    """Returns how many entries the ledger had."""
    ledger, at, count, last, payload = path.read_bytes(), 0, 0, bytes(32), b""
    while at < len(ledger):
        assert ledger[at:at + 8] == MAGIC, f"no frame at {at}"
        end = at + 48 + int.from_bytes(ledger[at + 12:at + 16], "little")
        last, payload = hashlib.sha256(ledger[at:end]).digest(), ledger[at + 48:end]
        assert int.from_bytes(ledger[end:end + 4], "little") == crc32c(ledger[at:end])
        at, count = end + 4, count + 1
    entry = json.loads(payload)
    entry.update(version="99.0.0", fact={"kind": "from-the-future", "said": "nothing that matters"})
    new = frame(last, 0, json.dumps(entry).encode())
    with open(path, "ab") as file:
        file.write(new + crc32c(new).to_bytes(4, "little"))
    return count
