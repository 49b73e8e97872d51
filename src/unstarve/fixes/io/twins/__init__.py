"""What the compiled parts do, in Python: the same results and the same errors, where no compiler was."""
