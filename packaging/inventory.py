"""inventory.py TRIPLE DIR: what is linked into the binary, from `cargo metadata`.

DIR/volhold.cdx.json   CycloneDX 1.5: every crate with version, licence, checksum, and what uses what
DIR/licences.txt       the licence texts of all of them, each text once, as stanzas of a Debian copyright file

A crate without a licence text in it, of a licence whose text is not known here either, is an error.
"""
import hashlib
import json
import os
import re
import subprocess
import sys
import tomllib
import uuid
from datetime import datetime, timezone
from pathlib import Path

triple, out = sys.argv[1], Path(sys.argv[2])
metadata = json.loads(subprocess.check_output(
    ["cargo", "metadata", "--locked", "--format-version", "1", "--filter-platform", triple]))
packages = {p["id"]: p for p in metadata["packages"]}
nodes = {n["id"]: n for n in metadata["resolve"]["nodes"]}
root = metadata["resolve"]["root"]
checksums = {(p["name"], p["version"]): p.get("checksum") for p in tomllib.loads(Path("Cargo.lock").read_text())["package"]}


def linked(start):
    """Crates that end up in the binary: neither for tests, nor for building, nor macros that ran at build time."""
    found, todo = set(), [start]
    while todo:
        at = todo.pop()
        if at in found:
            continue
        found.add(at)
        for dep in nodes[at]["deps"]:
            kinds = {kind["kind"] for kind in dep["dep_kinds"]}
            macro = any("proc-macro" in target["kind"] for target in packages[dep["pkg"]]["targets"])
            if None in kinds and not macro:
                todo.append(dep["pkg"])
    return found


ids = sorted(linked(root), key=lambda i: (packages[i]["name"], packages[i]["version"]))
own, others = packages[root], [packages[i] for i in ids if i != root]


def expression(package):
    """`MIT/Apache-2.0` is how SPDX's OR was written once."""
    return re.sub(r"\s*/\s*", " OR ", package["license"] or "")


def purl(package):
    return f"pkg:cargo/{package['name']}@{package['version']}"


def component(package):
    entry = {
        "type": "library",
        "bom-ref": purl(package),
        "name": package["name"],
        "version": package["version"],
        "licenses": [{"expression": expression(package)}],
        "purl": purl(package),
    }
    checksum = checksums.get((package["name"], package["version"]))
    if checksum:
        entry["hashes"] = [{"alg": "SHA-256", "content": checksum}]
    if package["repository"]:
        entry["externalReferences"] = [{"type": "vcs", "url": package["repository"]}]
    return entry


bom = {
    "bomFormat": "CycloneDX",
    "specVersion": "1.5",
    "version": 1,
    "metadata": {
        "timestamp": datetime.fromtimestamp(int(os.environ["SOURCE_DATE_EPOCH"]), timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "component": {"type": "application", "bom-ref": purl(own), "name": own["name"], "version": own["version"],
                      "licenses": [{"expression": expression(own)}], "purl": purl(own)},
    },
    "components": [component(package) for package in others],
    "dependencies": [
        {"ref": purl(packages[i]),
         "dependsOn": sorted(purl(packages[d]) for d in nodes[i]["dependencies"] if d in set(ids))}
        for i in ids
    ],
}
digest = hashlib.sha256(json.dumps(bom, sort_keys=True).encode()).digest()
bom["serialNumber"] = f"urn:uuid:{uuid.UUID(bytes=digest[:16], version=4)}"
(out / "volhold.cdx.json").write_text(json.dumps(bom, indent=1, sort_keys=True) + "\n")

NAMES = re.compile(r"^(licen[sc]e|copying|notice|unlicense|copyright)", re.I)
texts = {}
missing = []
for package in others:
    folder = Path(package["manifest_path"]).parent
    files = [f for f in sorted(folder.iterdir()) if f.is_file() and NAMES.match(f.name)]
    files += [f for sub in ("LICENSES", "licenses") if (folder / sub).is_dir() for f in sorted((folder / sub).iterdir())]
    if not files:
        missing.append(package)
    for file in files:
        text = file.read_text(errors="replace").replace("\r\n", "\n").strip()
        texts.setdefault("\n".join(line.rstrip() for line in text.split("\n")), []).append(package)
# Crates that say their licence in Cargo.toml only. Each choice of theirs that is Apache-2.0 is met by the text that volhold
# itself comes with. Others must be looked at by a person, and then stand here.
MIT_ONLY = {
    "base64-simd": "Nugine and the contributors of https://github.com/Nugine/simd",
    "vsimd": "Nugine and the contributors of https://github.com/Nugine/simd",
}
MIT = """MIT License

Copyright (c) {}

Permission is hereby granted, free of charge, to any person obtaining a copy of this software and associated documentation
files (the "Software"), to deal in the Software without restriction, including without limitation the rights to use, copy,
modify, merge, publish, distribute, sublicense, and/or sell copies of the Software, and to permit persons to whom the
Software is furnished to do so, subject to the following conditions:

The above copyright notice and this permission notice shall be included in all copies or substantial portions of the Software.

THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR IMPLIED, INCLUDING BUT NOT LIMITED TO THE WARRANTIES
OF MERCHANTABILITY, FITNESS FOR A PARTICULAR PURPOSE AND NONINFRINGEMENT. IN NO EVENT SHALL THE AUTHORS OR COPYRIGHT HOLDERS
BE LIABLE FOR ANY CLAIM, DAMAGES OR OTHER LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR OTHERWISE, ARISING FROM, OUT OF
OR IN CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE SOFTWARE."""
for package in list(missing):
    if expression(package) == "MIT" and package["name"] in MIT_ONLY:
        texts.setdefault(MIT.format(MIT_ONLY[package["name"]]), []).append(package)
        missing.remove(package)
for package in missing:
    if "Apache-2.0" not in expression(package):
        sys.exit(f"{package['name']} {package['version']} ({package['license']}) comes without a licence text")


def listed(packages):
    return ", ".join(sorted({f"{p['name']} {p['version']}" for p in packages}))


def quoted(text):
    return "\n".join(f" {line}" if line else " ." for line in text.split("\n"))


lines = ["Files: linked-crates", "Copyright: as each text says", "License: linked-crates", "Comment:", " volhold is linked with these crates (name, version, licence):"]
lines += [f"  {p['name']} {p['version']}: {expression(p)}" for p in others]
lines += [" .", " Of these come without a text, and are used under Apache-2.0: " + (listed(missing) or "none")]
lines += [" .", " and with Rust's standard library (MIT or Apache-2.0, The Rust Project Developers) and LLVM's libunwind and",
          " compiler-rt (Apache-2.0 with LLVM exception, the LLVM project). Their texts follow, each once.", "",
          "License: linked-crates"]
for number, (text, owners) in enumerate(sorted(texts.items(), key=lambda item: (listed(item[1]), item[0])), 1):
    lines += [f" == {number}: {listed(owners)}", " .", quoted(text), " ."]
(out / "licences.txt").write_text("\n".join(lines) + "\n")
print(f"{len(others)} crates, {len(texts)} licence texts, {len(missing)} without one")
