"""Floor 4: the service. HTTP, SQL, worker processes; one folder per resource."""
