"""Every metric there is, declared once; `docs/reference/metrics.md` is made of this.

`table` is where the table is, as commands take it. `outcome` is `ok`, or the family of the error's
kind: `conflict`, `fenced`, `commit_unknown`, `storage` and so on. All numbers are of one process,
and are summed over processes by whoever collects them. What tasks do in other processes, as on
Spark, is counted by the process that commits it.
"""

from __future__ import annotations

from headwater.seams.meters import BYTES, SECONDS, Counter, Gauge, Histogram, Metric

# Writes.

COMMITS = Counter(
    "headwater.commits",
    "{commit}",
    "Tries to commit a write. One that lost and was redone tried more than once.",
    ("table", "operation", "mode", "outcome"),
)
WRITE_DURATION = Histogram(
    "headwater.write.duration",
    SECONDS,
    "Time of a write from its request to its commit, redone parts included.",
    ("table", "operation", "outcome"),
)
ROWS = Counter(
    "headwater.rows",
    "{row}",
    "Rows in what was committed: inserted, updated and deleted by writes, copied by rewrites.",
    ("table", "operation"),
)
WRITTEN = Counter(
    "headwater.written",
    BYTES,
    "Bytes of the data files that were committed.",
    ("table", "operation"),
)
CONFLICTS = Counter(
    "headwater.conflicts",
    "{conflict}",
    "Times that a write lost. Strategy: `commit` at its commit, `lock` if it did not get the lock "
    "in time, else the strategy of early detection.",
    ("table", "mode", "strategy"),
)
REDONE_FILES = Counter(
    "headwater.redone.files",
    "{file}",
    "Files of file groups that were written in vain, because the write lost or failed.",
    ("table",),
)
REDONE_ROWS = Counter("headwater.redone.rows", "{row}", "Rows of these files.", ("table",))

# The table lock.

LOCK_WAIT = Histogram(
    "headwater.lock.wait",
    SECONDS,
    "Time until the table lock was taken, or given up.",
    ("table", "outcome"),
)
LOCK_HOLD = Histogram(
    "headwater.lock.hold",
    SECONDS,
    "Time that the table lock was held by this process.",
    ("table", "outcome"),
)

# Plans and attempts.

PLANS = Counter(
    "headwater.plans",
    "{plan}",
    "What became of plans: `scheduled`, `completed`, `cancelled`, `aborted`, `rolled_back`.",
    ("table", "action", "event"),
)
PENDING = Gauge(
    "headwater.pending",
    "{instant}",
    "Instants that had begun and not ended when this process last read the timeline.",
    ("table", "action"),
)
PENDING_AGE = Gauge(
    "headwater.pending.age",
    SECONDS,
    "Age of the oldest of them; 0 if there is none.",
    ("table", "action"),
)
TAKEN_OVER = Counter(
    "headwater.attempts.taken_over",
    "{attempt}",
    "Executions of plans that this process took over from one that had died.",
    ("table",),
)
LAPSED = Counter(
    "headwater.heartbeats.lapsed",
    "{heartbeat}",
    "Heartbeats of this process that stood still for too long.",
    ("table",),
)
FENCED = Counter(
    "headwater.attempts.fenced",
    "{attempt}",
    "Transactions refused because another process took over, by kind of error.",
    ("table", "kind"),
)
ROLLBACKS = Counter(
    "headwater.rollbacks",
    "{rollback}",
    "Writes and removable plans that were rolled back. Cause: `dead` process, `own` failure, or "
    "`resumed` for a rollback that another process had begun.",
    ("table", "cause"),
)

# Services.

SERVICE_DURATION = Histogram(
    "headwater.service.duration",
    SECONDS,
    "Time that a service took.",
    ("table", "service", "outcome"),
)
INDEX_LAG = Gauge(
    "headwater.index.lag",
    "{instant}",
    "Instants that an index build of this process has still to take in, or waits for.",
    ("table",),
)

# Storage.

STORAGE_REQUESTS = Counter(
    "headwater.storage.requests",
    "{request}",
    "Requests to storage. Outcome: `ok`, `absent`, `exists`, `changed`, or the kind of the error.",
    ("store", "request", "outcome"),
)
STORAGE_DURATION = Histogram(
    "headwater.storage.duration",
    SECONDS,
    "Time of a request, its retries included.",
    ("store", "request"),
)
STORAGE_RETRIES = Counter(
    "headwater.storage.retries",
    "{request}",
    "Requests made again: `cut_off` answers, `undecided` writes, and `unsettled` writes of the "
    "timeline. What the client of the store repeats by itself is not seen.",
    ("store", "request", "reason"),
)

METRICS: tuple[Metric, ...] = tuple(
    value for value in list(globals().values()) if isinstance(value, Metric)
)
