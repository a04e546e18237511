"""How the OpenAPI document is made. The service serves the committed file."""
