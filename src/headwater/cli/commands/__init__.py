"""One file per noun. Commands return data; `output` prints it."""
