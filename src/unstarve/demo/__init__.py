"""The trainings of `unstarve demo`: one task, with common mistakes in its loader and with them fixed."""
