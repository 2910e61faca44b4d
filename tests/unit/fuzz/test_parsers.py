"""Whatever bytes a parser is given, it returns, or raises an error of ours, in little time.

Contents that are whole are changed: bits fall over, bytes are cut off, doubled, and replaced by
those that often break things. The seed is fixed, so a failure comes again.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from contextlib import suppress

import pytest
from tests.support.coverage_fuzz import corpus_of
from tests.support.parsers import PARSERS, TYPED_ERRORS, Parser

SHORT = 150
LONG = int(os.environ.get("HEADWATER_FUZZ_INPUTS", "2000"))
_TROUBLE = (
    b"\x00",
    b"\xff" * 4,
    b"\x7f\xff\xff\xff",
    b"\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01",
    b"{",
    b"[" * 2000,
    b'"',
    b"null",
    b"-1",
    b"9" * 5000,
    b"1e999",
    b"\\u",
    b"#HUDI#",
)


def damaged(seeds: tuple[bytes, ...], count: int, seed: int) -> Iterator[bytes]:
    chance = random.Random(seed)
    for _ in range(count):
        data = bytearray(chance.choice(seeds))
        for _ in range(chance.choice((1, 1, 1, 2, 4, 16))):
            at = chance.randrange(len(data) + 1)
            match chance.randrange(6):
                case 0 | 1 if at < len(data):
                    data[at] ^= 1 << chance.randrange(8)
                case 2:
                    del data[at:]
                case 3:
                    end = min(len(data), at + chance.randrange(40))
                    data[at:at] = data[at:end]
                case 4:
                    trouble = chance.choice(_TROUBLE)
                    data[at : at + len(trouble)] = trouble
                case _:
                    end = min(len(data), at + chance.randrange(1, 9))
                    del data[at:end]
        yield bytes(data)


def untyped(parser: Parser, count: int, *, seed: int = 20) -> dict[str, bytes]:
    """Return what other errors than ours come out, each with the bytes that made it."""
    found: dict[str, bytes] = {}
    for data in damaged(parser.seeds, count, seed):
        try:
            parser.parse(data)
        except TYPED_ERRORS:
            continue
        except Exception as error:  # noqa: BLE001  Any other error is what this looks for.
            found.setdefault(f"{type(error).__name__}: {str(error)[:80]}", data)
    return found


@pytest.mark.parametrize("name", PARSERS)
def test_whole_contents_are_taken(name: str) -> None:
    for seed in PARSERS[name].seeds:
        PARSERS[name].parse(seed)


@pytest.mark.parametrize("name", PARSERS)
def test_inputs_that_reached_something_new_once(name: str) -> None:
    assert corpus_of(name)
    for data in corpus_of(name):
        with suppress(*TYPED_ERRORS):
            PARSERS[name].parse(data)


@pytest.mark.parametrize("name", PARSERS)
def test_only_errors_of_ours_leave_a_parser(name: str) -> None:
    assert untyped(PARSERS[name], SHORT) == {}


@pytest.mark.long
@pytest.mark.parametrize("name", PARSERS)
def test_only_errors_of_ours_leave_a_parser_after_many_inputs(name: str) -> None:
    assert untyped(PARSERS[name], LONG, seed=LONG) == {}
