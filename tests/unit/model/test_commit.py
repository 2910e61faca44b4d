"""What a commit says of what was written again for it."""

from __future__ import annotations

import pytest

from headwater.model.commit import Redone


def test_it_is_said_and_read() -> None:
    redone = Redone(times=2, files=3, rows=40, by="20260101000000000")
    read = Redone.from_metadata({"other": "x", **redone.to_metadata()})
    assert (read, read.by) == (redone, redone.by)
    assert Redone().to_metadata() == {}


@pytest.mark.parametrize("said", ["", "times=1", "times=1 files=1 rows=1 by=x", "times=-1 files=0"])
def test_words_that_mean_nothing_here_count_as_none(said: str) -> None:
    assert Redone.from_metadata({"headwater.redone": said}) == Redone()
    assert Redone.from_metadata(None) == Redone()
