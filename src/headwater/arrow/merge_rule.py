"""The rule by which two records of one key become one, taken from the table's config.

Version 9 tables state the rule. Version 8 tables name a Java payload class instead, whose rule is
looked up here (format rule 7.3). A class that is not known, and a CUSTOM mode without a function
of ours, make a rule that carries its name: such a table can be read as far as nothing is merged,
and `resolve_custom` refuses the rest.

The function of a CUSTOM rule comes from whoever opens the table and never from the table's own
files: a table must not choose which code its readers run.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

import pyarrow as pa

from headwater.config.table import TableConfig
from headwater.config.table_options import MERGE_PROPERTY, MergeMode
from headwater.config.table_options import PartialUpdateMode as PartialUpdate
from headwater.errors import ErrorKind, InvalidInputError, UnsupportedError

__all__ = [
    "CustomMerge",
    "MergeMode",
    "MergeRule",
    "PartialUpdate",
    "check_meaningful",
    "check_mergeable",
    "merge_rule_of",
    "resolve_custom",
]

CustomMerge: TypeAlias = Callable[[pa.Table, pa.Table], pa.Table]
"""`merge(old, new) -> merged`, whole tables at a time.

Row i of `old` and row i of `new` have the same record key, and row i of the result replaces them.
All three tables have the same columns (meta columns first) and as many rows. The function must not
depend on how rows are gathered into calls. Log records are merged among themselves before they
meet the base file, so only an associative function makes compaction invisible.
"""

DELETE_FIELD = "hoodie.payload.delete.field"
DELETE_MARKER = "hoodie.payload.delete.marker"
UNAVAILABLE_MARKER = "hoodie.write.partial.update.unavailable.value"
_UNAVAILABLE_MARKER_OF_HUDI_RS = "partial.update.unavailable.value"
DEBEZIUM_UNAVAILABLE = "__debezium_unavailable_value"


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeRule:
    """Everything that merging needs to know of a table's config."""

    mode: MergeMode = MergeMode.COMMIT_TIME_ORDERING
    ordering_fields: tuple[str, ...] = ()
    """Columns whose larger value wins, compared left to right. COMMIT_TIME_ORDERING and CUSTOM use
    them only to reduce duplicates inside one incoming batch, where no record came later."""
    partial: PartialUpdate = PartialUpdate.NONE
    unavailable_marker: str | None = None
    """With FILL_UNAVAILABLE: the text that stands for "keep the older value"."""
    delete_field: str | None = None
    delete_marker: str | None = None
    """A record is a delete if its `delete_field`, as text, is `delete_marker`."""
    custom: str | None = None
    """With CUSTOM: `module:function`, or the Java class that this release cannot run."""

    @property
    def merges_by_ordering(self) -> bool:
        """Whether ordering values decide between records of different writes."""
        return self.mode is MergeMode.EVENT_TIME_ORDERING and bool(self.ordering_fields)

    @property
    def combines_records(self) -> bool:
        """Whether a row is made of several records of its key, and not just the one that wins."""
        return self.mode is MergeMode.CUSTOM or self.partial is not PartialUpdate.NONE

    @property
    def whatever_the_values(self) -> MergeRule:
        """A rule that leaves records of the same keys, and looks at nothing but what decides that.

        A function of the user's makes one row of two and so never removes a key, and columns that
        records lend each other do not change which of them wins.
        """
        is_custom = self.mode is MergeMode.CUSTOM
        mode = MergeMode.COMMIT_TIME_ORDERING if is_custom else self.mode
        return replace(self, mode=mode, partial=PartialUpdate.NONE, custom=None)


def merge_rule_of(config: TableConfig, *, custom: str | None = None) -> MergeRule:
    """Return the rule of a table.

    Args:
        custom: `module:function` that merges the records of a CUSTOM table; see `CustomMerge`.

    Raises:
        InvalidInputError: `custom` is given for a table whose mode is not CUSTOM.
    """
    payload = config.payload_class or config.legacy_payload_class
    known = _PAYLOADS.get(payload.rpartition(".")[2]) if payload else None
    stated = MergeRule(
        mode=config.merge_mode,
        ordering_fields=config.ordering_fields,
        partial=config.partial_update_mode,
        unavailable_marker=_merge_property(config.raw, UNAVAILABLE_MARKER)
        or _merge_property(config.raw, _UNAVAILABLE_MARKER_OF_HUDI_RS),
        delete_field=_merge_property(config.raw, DELETE_FIELD),
        delete_marker=_merge_property(config.raw, DELETE_MARKER),
    )
    if custom is not None and stated.mode is not MergeMode.CUSTOM:
        raise InvalidInputError(
            f"Table {config.name} has merge mode {stated.mode}, so it takes no merge function; "
            f"leave {custom!r} out",
        )
    if stated.mode is MergeMode.CUSTOM and custom is not None:
        return replace(stated, custom=custom)
    rule = stated if known is None else _completed(stated, known)
    if rule.mode is MergeMode.CUSTOM:
        return replace(rule, custom=payload or config.merge_strategy_id)
    if rule.partial is PartialUpdate.FILL_UNAVAILABLE and rule.unavailable_marker is None:
        return replace(rule, unavailable_marker=DEBEZIUM_UNAVAILABLE)
    return rule


def resolve_custom(name: str | None) -> CustomMerge:
    """Import the function that a CUSTOM rule names as `module:function`.

    Raises:
        UnsupportedError: kind UNSUPPORTED_OPTION; the rule names a Java class, or nothing.
        InvalidInputError: kind INVALID_OPTION; there is no such module or function.
    """
    module_name, colon, function_name = (name or "").partition(":")
    if not colon:
        raise UnsupportedError(
            f"The table's records are merged by {name or 'a custom merger'}, which cannot run "
            "here. Name a Python function as module:function that does the same, or compact the "
            "table with Apache Hudi and read its base files",
            kind=ErrorKind.UNSUPPORTED_OPTION,
        )
    try:
        function = getattr(importlib.import_module(module_name), function_name)
    except (ImportError, AttributeError) as error:
        raise InvalidInputError(
            f"The merge function {name!r} cannot be imported: {error}. Install its module where "
            "tables are read and written, executors included",
            kind=ErrorKind.INVALID_OPTION,
        ) from error
    if not callable(function):
        raise InvalidInputError(
            f"{name!r} is no function but a {type(function).__name__}",
            kind=ErrorKind.INVALID_OPTION,
        )
    return function  # type: ignore[no-any-return]


def check_mergeable(rule: MergeRule) -> None:
    """Raise unless records can be merged by the rule.

    Raises:
        UnsupportedError: kind UNSUPPORTED_OPTION; a Java class, or a combination without meaning.
        InvalidInputError: kind INVALID_OPTION; the merge function cannot be imported.
    """
    check_meaningful(rule)
    if rule.mode is MergeMode.CUSTOM:
        resolve_custom(rule.custom)


def check_meaningful(rule: MergeRule) -> None:
    """Raise if the rule says two things at once, so that nobody could merge by it.

    Raises:
        UnsupportedError: kind UNSUPPORTED_OPTION.
    """
    if rule.mode is MergeMode.CUSTOM and rule.partial is not PartialUpdate.NONE:
        raise UnsupportedError(
            f"A table with merge mode CUSTOM cannot have partial update mode {rule.partial}: its "
            "merge function alone decides about every field",
            kind=ErrorKind.UNSUPPORTED_OPTION,
        )


def _merge_property(raw: Mapping[str, str], key: str) -> str | None:
    """Return a payload setting: version 9 stores it under a prefix, version 8 as it is."""
    return raw.get(f"{MERGE_PROPERTY.prefix}{key}", raw.get(key))


def _completed(stated: MergeRule, known: MergeRule) -> MergeRule:
    """Return the stated rule, with the payload class saying whatever the table does not."""
    is_custom = stated.mode is MergeMode.CUSTOM
    return MergeRule(
        mode=known.mode if is_custom else stated.mode,
        ordering_fields=stated.ordering_fields or known.ordering_fields,
        partial=known.partial if stated.partial is PartialUpdate.NONE else stated.partial,
        unavailable_marker=stated.unavailable_marker or known.unavailable_marker,
        delete_field=stated.delete_field or known.delete_field,
        delete_marker=stated.delete_marker or known.delete_marker,
    )


_PAYLOADS: Mapping[str, MergeRule] = {
    "OverwriteWithLatestAvroPayload": MergeRule(mode=MergeMode.COMMIT_TIME_ORDERING),
    "DefaultHoodieRecordPayload": MergeRule(mode=MergeMode.EVENT_TIME_ORDERING),
    "EventTimeAvroPayload": MergeRule(mode=MergeMode.EVENT_TIME_ORDERING),
    "PartialUpdateAvroPayload": MergeRule(
        mode=MergeMode.EVENT_TIME_ORDERING, partial=PartialUpdate.IGNORE_DEFAULTS
    ),
    "OverwriteNonDefaultsWithLatestAvroPayload": MergeRule(
        mode=MergeMode.COMMIT_TIME_ORDERING, partial=PartialUpdate.IGNORE_DEFAULTS
    ),
    "PostgresDebeziumAvroPayload": MergeRule(
        mode=MergeMode.EVENT_TIME_ORDERING,
        ordering_fields=("_event_lsn",),
        partial=PartialUpdate.FILL_UNAVAILABLE,
        unavailable_marker=DEBEZIUM_UNAVAILABLE,
        delete_field="_change_operation_type",
        delete_marker="d",
    ),
    "MySqlDebeziumAvroPayload": MergeRule(
        mode=MergeMode.EVENT_TIME_ORDERING,
        ordering_fields=("_event_bin_file", "_event_pos"),
        delete_field="_change_operation_type",
        delete_marker="d",
    ),
    "AWSDmsAvroPayload": MergeRule(
        mode=MergeMode.COMMIT_TIME_ORDERING, delete_field="Op", delete_marker="D"
    ),
}
"""Format rule 7.3, by the class's simple name."""
