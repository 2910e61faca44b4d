"""Tables of version 6, made of tables of version 9: what Hudi 0.14 would have left."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from headwater.config.older_versions import KEY_GENERATOR_CLASS
from headwater.format.properties import encode_properties, parse_properties
from headwater.format.timeline.records import decode_record
from headwater.format.timeline.schemas import RECORD_SCHEMAS, python_name
from headwater.kernel.timeline.names import parse_file_name
from headwater.model.commit_metadata import CommitMetadata, ReplaceCommitMetadata
from headwater.model.files import BaseFile, FileGroupId, LogFile, parse_data_file
from headwater.model.instant import Action, InstantTime, State

_COMMITS = (Action.COMMIT, Action.DELTA_COMMIT, Action.REPLACE_COMMIT)
_LATER = (
    "hoodie.record.merge.mode",
    "hoodie.record.merge.strategy.id",
    "hoodie.table.initial.version",
    "hoodie.timeline.path",
    "hoodie.timeline.history.path",
    "hoodie.table.format",
    "hoodie.table.metadata.partitions",
    "hoodie.index.type",
    "hoodie.bucket.index.num.buckets",
)


def make_version_six(folder: Path) -> None:
    """Turn a table of version 9, without archived instants, into one of version 6.

    Its instants become files of layout 1 without completion times, its commit metadata JSON; the
    names of its logs get the times of the base files below them.
    """
    renamed = _rename_logs(folder)
    hoodie = folder / ".hoodie"
    for path in (hoodie / "timeline").iterdir():
        file = parse_file_name(path.name) if path.is_file() else None
        if file is None:
            continue
        suffix = path.name.partition(".")[2].replace("clustering.", "replacecommit.")
        data = path.read_bytes()
        if file.state is State.COMPLETED and file.action in _COMMITS:
            is_replace = file.action is Action.REPLACE_COMMIT
            record = ReplaceCommitMetadata if is_replace else CommitMetadata
            metadata = decode_record(record, data, path=str(path))
            text = json.dumps(_as_json(metadata, RECORD_SCHEMAS[record]))
            for old, new in renamed.items():
                text = text.replace(old, new)
            data = text.encode()
        (hoodie / f"{file.requested_time}.{suffix}").write_bytes(data)
    for gone in ("timeline", "metadata", ".attempts", ".heartbeat", ".index_defs"):
        shutil.rmtree(hoodie / gone, ignore_errors=True)
    _write_properties(hoodie / "hoodie.properties")


def _rename_logs(folder: Path) -> dict[str, str]:
    """Give logs the times of their base files; return old names with new ones."""
    groups: dict[FileGroupId, list[BaseFile | LogFile]] = {}
    for path in folder.rglob("*.*"):
        relative = path.relative_to(folder).as_posix()
        file = None if relative.startswith(".hoodie/") else parse_data_file(relative)
        if file is not None:
            groups.setdefault(file.group, []).append(file)
    renamed = {}
    for files in groups.values():
        bases = sorted(file.instant_time for file in files if isinstance(file, BaseFile))
        logs = sorted(
            (file for file in files if isinstance(file, LogFile)),
            key=lambda log: (log.instant_time, log.version),
        )
        versions: dict[InstantTime, int] = {}
        for log in logs:
            below = [time for time in bases if time < log.instant_time]
            time = below[-1] if below else logs[0].instant_time
            versions[time] = versions.get(time, 0) + 1
            new = log._replace(instant_time=time, version=versions[time])
            (folder / log.path).rename(folder / new.path)
            renamed[log.name] = new.name
    return renamed


def _write_properties(path: Path) -> None:
    properties = dict(parse_properties(path.read_bytes(), path=str(path)))
    for key in _LATER:
        properties.pop(key, None)
    kind = properties.pop("hoodie.table.keygenerator.type")
    names = {"NON_PARTITION": "Nonpartitioned", "SIMPLE": "Simple", "COMPLEX": "Complex"}
    properties[KEY_GENERATOR_CLASS] = f"org.apache.hudi.keygen.{names[kind]}KeyGenerator"
    ordering = properties.pop("hoodie.table.ordering.fields", None)
    payload = "OverwriteWithLatestAvroPayload"
    if ordering is not None:
        properties["hoodie.table.precombine.field"] = ordering
        payload = "DefaultHoodieRecordPayload"
    properties["hoodie.compaction.payload.class"] = f"org.apache.hudi.common.model.{payload}"
    properties["hoodie.table.version"] = "6"
    properties["hoodie.timeline.layout.version"] = "1"
    path.write_bytes(encode_properties(properties, comment="by Hudi 0.14"))


def _as_json(value: Any, schema: Any) -> Any:
    """Return a record as the JSON of version 6 spells it."""
    if isinstance(schema, list):
        if value is None:
            return None
        schema = next(branch for branch in schema if branch != "null")
    if not isinstance(schema, dict):
        return value
    match schema["type"]:
        case "record":
            return {
                field["name"]: _as_json(getattr(value, python_name(field["name"])), field["type"])
                for field in schema["fields"]
            }
        case "array":
            return [_as_json(item, schema["items"]) for item in value]
        case "map":
            assert isinstance(value, Mapping)
            return {key: _as_json(item, schema["values"]) for key, item in value.items()}
        case _:
            return value
