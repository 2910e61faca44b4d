"""Who survives when all records and deletes of each key meet in the order of their arrival.

The events of a key are taken one by one, and the survivor so far meets the next event:

- an event whose rank is at least the survivor's *advances*: it becomes the survivor;
- any other event is *late*: the survivor stays;
- a commit-time delete always advances, and counts as the smallest rank from then on.

A *run* is the stretch in which records build on each other: it begins with the first record that
advances after a delete that advanced, or with the key's first event. Where
records bring only some of their columns, a column of the result comes from the last advancing
record of the run that brings it, else from the first late one: an advancing record overrides, a
late one only fills gaps.

All of it is computed for all keys at once, from running maxima over the events sorted by key.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from headwater.arrow.ordering import Mask, Positions


@dataclass(frozen=True, slots=True)
class Survivors:
    """The outcome. Keys are numbered by their first event; all arrays but one are by key."""

    winners: Positions
    """The event that advanced last. It may be a delete."""
    run_starts: Positions
    """Where the run begins, as a place in `arrivals`. Of no meaning where the winner is a delete.
    """
    run_ends: Positions
    """The last place in `arrivals` of the key."""
    arrivals: Positions
    """All events, by key and then by arrival."""
    is_advancing: Mask
    """By place in `arrivals`: the event advanced."""
    is_record: Mask
    """By place in `arrivals`: the event is no delete."""

    def events_of(self, keys: Positions) -> tuple[Positions, Positions]:
        """Return the events of some keys by arrival, and of which of the keys each of them is."""
        starts = np.where(keys > 0, self.run_ends[keys - 1] + 1, 0)
        counts = self.run_ends[keys] - starts + 1
        owners = np.repeat(np.arange(len(keys)), counts)
        within = np.arange(len(owners)) - np.repeat(np.cumsum(counts) - counts, counts)
        return self.arrivals[starts[owners] + within], owners

    def pick(self, keys: Positions, is_provided: Mask) -> Positions:
        """Return, for keys won by records, the event that a column comes from.

        Where none of the run brings the column, it is the first of the run: each later one would
        take the value over from it.

        Args:
            is_provided: by event, whether it brings the column.
        """
        starts, ends = self.run_starts[keys], self.run_ends[keys]
        brings = is_provided[self.arrivals] & self.is_record
        advancing = _last_place(brings & self.is_advancing, ends)
        late = _first_place(brings & ~self.is_advancing, starts)
        has_advancing, has_late = advancing >= starts, late <= ends
        place = np.where(has_advancing, advancing, np.where(has_late, late, starts))
        picked: Positions = self.arrivals[place]
        return picked

    def newest(self, keys: Positions, is_whole: Mask) -> Positions:
        """Return, for keys won by records, the last event that had a say in the result.

        A late record has none if a record of the run before it is whole.

        Args:
            is_whole: by event, whether it is a record that brings all its columns.
        """
        starts, ends = self.run_starts[keys], self.run_ends[keys]
        first_whole = _first_place(is_whole[self.arrivals] & self.is_record, starts)
        last_heard = np.minimum(ends, first_whole)
        is_late = self.is_record & ~self.is_advancing
        late = self.arrivals[np.maximum(_last_place(is_late, last_heard), starts)]
        return np.maximum(late, self.winners[keys])


def find_survivors(
    keys: Positions, ranks: Positions, is_delete: Mask, is_commit_time: Mask
) -> Survivors:
    """Return the survivors of events given in the order of their arrival.

    Args:
        keys: the key's number per event, from 0, in the order of first events.
        ranks: ordering values as numbers from 0; all equal where the later event wins.
        is_delete: the event is a delete.
        is_commit_time: the event is a delete that removes whatever it meets.
    """
    places = np.arange(len(keys), dtype=np.int64)
    if len(keys) and keys[-1] == places[-1]:
        # As many keys as events: nobody met anybody.
        return Survivors(
            winners=places,
            run_starts=places,
            run_ends=places,
            arrivals=places,
            is_advancing=np.ones(len(keys), np.bool_),
            is_record=~is_delete,
        )
    arrivals = np.argsort(keys, kind="stable")
    sorted_keys = keys[arrivals]
    is_first = np.ones(len(keys), np.bool_)
    is_first[1:] = sorted_keys[1:] != sorted_keys[:-1]
    key_starts = places[is_first]
    run_ends = np.append(key_starts[1:], len(keys)) - 1 if len(keys) else key_starts

    resets = is_commit_time[arrivals]
    # Every key, and every commit-time delete in it, begins anew: its events stand above all before.
    floors = np.cumsum(is_first | resets) * (ranks.max(initial=0) + 1)
    heights = floors + np.where(resets, 0, ranks[arrivals])
    is_advancing = heights == np.maximum.accumulate(heights)

    deletes = is_delete[arrivals]
    last_advance = np.maximum.accumulate(np.where(is_advancing, places, -1))
    # The first event of all rolls in from the end; being first, it is not asked.
    follows_delete = is_first | deletes[np.roll(last_advance, 1)]
    starts_run = is_advancing & ~deletes & follows_delete
    return Survivors(
        winners=arrivals[last_advance[run_ends]],
        run_starts=np.maximum.accumulate(np.where(starts_run, places, -1))[run_ends],
        run_ends=run_ends,
        arrivals=arrivals,
        is_advancing=is_advancing,
        is_record=~deletes,
    )


def _last_place(mask: Mask, up_to: Positions) -> Positions:
    """Return, per given place, the last place at or before it where the mask holds, else -1."""
    return np.maximum.accumulate(np.where(mask, np.arange(len(mask)), -1))[up_to]


def _first_place(mask: Mask, from_place: Positions) -> Positions:
    """Return, per given place, the first place at or after it where the mask holds, else beyond."""
    places = np.where(mask, np.arange(len(mask)), len(mask))
    return np.minimum.accumulate(places[::-1])[::-1][from_place]
