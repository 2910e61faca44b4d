"""What every kind of error means and what to do about it: `headwater explain`, and a page of docs.

An error itself says what happened to which table, instant or file. This is the general part.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from headwater.errors import ErrorKind


class Explanation(NamedTuple):
    cause: str
    remedy: str


EXPLANATIONS: Mapping[ErrorKind, Explanation] = {
    ErrorKind.CONFLICT: Explanation(
        "Other work came first. Nothing of this call was committed.",
        "Call again. If it happens often, see the guide to many writers.",
    ),
    ErrorKind.WRITE_CONFLICT: Explanation(
        "Another write to the same file groups, or a table service, committed first, and all tries "
        "are used up.",
        "Write the batch again, or raise `hoodie.write.num.retries.on.conflict.failures`; with a "
        "bucket index, non-blocking control has no such conflicts.",
    ),
    ErrorKind.EARLY_CONFLICT: Explanation(
        "A live writer that began first has announced files of the same file group. This write "
        "stopped before it wrote them.",
        "Write the batch again when the other one has ended; by default that is done for you.",
    ),
    ErrorKind.KEYS_NOT_COMPARED: Explanation(
        "Others committed more new keys while this write was about to commit than can be compared "
        "under the lock.",
        "Nothing: the write compares them and commits again. If it reaches you, call again.",
    ),
    ErrorKind.COLUMNS_CHANGED: Explanation(
        "The table's columns changed while an update, delete or merge began.",
        "Run the statement again.",
    ),
    ErrorKind.ALREADY_RUNNING: Explanation(
        "Another live process executes the same plan or rollback.",
        "Leave it to that process; `headwater heartbeat list` shows which it is. If it dies, the "
        "next call takes over.",
    ),
    ErrorKind.LOCK_TIMEOUT: Explanation(
        "The table lock was not free within `hoodie.write.lock.wait_time_ms`, and its holder did "
        "not change.",
        "`headwater lock show` names the holder. Wait for a live one; the lock of a dead one "
        "expires, or `headwater lock break` removes it.",
    ),
    ErrorKind.LIVE_WRITER: Explanation(
        "A second writer came to a table without concurrency control.",
        "Set `hoodie.write.concurrency.mode` in all writers, or let one wait for the other.",
    ),
    ErrorKind.FOREIGN_WRITER: Explanation(
        "Another engine writes to a table that is fenced, and knows nothing of its journal; or it "
        "writes while commits are to be taken back, and would bring rows of them back.",
        "Let that job end; `headwater service rollback` takes away what a dead one left. If both "
        "are to write at once, or the message says that they did: `headwater table upgrade "
        "--no-fenced`, with a lock that both know.",
    ),
    ErrorKind.TABLE_SWITCHED: Explanation(
        "`headwater table upgrade --fenced` or `--no-fenced` changed the table while this process "
        "had it open, or died on its way.",
        "Open the table again; if that does not help, run the switch again.",
    ),
    ErrorKind.PLAN_CANCELLED: Explanation(
        "The clustering gave way to a write, and somebody else is ending it.",
        "Nothing: plan another one later. `headwater conflict list` shows which write it was.",
    ),
    ErrorKind.PLAN_TOO_YOUNG: Explanation(
        "A removable plan that nobody executes was to be rolled back, but may still be executed.",
        "Try again later, or execute it.",
    ),
    ErrorKind.PLAN_NOT_EXECUTABLE: Explanation(
        "The plan can only be taken back: it is removable and failed once, or a rollback or "
        "restore of it has begun.",
        "`headwater service clean` finishes that; then make a new plan.",
    ),
    ErrorKind.INDEXES_CHANGED: Explanation(
        "An index came or went while the commit was prepared.",
        "Nothing: the commit is prepared again. If it reaches you, call again.",
    ),
    ErrorKind.INDEX_UNCOVERED: Explanation(
        "Commits that did not write to the index completed while it was being built.",
        "Run the build again (`headwater index run`); it catches up with them.",
    ),
    ErrorKind.INDEX_TIMEOUT: Explanation(
        "Writers that began before the index was announced did not end in time; the build was "
        "aborted.",
        "Create the index again when they have ended, or raise "
        "`hoodie.metadata.index.check.timeout.seconds`.",
    ),
    ErrorKind.INDEX_OUTDATED: Explanation(
        "A rollback or restore may have taken back what the index was built on.",
        "Build it again.",
    ),
    ErrorKind.FENCED: Explanation(
        "Another process took over what this one was doing, because it seemed dead.",
        "Run the job again. Nothing of this attempt is visible.",
    ),
    ErrorKind.LOCK_LOST: Explanation(
        "The lease of the table lock ran out, or somebody broke the lock, while it was held.",
        "Run the job again; if machines stall for that long, use a longer lease.",
    ),
    ErrorKind.HEARTBEAT_LAPSED: Explanation(
        "This process showed no sign of life for so long that others may take it for dead.",
        "Run the job again; raise `hoodie.client.heartbeat.interval_in_ms` if machines stall.",
    ),
    ErrorKind.ATTEMPT_SUPERSEDED: Explanation(
        "A later attempt of the same instant has begun elsewhere.",
        "Stop; the other attempt goes on.",
    ),
    ErrorKind.COMMIT_UNKNOWN: Explanation(
        "Storage did not answer the request that makes a commit visible.",
        "`headwater table history` shows whether it is there; then write again, or not.",
    ),
    ErrorKind.NOT_FOUND: Explanation(
        "Something that was named is not there.", "Look at the name in the message."
    ),
    ErrorKind.NOT_A_TABLE: Explanation(
        "There is no `.hoodie/hoodie.properties` at that place.",
        "Check the path and the credentials; create a table with `headwater table create`.",
    ),
    ErrorKind.INSTANT_NOT_FOUND: Explanation(
        "The instant is not on the active timeline: mistyped, archived or rolled back.",
        "`headwater timeline show` and `headwater table history` list what there is.",
    ),
    ErrorKind.BEFORE_FIRST_INSTANT: Explanation(
        "The table was to be read as of a time before its first commit.",
        "Ask for the time that the message names, or a later one.",
    ),
    ErrorKind.OUTSIDE_RETENTION: Explanation(
        "Cleaning has deleted files that a read as of that time needs.",
        "Ask for a later time. To read further back in future, raise "
        "`hoodie.clean.commits.retained` or create savepoints.",
    ),
    ErrorKind.SCHEMA_NOT_FOUND: Explanation(
        "The table does not say what its columns are, and nothing was written to it yet.",
        "Write to it, or create it with a schema.",
    ),
    ErrorKind.INDEX_NOT_FOUND: Explanation(
        "The table has no such index.", "`headwater index list` shows those that it has."
    ),
    ErrorKind.ALREADY_EXISTS: Explanation(
        "Something of that name is there already.", "Choose another name, or use what is there."
    ),
    ErrorKind.TABLE_EXISTS: Explanation(
        "There is a table at that place.", "Open it, or `headwater table drop` it first."
    ),
    ErrorKind.INDEX_EXISTS: Explanation(
        "The table has the index, or a plan for it.",
        "`headwater index list`; run or cancel the plan, or drop the index first.",
    ),
    ErrorKind.INVALID_INPUT: Explanation(
        "An argument, a row or a schema does not fit.", "The message says which, and what would."
    ),
    ErrorKind.KEYS_EXIST: Explanation(
        "An insert brought keys that the table already has, and "
        "`hoodie.datasource.insert.dup.policy` says to fail then.",
        "Upsert the rows, or set the policy to `drop`.",
    ),
    ErrorKind.INVALID_OPTION: Explanation(
        "An option is unknown, malformed or contradicts another one; all of them are listed.",
        "Correct them; the reference of options has every key.",
    ),
    ErrorKind.INVALID_INSTANT_TIME: Explanation(
        "The text is not an instant time.",
        "Instant times are 17 digits, as `headwater timeline show` prints them.",
    ),
    ErrorKind.INVALID_STATE: Explanation(
        "The instant is not in a state in which that can be done to it.",
        "`headwater timeline show` says its state.",
    ),
    ErrorKind.NOT_CANCELLABLE: Explanation(
        "Only a clustering that was planned as cancellable can be cancelled.",
        "Let it finish: `headwater service cluster --instant`.",
    ),
    ErrorKind.NOT_CANCELLED: Explanation(
        "A plan that nobody cancelled was to be aborted.", "`headwater plan cancel` first."
    ),
    ErrorKind.INVALID_INDEX: Explanation(
        "An index cannot have those columns, or that name.",
        "The message names the columns that can have it.",
    ),
    ErrorKind.NO_LOCK_PROVIDER: Explanation(
        "Indexes are built beside writers, and no lock was chosen that all of them share.",
        "Set `hoodie.write.lock.provider` here and in every writer.",
    ),
    ErrorKind.CLOCK_AHEAD: Explanation(
        "The clock of this machine is far ahead of the store's, and instant times only grow.",
        "Set the clock (NTP) and run the job again; `headwater doctor` compares them.",
    ),
    ErrorKind.UNSUPPORTED: Explanation(
        "This release cannot do that, and says so instead of doing something else.",
        "The message says what it can do.",
    ),
    ErrorKind.UNSUPPORTED_TABLE_VERSION: Explanation(
        "This release reads tables of versions 6, 8 and 9, and writes to those of version 9 only.",
        "`headwater table upgrade` makes 9 of 6 and 8; older ones take Apache Hudi 0.14 first.",
    ),
    ErrorKind.UNSUPPORTED_OPTION: Explanation(
        "The option exists in Apache Hudi and would change what happens, but is not implemented.",
        "Leave it out if you can do without; the message says what to use instead.",
    ),
    ErrorKind.UNSUPPORTED_FILE_VERSION: Explanation(
        "A newer release wrote one of Headwater's own files.", "Use that release, or a later one."
    ),
    ErrorKind.CORRUPT: Explanation(
        "Bytes in storage are not what the format says.",
        "`headwater fsck --deep` shows all that is wrong, and what can be done about it.",
    ),
    ErrorKind.CORRUPT_PROPERTIES: Explanation(
        "`.hoodie/hoodie.properties` is damaged.",
        "A table with a journal has it: `headwater fsck --repair`. Otherwise copy "
        "`hoodie.properties.backup` over it if it is there, or a copy of your own.",
    ),
    ErrorKind.CORRUPT_CHECKSUM: Explanation(
        "A checksum does not match its bytes.", "Bring the file back from a copy."
    ),
    ErrorKind.CORRUPT_AVRO: Explanation(
        "A file of the timeline is not valid Avro.", "Bring the file back from a copy."
    ),
    ErrorKind.CORRUPT_TIMELINE: Explanation(
        "The timeline contradicts itself, or an archived part of it is unreadable.",
        "`headwater fsck` names the files; bring them back from a copy.",
    ),
    ErrorKind.CORRUPT_JOURNAL: Explanation(
        "A slot or checkpoint of the journal is damaged or does not follow the one before.",
        "Bring it back from a copy; the files on the timeline are whole without it.",
    ),
    ErrorKind.CORRUPT_LOG: Explanation(
        "A log file is damaged or was cut off.",
        "Bring it back from a copy, or restore to a savepoint before it.",
    ),
    ErrorKind.CORRUPT_BASE_FILE: Explanation(
        "A base file is not valid Parquet, or one of its checksums does not match.",
        "Bring it back from a copy, or restore to a savepoint before it.",
    ),
    ErrorKind.CORRUPT_FILE_GROUP: Explanation(
        "The files of a file group do not fit together.",
        "`headwater fsck` says which; bring back what is missing from a copy.",
    ),
    ErrorKind.MISSING_DATA_FILE: Explanation(
        "A commit lists a file that is not there.",
        "Bring it back from a copy, or restore to a savepoint before it.",
    ),
    ErrorKind.CORRUPT_MARKERS: Explanation(
        "The markers of a write cannot be read.",
        "`headwater fsck` names them; if their writer is dead, its rollback takes them away.",
    ),
    ErrorKind.CORRUPT_METADATA_TABLE: Explanation(
        "A file of the metadata table is damaged or missing. The data itself is not affected.",
        "`headwater fsck --repair` builds the indexes again.",
    ),
    ErrorKind.STORAGE: Explanation(
        "The store failed or did not answer.",
        "Call again; if that does not help, `headwater doctor PATH` tries the store.",
    ),
    ErrorKind.STORAGE_DENIED: Explanation(
        "The store refused the credentials, or the folder may not be written to.",
        "Check credentials and permissions; `headwater doctor PATH` tries them.",
    ),
    ErrorKind.STORAGE_FULL: Explanation(
        "The disk is full, a quota is used up, or no more files may be opened. Nothing of the "
        "write is visible, and no lock is left behind for this process.",
        "Free some space or raise the limit, then run the job again; `headwater service clean` "
        "deletes files that nobody needs.",
    ),
    ErrorKind.LIMIT_REACHED: Explanation(
        "A file is larger, deeper or stands for more than a limit allows, which the message names "
        "with its option. No table of people has such files; damaged and hostile ones do.",
        "Look at the file. If it is as it should be, open the table with a larger limit.",
    ),
    ErrorKind.BAD_ROWS: Explanation(
        "More rows of a batch of `headwater ingest` are bad than the job allows. Nothing of the "
        "batch was written, and the job stands where it stood.",
        "The message has the first of them. Mend the source, or raise `limit_rows` or "
        "`limit_share` of the job's `[quarantine]`, and start the job again.",
    ),
    ErrorKind.STORAGE_BROKEN: Explanation(
        "The disk, or what leads to it, fails. Nothing half done is visible.",
        "See the log of the system. Once the disk works, run the job again, and look for damage "
        "with `headwater fsck --deep`.",
    ),
    ErrorKind.MARKER_SERVICE: Explanation(
        "A task could not reach the marker service in the driver, or the service could not store "
        "markers.",
        "If the driver is gone, write again; otherwise let executors reach its port, or use "
        "`hoodie.write.markers.type=DIRECT`.",
    ),
    ErrorKind.INTERNAL: Explanation(
        "A bug in Headwater.", "Please report it, with the message and the stack trace."
    ),
}
