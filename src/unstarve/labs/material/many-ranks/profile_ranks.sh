#!/bin/sh
# Usage: ./profile_ranks.sh slow|fast
# Records the slow or the fast version, two ranks on this machine, with unstarve.
set -e
cd "$(dirname "$0")"
case "$1" in
slow | fast) ;;
*) echo "usage: $0 slow|fast" >&2 && exit 2 ;;
esac
unstarve run --force -o "$1.unstarve" --html "$1.html" \
    -m torch.distributed.run --standalone --nproc-per-node 2 "$1_ranks.py"
