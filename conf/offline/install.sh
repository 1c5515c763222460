#!/bin/sh
# sh install.sh [FOLDER]: install Leeway from this kit as FOLDER/leeway, beside this file unless a folder is given.
# Needs no network and writes nothing outside FOLDER. PYTHON=/path/to/python chooses the interpreter, else python3.
set -eu
kit=$(cd "$(dirname "$0")" && pwd)
python=${PYTHON:-python3}

fail() {
    echo "install.sh: $1" >&2
    exit 2
}

found=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2> /dev/null) || fail "$python: cannot be run; PYTHON=/path/to/python names another"
[ "$found" = @PYTHON@ ] || fail "$python is Python $found and this kit is for @PYTHON@: make one with python=$found, or give PYTHON=/path/to/python@PYTHON@"
"$python" -m pip --version > /dev/null 2>&1 || fail "$python has no pip; PYTHON=/path/to/python names another"
[ -s "$kit/SHA256SUMS" ] || fail "SHA256SUMS: missing; copy the whole kit again"
while read -r sum name; do
    [ -f "$kit/$name" ] || fail "$name: missing; copy it again from where the kit was made"
    [ "$(sha256sum < "$kit/$name" | cut -d ' ' -f 1)" = "$sum" ] || fail "$name: damaged; copy it again from where the kit was made"
done < "$kit/SHA256SUMS"

into=${1:-$kit}
mkdir -p "$into" 2> /dev/null || fail "$into: cannot be written; give another folder"
into=$(cd "$into" && pwd)
[ ! -e "$into/leeway" ] || fail "$into/leeway: there already, left as it is; move it away or give another folder"
partial=$into/.leeway.partial
rm -rf "$partial"
mkdir "$partial" "$partial/tmp" "$partial/site" "$partial/wheels" 2> /dev/null || fail "$into: cannot be written; give another folder"
trap 'rm -rf "$partial"' EXIT
trap 'exit 130' INT TERM
for archive in $(cut -d ' ' -f 3 "$kit/SHA256SUMS" | sed 's/\.[0-9]*$//' | uniq); do
    cut -d ' ' -f 3 "$kit/SHA256SUMS" | grep "^$archive\.[0-9]*$" | while read -r part; do cat "$kit/$part"; done |
        tar -xzf - --no-same-owner -C "$partial" || fail "$archive: cannot be unpacked into $into; is the disk full?"
done

"$python" "$partial/check.py" "$partial/needs.txt" || exit 2
find "$partial/wheels" -name '*.whl' > "$partial/wheels/all.txt"
if [ -s "$partial/wheels/all.txt" ]; then
    TMPDIR=$partial/tmp PIP_CONFIG_FILE=/dev/null "$python" -m pip --isolated --disable-pip-version-check \
        --no-cache-dir install --quiet --no-index --no-deps --root-user-action ignore --target "$partial/site" \
        --requirement "$partial/wheels/all.txt" ||
        fail "pip cannot install the wheels (its message is above); nothing was changed"
fi
rm -r "$partial/wheels" "$partial/tmp" "$partial/check.py" "$partial/needs.txt"
chmod +x "$partial/run"
mv "$partial" "$into/leeway"
echo "installed: $into/leeway; next: $into/leeway/run -m bench method=mars n=2 timed=2"
