"""What a table needs next, and why.

statistics   what is known of a table, as one value
load         gathers it, without reading a row
overlap      how many files a value lies in, by the bounds of a column in each
worth        what a file, a name or a commit counts in bytes, so that advice can be ranked
rewrites     what compaction, log compaction and clustering would bring
decide       the decision: statistics in, advice out
"""
