"""The one way to read a file slice."""
