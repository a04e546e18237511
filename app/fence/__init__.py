"""The fence: what the database has acknowledged, kept outside of it, so that an older copy of it is noticed."""
