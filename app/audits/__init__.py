"""`/v1/audits`: what an attack finds out, stored beside what was claimed."""
