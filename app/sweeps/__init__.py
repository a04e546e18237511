"""`/v1/sweep`: one calibration for each value of one field."""
