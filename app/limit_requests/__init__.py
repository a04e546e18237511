"""Requests for another limit of a budget: an analyst asks, owners decide."""
