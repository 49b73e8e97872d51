"""Ask an export something in SQL: python query.py slow.sqlite "SELECT name FROM sqlite_master" """

import sqlite3
import sys

if len(sys.argv) != 3:
    raise SystemExit('usage: python query.py FILE "SELECT …"')
for row in sqlite3.connect(f"file:{sys.argv[1]}?mode=ro", uri=True).execute(sys.argv[2]):
    print(*row, sep="  ")
