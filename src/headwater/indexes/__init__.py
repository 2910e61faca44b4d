"""Indexes of a table: what they hold, how they are kept in step, and how they are built."""
