"""A trace is JSON: a list of events with a name, a beginning and a duration in microseconds.

python read_trace.py TRACE prints, for every track and every name in it, how many events there are, how long
they take on average, and the longest one with the number of its batch.
"""

import gzip
import json
import sys
from pathlib import Path


def read(path):
    content = path.read_bytes()
    return json.loads(gzip.decompress(content) if path.suffix == ".gz" else content)["traceEvents"]


def track_names(events):
    """(process, thread) → name."""
    named = [event for event in events if event["ph"] == "M" and event["name"] == "thread_name"]
    return {(event["pid"], event["tid"]): event["args"]["name"] for event in named}


def main(path):
    events = read(path)
    names = track_names(events)
    found = {}
    for event in events:
        if event["ph"] == "X":  # it has a duration
            track = names.get((event["pid"], event["tid"]), str(event["tid"]))
            batch = event.get("args", {}).get("batch", "-")
            found.setdefault((track, event["name"]), []).append((event["dur"] / 1000, batch))
    print(f"{'track':24} {'name':32} {'count':>6} {'mean ms':>9} {'longest':>9}  its batch")
    for (track, name), spans in sorted(found.items()):
        mean = sum(span[0] for span in spans) / len(spans)
        longest, number = max(spans, key=lambda span: span[0])
        print(f"{track[:24]:24} {name[:32]:32} {len(spans):6} {mean:9.1f} {longest:9.1f}  {number}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
