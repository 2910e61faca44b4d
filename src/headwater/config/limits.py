"""How much is made of bytes and texts that somebody else wrote, before they are refused.

A few bytes can stand for endless work: schemas that double, filters of a billion hashes, streams of
zeros. What a parser meets is counted first, against limits far above what tables have. The error
names the limit and the option that raises it.

A limit holds for a process: parsers are functions of bytes and know no table. Where a table is
opened with an option, in tasks too, the limit is raised for good. Nothing lowers one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from headwater.config.option import Option, integer
from headwater.config.option_config import OptionConfig, option_fields, setting
from headwater.errors import ErrorKind, UnsupportedError

DEPTH = Option(
    "headwater.limit.depth",
    integer(minimum=1),
    default=128,
    doc="Levels of a schema in Avro's JSON or in the footer of a Parquet file. Python's own stack "
    "ends some hundred levels deeper.",
)
SCHEMA_VALUES = Option(
    "headwater.limit.schema.values",
    integer(minimum=1),
    default=100_000,
    doc="Values that one record of an Avro schema stands for, outside of arrays and maps.",
)
FIXED_BYTES = Option(
    "headwater.limit.fixed.bytes",
    integer(minimum=1),
    default=1024 * 1024,
    doc="Bytes of a fixed type of Avro: every null of it takes as many in memory.",
)
BLOOM_HASHES = Option(
    "headwater.limit.bloom.hashes",
    integer(minimum=1),
    default=1_024,
    doc="Hashes of a bloom filter. One false positive in 10^300 takes less.",
)
BLOCK_BYTES = Option(
    "headwater.limit.block.bytes",
    integer(minimum=1),
    default=256 * 1024 * 1024,
    doc="Bytes of one unpacked block of an HFile of the metadata table.",
)
ROW_GROUP_ROWS = Option(
    "headwater.limit.row_group.rows",
    integer(minimum=1),
    default=1_000_000_000,
    doc="Rows of one row group of a Parquet file. Values that repeat take no room in a file, and "
    "all of it in memory.",
)
OBJECT_BYTES = Option(
    "headwater.limit.object.bytes",
    integer(minimum=1),
    default=1024 * 1024 * 1024,
    doc="Bytes of a file that is parsed as a whole: properties, instants of the timeline, "
    "manifests, markers, locks, definitions of indexes.",
)
EXPRESSION_BRACKETS = Option(
    "headwater.limit.expression.brackets",
    integer(minimum=1),
    default=200,
    doc="Brackets that are open at once in a condition or an expression.",
)
EXPRESSION_LEVELS = Option(
    "headwater.limit.expression.levels",
    integer(minimum=1),
    default=120,
    doc="Operators and functions inside of each other in a condition or an expression; a chain of "
    "AND or of OR is one.",
)
EXPRESSION_OPERATIONS = Option(
    "headwater.limit.expression.operations",
    integer(minimum=1),
    default=100_000,
    doc="Operators and functions that a condition or an expression stands for: BETWEEN and CASE "
    "look at a value more than once, and inside of each other they multiply.",
)
EXPRESSION_CHARACTERS = Option(
    "headwater.limit.expression.characters",
    integer(minimum=1),
    default=10_000_000,
    doc="Characters of a condition or an expression.",
)
NUMBER_DIGITS = Option(
    "headwater.limit.number.digits",
    integer(minimum=1),
    default=1_000,
    doc="Digits of a number in a condition or an expression; to read one takes their square.",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitConfig(OptionConfig):
    depth: int = setting(DEPTH)
    schema_values: int = setting(SCHEMA_VALUES)
    fixed_bytes: int = setting(FIXED_BYTES)
    bloom_hashes: int = setting(BLOOM_HASHES)
    block_bytes: int = setting(BLOCK_BYTES)
    row_group_rows: int = setting(ROW_GROUP_ROWS)
    object_bytes: int = setting(OBJECT_BYTES)
    expression_brackets: int = setting(EXPRESSION_BRACKETS)
    expression_levels: int = setting(EXPRESSION_LEVELS)
    expression_operations: int = setting(EXPRESSION_OPERATIONS)
    expression_characters: int = setting(EXPRESSION_CHARACTERS)
    number_digits: int = setting(NUMBER_DIGITS)


_raised: dict[str, int] = {}
"""Limits of this process that are not the default, by the key of their option."""


@dataclass(frozen=True, slots=True)
class Limit:
    """A limit under the name that errors have for it."""

    name: str
    option: Option[int, int]

    @property
    def value(self) -> int:
        return _raised.get(self.option.key, self.option.default)

    def __str__(self) -> str:
        return f"{self.name}, {self.value}; the option {self.option.key} raises it"

    def check(self, count: int, what: str, *, path: str | None = None) -> None:
        """Check that there are no more than the limit of what is named.

        Raises:
            UnsupportedError: kind LIMIT_REACHED.
        """
        if count > self.value:
            raise UnsupportedError(
                f"{what}: {count}, more than {self}", kind=ErrorKind.LIMIT_REACHED, path=path
            )


DEPTH_MAX = Limit("DEPTH_MAX", DEPTH)
VALUES_MAX = Limit("VALUES_MAX", SCHEMA_VALUES)
FIXED_BYTES_MAX = Limit("FIXED_BYTES_MAX", FIXED_BYTES)
HASHES_MAX = Limit("HASHES_MAX", BLOOM_HASHES)
BLOCK_BYTES_MAX = Limit("BLOCK_BYTES_MAX", BLOCK_BYTES)
ROWS_MAX = Limit("ROWS_MAX", ROW_GROUP_ROWS)
OBJECT_BYTES_MAX = Limit("OBJECT_BYTES_MAX", OBJECT_BYTES)
BRACKETS_MAX = Limit("BRACKETS_MAX", EXPRESSION_BRACKETS)
LEVELS_MAX = Limit("LEVELS_MAX", EXPRESSION_LEVELS)
OPERATIONS_MAX = Limit("OPERATIONS_MAX", EXPRESSION_OPERATIONS)
CHARACTERS_MAX = Limit("CHARACTERS_MAX", EXPRESSION_CHARACTERS)
DIGITS_MAX = Limit("DIGITS_MAX", NUMBER_DIGITS)


def check_object_bytes(data: bytes, path: str | None = None) -> None:
    """Check that a file may be parsed as a whole.

    Raises:
        UnsupportedError: kind LIMIT_REACHED.
    """
    OBJECT_BYTES_MAX.check(len(data), f"Bytes of {path or 'a small file'}", path=path)


def raise_limits(options: Mapping[str, str]) -> None:
    """Raise the limits of this process to what options say.

    Raises:
        InvalidInputError: kind INVALID_OPTION, naming every malformed option.
    """
    given = LimitConfig.from_options(options)
    for name, option in option_fields(LimitConfig).items():
        value = getattr(given, name)
        if value > _raised.get(option.key, option.default):
            _raised[option.key] = value


def memory_reached(path: str, error: MemoryError) -> UnsupportedError:
    """Return what to raise where a file takes more memory to decode than there is."""
    return UnsupportedError(
        f"To decode {path} takes more memory than this process may have: {error}. Give it more. If "
        "the file is small it may be damaged: run headwater fsck",
        kind=ErrorKind.LIMIT_REACHED,
        path=path,
    )
