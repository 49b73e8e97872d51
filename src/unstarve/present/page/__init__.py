"""What a browser or a notebook shows. `built/` holds the script and style that `make web` makes of web/."""
