"""One module a lab: its faults, hints and questions. What learners get is in `material/`."""
