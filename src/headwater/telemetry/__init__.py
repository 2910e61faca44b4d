"""Who listens to what the product counts, traces and logs, if anybody is asked to."""
