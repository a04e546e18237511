"""`/v1/audits`: attacks on the trainer, stored with the claims that they test."""
