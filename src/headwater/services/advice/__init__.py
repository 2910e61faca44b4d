"""What a table needs next, and why.

statistics   what is known of a table, as one value
load         gathers it, without reading a row
overlap      how many files a value lies in, by the bounds of a column in each
settings     how services are configured, and what advice may be about
worth        what a file, a name or a commit counts in bytes, so that advice can be ranked
costs        what file slices cost who reads them, and who writes them anew
rewrites     what compaction and log compaction would bring
clusterings  what clustering would
decide       the decision: statistics in, advice out
"""
