"""``python -m unstarve``: the command line, where the ``unstarve`` script is not on the path."""

from unstarve.cli import main

main()
