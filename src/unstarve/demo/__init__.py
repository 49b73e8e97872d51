"""What `unstarve demo` trains: the same task with a loader full of common mistakes, and with them fixed."""
