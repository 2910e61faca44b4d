"""Clustering: small files put together, and rows in an order that lets filters leave files out.

It writes new file groups and replaces the old ones; it deletes nothing, clean does. A plan closes
its file groups: a write that completes on one of them meanwhile fails, as if they were replaced
already (INV-64), or cancels the plan if the plan says that it is cancellable. See `rewrite` for
what a crash leaves behind.

In a table with a bucket index a record's key names its bucket, and each bucket has one file group.
There every file group is clustered by itself: its logs are merged and its rows sorted, and the new
group has the same bucket. All other tables also get their files put together by size.
"""
