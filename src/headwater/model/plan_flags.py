"""What the scheduler of a plan lets others do to it, kept in the plan's `extraMetadata`.

    cancellable          whoever writes to the same file groups may cancel it; it ends aborted
    cancellation-policy  when clean cancels it by itself: `24 hours` or `10 instants`
    removable            a failed execution is not repeated: clean rolls the plan back

A plan is cancellable or removable, never both: it would have two ends (H-13). Engines that do not
know these keys pass over them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from headwater.errors import InvalidInputError
from headwater.model.instant import InstantTime, instant_time_after

CANCELLABLE = "cancellable"
CANCELLATION_POLICY = "cancellation-policy"
REMOVABLE = "removable"

_TRUE = "true"
_POLICY = re.compile(r"\s*([1-9][0-9]{0,8})\s*(hours?|instants?)\s*", re.ASCII)
_HOUR_MS = 3_600_000


@dataclass(frozen=True, slots=True, kw_only=True)
class CancellationPolicy:
    """How long a plan may wait, in hours or in instants that were requested after it.

    Counted from when the plan was requested; a failed execution does not start it anew (H-17).
    """

    hours: int | None = None
    instants: int | None = None

    def __post_init__(self) -> None:
        given = [count for count in (self.hours, self.instants) if count is not None]
        if len(given) != 1 or given[0] < 1:
            raise InvalidInputError(
                "A cancellation policy is a number of hours or a number of instants, at least 1; "
                f"got hours={self.hours}, instants={self.instants}"
            )

    def is_met(self, requested: InstantTime, now: InstantTime, instants_since: int) -> bool:
        """Whether a plan requested then is due, given how many instants came after it."""
        if self.hours is not None:
            return instant_time_after(requested, self.hours * _HOUR_MS) <= now
        return self.instants is not None and instants_since >= self.instants

    def __str__(self) -> str:
        return f"{self.instants} instants" if self.hours is None else f"{self.hours} hours"


def parse_cancellation_policy(text: str) -> CancellationPolicy:
    """Return the policy that a text such as `24 hours` or `10 instants` describes.

    Raises:
        InvalidInputError: it describes none.
    """
    found = _POLICY.fullmatch(text)
    if found is None:
        raise InvalidInputError(
            f"A cancellation policy is a text such as '24 hours' or '10 instants', got {text!r}"
        )
    count, unit = int(found[1]), found[2]
    is_hours = unit.startswith("hour")
    return CancellationPolicy(hours=count) if is_hours else CancellationPolicy(instants=count)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanFlags:
    """What a plan says about its own end."""

    is_cancellable: bool = False
    policy: CancellationPolicy | None = None
    is_removable: bool = False

    def __post_init__(self) -> None:
        if self.is_cancellable and self.is_removable:
            raise InvalidInputError(
                "A plan is cancellable or removable, not both: a cancelled plan ends aborted, a "
                "removed one leaves the timeline"
            )
        if self.policy is not None and not self.is_cancellable:
            raise InvalidInputError(
                f"A plan that is not cancellable has no cancellation policy, got {self.policy}"
            )

    def to_extra_metadata(self) -> dict[str, str]:
        """Return the entries of the plan's `extraMetadata`; none for a plan without flags."""
        entries = {}
        if self.is_cancellable:
            entries[CANCELLABLE] = _TRUE
        if self.policy is not None:
            entries[CANCELLATION_POLICY] = str(self.policy)
        if self.is_removable:
            entries[REMOVABLE] = _TRUE
        return entries

    @classmethod
    def from_extra_metadata(cls, entries: Mapping[str, str] | None) -> Self:
        """Return the flags of a plan.

        Raises:
            InvalidInputError: the cancellation policy is malformed.
        """
        entries = entries or {}
        is_cancellable = says_cancellable(entries)
        policy = entries.get(CANCELLATION_POLICY) if is_cancellable else None
        return cls(
            is_cancellable=is_cancellable,
            policy=None if policy is None else parse_cancellation_policy(policy),
            # A plan of another engine that claims both ends aborted.
            is_removable=_is_set(entries, REMOVABLE) and not is_cancellable,
        )


def says_cancellable(entries: Mapping[str, str] | None) -> bool:
    """Whether the `extraMetadata` of a plan makes it cancellable."""
    return _is_set(entries or {}, CANCELLABLE)


def _is_set(entries: Mapping[str, str], key: str) -> bool:
    return entries.get(key, "").strip().lower() == _TRUE
