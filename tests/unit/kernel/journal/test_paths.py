"""Paths by folder: what a draft changes, and what stays as it was."""

from headwater.kernel.journal.paths import Known, Paths, PathsDraft, paths_of

SOME = {
    "a/t/1.commit.requested": Known(1, b""),
    "a/t/1_2.commit": Known(2, b"x"),
    "a/claims/1/00001": Known(1, None),
}


def test_reads_as_a_mapping() -> None:
    paths = paths_of(SOME)
    assert dict(paths) == SOME
    assert len(paths) == 3
    assert "a/t/1_2.commit" in paths
    assert "a/t" not in paths
    assert paths.get("a/t/none") is None


def test_lists_the_names_of_one_folder_in_their_order() -> None:
    paths = paths_of(SOME)
    assert list(paths.below("a/t")) == ["1.commit.requested", "1_2.commit"]
    assert list(paths.below("a/claims")) == []
    assert list(paths.below("elsewhere")) == []


def test_a_draft_leaves_what_it_began_with() -> None:
    paths = paths_of(SOME)
    draft = PathsDraft(paths)
    draft.drop("a/t/1_2.commit")
    draft.put("a/t/3.commit.requested", Known(3, b""))
    draft.drop_folder("a/claims/1")
    assert dict(paths) == SOME
    assert {*draft.finish()} == {"a/t/1.commit.requested", "a/t/3.commit.requested"}


def test_shares_the_folders_that_a_draft_does_not_touch() -> None:
    paths = paths_of(SOME)
    draft = PathsDraft(paths)
    draft.put("a/t/3.commit.requested", Known(3, b""))
    assert draft.finish().below("a/claims/1") is paths.below("a/claims/1")


def test_an_empty_folder_is_none() -> None:
    draft = PathsDraft(paths_of(SOME))
    draft.drop("a/claims/1/00001")
    draft.drop("a/claims/1/00001")
    assert draft.finish() == paths_of({p: k for p, k in SOME.items() if p.startswith("a/t/")})


def test_counts_the_files_of_an_instant_while_they_change() -> None:
    draft = PathsDraft(paths_of(SOME))
    assert draft.has_time("a/t", "1")
    draft.drop("a/t/1_2.commit")
    draft.drop("a/t/1_2.commit")
    assert draft.has_time("a/t", "1")
    draft.put("a/t/1.commit.requested", Known(3, b""))
    draft.drop("a/t/1.commit.requested")
    assert not draft.has_time("a/t", "1")
    draft.put("a/t/1.commit.requested", Known(4, b""))
    assert draft.has_time("a/t", "1")
    assert not draft.has_time("nowhere", "1")
    assert not Paths()
