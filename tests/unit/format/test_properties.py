"""Java properties text: what Java writes and reads, and what proves damage."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.errors import CorruptTableError, ErrorKind, InvalidInputError
from headwater.format.properties import (
    check_table_checksum,
    encode_properties,
    parse_properties,
)

PATH = "lake/t/.hoodie/hoodie.properties"

# Printed by java.util.Properties.store of Java 17, with the date line left out.
STORED_BY_JAVA = (
    b"#Properties saved on a\n"
    b"#day \xe9 \\u20AC\n"
    b"wide=\\u00E9 \\u20AC \\uD83D\\uDE00 \\u007F\n"
    b'json={"type"\\:"record","x"\\:"\\#\\!\\="}\n'
    b"control=tab\\there\\nline\\rreturn\\ffeed\n"
    b"\\u00FC=backslash \\\\ end\\\\\n"
    b"a\\ key\\:with\\=all\\#the\\!marks\\\\=\\  two leading blanks, one trailing \n"
    b"empty=\n"
)
PROPERTIES = {
    "wide": "é € \N{GRINNING FACE} \x7f",
    "json": '{"type":"record","x":"#!="}',
    "control": "tab\there\nline\rreturn\ffeed",
    "ü": "backslash \\ end\\",
    "a key:with=all#the!marks\\": "  two leading blanks, one trailing ",
    "empty": "",
}

any_text = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)


def test_what_java_stored_is_read() -> None:
    assert parse_properties(STORED_BY_JAVA, path=PATH) == PROPERTIES


def test_it_is_written_as_java_stores_it() -> None:
    comment = "Properties saved on a\nday é €"
    # Java writes the comment's wide characters in upper case; nobody reads comments.
    stored = STORED_BY_JAVA.replace(b"day \xe9 \\u20AC", b"day \xe9 \\u20ac")
    written = encode_properties(PROPERTIES, comment=comment).splitlines(keepends=True)
    checksums = [line for line in written if line.startswith(b"#headwater.crc32=")]
    assert len(checksums) == 1
    assert b"".join(line for line in written if line not in checksums) == stored


def test_a_file_that_was_edited_by_hand_says_what_to_do() -> None:
    written = encode_properties({"a": "b"}, comment="ours")
    edited = written.replace(b"a=b", b"a=c")
    with pytest.raises(CorruptTableError, match="delete the line that begins with #headwater"):
        parse_properties(edited, path=PATH)
    lines = [line for line in edited.splitlines(keepends=True) if b"crc32" not in line]
    assert parse_properties(b"".join(lines), path=PATH) == {"a": "c"}


@given(st.dictionaries(any_text, any_text, max_size=5), any_text)
def test_properties_survive_the_text(properties: dict[str, str], comment: str) -> None:
    data = encode_properties(properties, comment=comment)
    parsed = parse_properties(data, path=PATH)
    assert parsed == properties
    assert list(parsed) == list(properties)


@pytest.mark.parametrize(
    ("text", "properties"),
    [
        (b"", {}),
        (b"\n \t\n", {}),
        (b"# one=1\n  ! two=2\n", {}),
        (b"a=1\nb:2\nc 3\nd\t=\f4\n", {"a": "1", "b": "2", "c": "3", "d": "4"}),
        (b"a=1\r\nb=2\rc=3\n", {"a": "1", "b": "2", "c": "3"}),
        (b"  a  =  1  \n", {"a": "1  "}),
        (b"a==1\n", {"a": "=1"}),
        (b"a= =1\n", {"a": "=1"}),
        (b"a=one\\\n   two\\\n#three\n", {"a": "onetwo#three"}),
        (b"a=ends\\\\\nb=2\n", {"a": "ends\\", "b": "2"}),
        (b"a=1\\\n\nb=2\n", {"a": "1", "b": "2"}),
        (b"a=\\x\\u00e9\\u00E9\\ \n", {"a": "xéé "}),
        (b"a=\xe9\n", {"a": "é"}),
        (b"=1\n", {"": "1"}),
        (b"a=1\na=1\n", {"a": "1"}),
    ],
)
def test_it_is_read_as_java_reads_it(text: bytes, properties: dict[str, str]) -> None:
    assert parse_properties(text, path=PATH) == properties


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        (b"a=1\nb=\x002\n", 2, "control characters"),
        (b"PAR1\x15\x04\x15\n", 1, "control characters"),
        (b"a=\\u12g4\n", 1, "without four hex digits"),
        (b"a=1\n\nb=\\u12\n", 3, "without four hex digits"),
        (b"a=\\ud83d\n", 1, "half of a surrogate pair"),
        (b"a=\\ude00\\ud83d\n", 1, "half of a surrogate pair"),
        (b"a=1\nhoodie.table.name\n", 2, "no = between key and value"),
        (b"a=1\nb=2\na=3\n", 3, "sets a a second time"),
        (b"a=1\nb=2", 2, "cut short"),
        (b"#comment", 1, "cut short"),
        (b"a=1\\\n", 1, "cut short"),
    ],
)
def test_damage_is_named_with_path_and_line(text: bytes, line: int, reason: str) -> None:
    with pytest.raises(CorruptTableError) as caught:
        parse_properties(text, path=PATH)
    assert caught.value.kind is ErrorKind.CORRUPT_PROPERTIES
    assert f"Line {line} " in str(caught.value)
    assert reason in str(caught.value)
    assert PATH in str(caught.value)


@given(st.binary(max_size=60))
def test_any_bytes_are_properties_or_damage(data: bytes) -> None:
    try:
        properties = parse_properties(data, path=PATH)
    except CorruptTableError:
        return
    again = encode_properties(properties, comment="again")
    assert parse_properties(again, path=PATH) == properties


def test_half_a_surrogate_pair_is_not_written() -> None:
    with pytest.raises(InvalidInputError, match="surrogate"):
        encode_properties({"a": "\ud83d"}, comment="")


def test_the_right_checksum_passes_and_so_does_none() -> None:
    named = {"hoodie.table.name": "v8_empty", "hoodie.database.name": "default"}
    check_table_checksum({**named, "hoodie.table.checksum": "640695144"}, path=PATH)
    check_table_checksum(named, path=PATH)


@pytest.mark.parametrize("checksum", ["640695145", "", "-1", "abc"])
def test_a_wrong_checksum_is_named_with_its_path(checksum: str) -> None:
    properties = {
        "hoodie.table.name": "v8_empty",
        "hoodie.database.name": "default",
        "hoodie.table.checksum": checksum,
    }
    with pytest.raises(CorruptTableError) as caught:
        check_table_checksum(properties, path=PATH)
    assert caught.value.kind is ErrorKind.CORRUPT_CHECKSUM
    assert "640695144" in str(caught.value)
    assert PATH in str(caught.value)


def test_properties_without_a_table_name_are_no_table_config() -> None:
    with pytest.raises(CorruptTableError, match=r"hoodie\.table\.name is missing") as caught:
        check_table_checksum({"commitTime": "20260101000000000"}, path=PATH)
    assert caught.value.kind is ErrorKind.CORRUPT_PROPERTIES
