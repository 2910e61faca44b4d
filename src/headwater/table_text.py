"""A table in a few lines, from its config alone: looking at one costs no round trip."""

from __future__ import annotations

from html import escape

from headwater.config.table import TableConfig


def describe(config: TableConfig, uri: str) -> str:
    """Return a table as text of five lines."""
    name, *lines = (f"{label}: {text}" for label, text in _facts(config, uri))
    return "\n".join([f"Table {name.removeprefix('name: ')}", *(f"  {line}" for line in lines)])


def describe_html(config: TableConfig, uri: str) -> str:
    """Return a table as an HTML table of the same facts."""
    rows = "".join(
        f"<tr><th style='text-align:left'>{escape(label)}</th>"
        f"<td style='text-align:left'>{escape(text)}</td></tr>"
        for label, text in _facts(config, uri)
    )
    return f"<table>{rows}</table>"


def _facts(config: TableConfig, uri: str) -> list[tuple[str, str]]:
    index = "none" if config.index_type is None else str(config.index_type).lower()
    if config.bucket_count is not None:
        index += f" of {config.bucket_count}"
    keys = [
        f"record key {_named(config.record_key_fields)}",
        f"partitioned by {_named(config.partition_columns)}",
        f"ordered by {_named(config.ordering_fields)}",
    ]
    return [
        ("name", config.name),
        ("at", uri),
        ("type", f"{config.table_type}, version {config.version}"),
        ("keys", "; ".join(keys)),
        ("index", f"{index}; metadata table: {_named(config.metadata_partitions)}"),
    ]


def _named(names: tuple[str, ...]) -> str:
    return ", ".join(names) or "nothing"
