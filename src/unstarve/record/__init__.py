"""Events → one run file, and back. See `unstarve.record.format` for the layout."""
