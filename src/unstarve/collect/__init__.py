"""Training → events. Everything here runs inside the user's process and must never harm it."""
