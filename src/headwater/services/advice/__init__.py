"""What a table needs next, and why.

    statistics     what is known of a table, as one value
    load           gathers it, without reading a row
    column_bounds  what is known of the columns that rows are to be sorted by
    overlap        how many files a value lies in, by the bounds of a column in each
    settings       how services are configured, and what advice may be about
    worth          what a file, a name or a commit counts in bytes
    costs          what file slices cost who reads them, and who writes them anew
    rewrites       what compaction and log compaction would bring
    clusterings    what clustering would

All of it comes together in `decide`: statistics in, advice out.
"""
