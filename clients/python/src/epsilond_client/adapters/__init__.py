"""Adapters that describe other libraries' work to the service. Each module imports its library only when used."""
