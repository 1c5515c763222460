#!/bin/sh
# ./run -m bench …: a command of Leeway, with the packages of the kit before those of the machine.
here=$(cd "$(dirname "$0")" && pwd)
cd "$here/checkout" || exit 2
export PYTHONPATH="$here/checkout:$here/site${PYTHONPATH:+:$PYTHONPATH}" LEEWAY_CACHE="${LEEWAY_CACHE:-$here/cache}"
export HF_HUB_OFFLINE="${HF_HUB_OFFLINE:-1}"
exec "${PYTHON:-python3}" "$@"
