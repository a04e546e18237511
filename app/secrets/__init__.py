"""The secrets of a database: which secret keys what, their versions, and the check values that tell a foreign one."""
