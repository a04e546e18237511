"""What other libraries did, in the service's words. Each module imports its library when it is used."""
