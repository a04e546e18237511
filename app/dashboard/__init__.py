"""The dashboard at `/`: pages for people, made of what the HTTP interface answers."""
