"""Records of a topic of Kafka, whose values are JSON objects.

Where to go on is in the notes: for each partition the offset after the last that was taken. Records
before it are left out, whoever brings them again.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from headwater.ingest.bad_rows import BadRows
from headwater.ingest.checkpoint import Note
from headwater.ingest.formats.json_rows import parse_lines
from headwater.ingest.formats.reading import Reading
from headwater.ingest.job import KafkaSource
from headwater.ingest.rows import SourceRows
from headwater.ingest.source import check_same_source

_KIND = "kafka"
_EARLIEST = -2
"""What Spark takes for the oldest offset that there is."""

Offsets = Mapping[int, int]
"""By partition the offset after the last that was taken."""


@dataclass(frozen=True, slots=True)
class KafkaTopic:
    """A topic that is being read."""

    source: KafkaSource
    columns: pa.Schema
    zone: str = "UTC"

    @property
    def warnings(self) -> Sequence[str]:
        return ()

    def load_schema(self) -> pa.Schema:
        return self.columns

    def next_batch(self, notes: Iterator[Note]) -> KafkaBatch | None:
        from headwater.spark.kafka_stream import first_batch

        taken = self._offsets(next(notes, None))
        found = first_batch(self._stream(taken))
        if found is None:
            return None
        records = records_after(found, taken)
        return KafkaBatch(self, records, taken) if records.num_rows else None

    def _offsets(self, note: Note | None) -> Offsets:
        if note is None:
            return {}
        check_same_source(note, _KIND, self.place)
        return {int(partition): offset for partition, offset in note.value("offsets").items()}

    @property
    def place(self) -> str:
        return f"{self.source.topic} at {self.source.servers}"

    def _stream(self, taken: Offsets) -> Any:
        from headwater.spark.kafka_stream import kafka_session, open_stream

        source = self.source
        options = {
            "subscribe": source.topic,
            "kafka.bootstrap.servers": source.servers,
            **source.options,
        }
        starting = starting_offsets(source.topic, taken, source.partitions)
        return open_stream(kafka_session(), options, source.records_max, starting)


@dataclass(frozen=True, slots=True)
class KafkaBatch:
    """Records that go into one commit."""

    topic: KafkaTopic
    records: pa.Table
    before: Offsets

    @property
    def summary(self) -> str:
        return f"{self.records.num_rows} records of {self.topic.source.topic}"

    @property
    def schema(self) -> pa.Schema:
        return self.topic.columns

    @property
    def offsets(self) -> Offsets:
        """Where each partition stands after the batch."""
        groups = self.records.group_by("partition").aggregate([("offset", "max")])
        numbers = groups["partition"].to_pylist(), groups["offset_max"].to_pylist()
        return {**self.before, **{p: last + 1 for p, last in zip(*numbers, strict=True)}}

    @property
    def content(self) -> Mapping[str, Any]:
        offsets = {str(partition): offset for partition, offset in self.offsets.items()}
        return {"kind": _KIND, "place": self.topic.place, "offsets": offsets}

    def read(self, bad: BadRows) -> Iterator[SourceRows]:
        for partition in sorted(set(self.records["partition"].to_pylist())):
            part = self.records.filter(pc.equal(self.records["partition"], partition))
            reading = Reading(
                origin=f"{self.topic.source.topic}/{partition}",
                columns=self.topic.columns,
                bad=bad,
                zone=self.topic.zone,
            )
            for some in part.combine_chunks().to_batches():
                # One without a value means a delete to some; as no object it is bad.
                lines = pc.fill_null(some.column("value"), b"null")
                yield from parse_lines(lines, some.column("offset"), reading)

    def is_unchanged(self) -> bool:
        return True  # An offset means the same record for ever.

    def is_overtaken(self) -> bool:
        return False


def records_after(records: pa.Table, taken: Offsets) -> pa.Table:
    """Return the records that were not taken."""
    for partition, offset in taken.items():
        is_taken = pc.and_(
            pc.equal(records["partition"], partition), pc.less(records["offset"], offset)
        )
        records = records.filter(pc.invert(is_taken))
    return records


def starting_offsets(topic: str, taken: Offsets, partitions: int) -> str:
    """Return where to begin, as Spark takes it: it wants all partitions, or none.

    Args:
        partitions: how many there are at least; those that were not read begin at the beginning.
    """
    if not taken:
        return "earliest"
    known = dict.fromkeys(range(partitions), _EARLIEST) | dict(taken)
    return json.dumps({topic: {str(partition): known[partition] for partition in sorted(known)}})
