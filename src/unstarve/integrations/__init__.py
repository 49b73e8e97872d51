"""One module per framework: `accelerate`, `lightning`, `transformers`. Nothing else imports them."""
