"""A function per rule: a diagnosis in, one piece of advice or nothing out."""
