#!/usr/bin/env bash
# The Python with what tests/ec2/sim.py needs, from PyPI, below the user's cache folder; prints its path. Once, about a minute.
set -euo pipefail
cd "$(dirname "$0")"
cache="${XDG_CACHE_HOME:-$HOME/.cache}/volhold"
python="$cache/ec2-$(sha256sum requirements.txt | cut -c1-12)"
mkdir -p "$cache"
exec 9>"$cache/ec2.lock"
flock 9
if [ ! -x "$python/bin/python" ]; then
    echo "fetching moto (once)" >&2
    rm -rf "$python.new"
    python3 -m venv "$python.new" >&2
    "$python.new/bin/python" -m pip --quiet --disable-pip-version-check install --only-binary :all: -r requirements.txt >&2
    # The environment's scripts name its own folder: moved as a whole, and entered by its Python and not by them.
    mv "$python.new" "$python"
fi
echo "$python/bin/python"
