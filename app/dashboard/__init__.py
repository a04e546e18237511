"""The dashboard at `/`: pages for people, made from the answers of the HTTP interface."""
