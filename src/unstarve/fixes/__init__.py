"""Drop-in parts that an advice can point to: each says what it costs, what it keeps and when it helps."""
