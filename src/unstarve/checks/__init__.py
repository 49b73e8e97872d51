"""What will go wrong with a loader, or has just gone wrong: a function for each check, and what runs them.

    objects/    a loader and its first batches, before the run
    source/     source that nobody has run
    evidence/   a recorded run; the report's health section

Ids, reasons and severities are in `model.checks`. No check guesses: what cannot be known is not reported.
"""
