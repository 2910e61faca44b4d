"""The command `headwater`: what people ask of a table and do to it from a shell."""
