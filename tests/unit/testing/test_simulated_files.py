"""Inputs and outputs of the simulated storage: one call to the world each."""

from __future__ import annotations

import pytest

from headwater.errors import AlreadyExistsError, NotFoundError
from headwater.testing.world import standalone_storage


def test_an_output_is_one_creation_at_the_end_of_its_block() -> None:
    storage = standalone_storage()
    with storage.open_output("object") as sink:
        sink.write(b"first ")
        sink.write(b"second")
        assert storage.list_names("") == []
    with storage.open_input("object") as source:
        source.seek(6)
        assert source.read() == b"second"


def test_an_output_is_not_created_over_another_object() -> None:
    storage = standalone_storage()

    def write() -> None:
        with storage.open_output("object") as sink:
            sink.write(b"mine")
            storage.put_if_absent("object", b"theirs")

    with pytest.raises(AlreadyExistsError):
        write()
    assert storage.read("object") == b"theirs"
    with pytest.raises(NotFoundError):
        storage.open_input("absent")
