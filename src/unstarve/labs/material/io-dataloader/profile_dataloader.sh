#!/bin/sh
# Usage: ./profile_dataloader.sh slow|fast
# Records the slow or the fast version with unstarve, and with Nsight Systems too where it is installed.
set -e
cd "$(dirname "$0")"
case "$1" in
slow | fast) ;;
*) echo "usage: $0 slow|fast" >&2 && exit 2 ;;
esac
unstarve run --force -o "$1.unstarve" --html "$1.html" "$1_dataloader.py"
if command -v nsys >/dev/null; then
    unstarve nsys "$1_dataloader.py"
fi
