"""The OpenAPI document: how it is made. What is served is the committed file that is made so."""
