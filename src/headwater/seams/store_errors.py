"""What an object store said, in words that whoever asked can act on.

obstore tells some answers apart by exceptions and the rest only in their text; both are read here
and nowhere else. The question that decides most is whether a write that failed can have landed:

    401, 403, 400 with an expired token     refused: it has not, and the same call fails again
    409 of S3, while another writes          refused: it has not, and the same call may succeed
    412, 409 of Azure                        the name is taken, or the object changed
    all else: 5xx, no answer, half an answer nobody knows

obstore sends a request again when its reply was lost, and says how often it did. An answer that
refuses the second request says nothing of the first, so no refusal that came after a repetition
is taken for proof.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from obstore import exceptions

from headwater.errors import (
    AlreadyExistsError,
    ConflictError,
    ErrorKind,
    HeadwaterError,
    NotFoundError,
    Retry,
    StorageError,
    UnsupportedError,
)

FAILURES = (exceptions.BaseError, OSError, NotImplementedError)
"""What calls of obstore raise."""

IS_REPEATED = "is_repeated"
"""In the context of an error: an earlier request of the same call may be what is in its way."""

_READS = frozenset({"read", "look up", "list"})

# A query may hold a signature, which has no business in a message.
_QUERY = re.compile(r"\?\S*")
# In the answer itself, or as obstore tells what one key of a bulk delete was answered.
_STORE_CODE = re.compile(r"<Code>(\w+)</Code>|\(code: (\w+)\)")
_HTTP_STATUS = re.compile(r"status code: (\d{3})")
_REPETITIONS = re.compile(r"after \d+ retries")

# Two requests about one name met; S3 took neither for the first.
_UNDECIDED_CODES = frozenset({"ConditionalRequestConflict", "OperationAborted"})
_EXPIRED_CODES = frozenset({"ExpiredToken", "ExpiredTokenException", "TokenRefreshRequired"})
_SKEWED_CODES = frozenset({"RequestTimeTooSkewed"})
_ELSEWHERE_CODES = frozenset({"AuthorizationHeaderMalformed"})
"""The bucket is in another region than the request was signed for."""
_DENIED_STATUSES = frozenset({"401", "403"})
_DENIED_CODE = "AccessDenied"  # The answer to a bulk delete has status 200.
_GONE_CODE = "NoSuchKey"


@dataclass(frozen=True, slots=True)
class Answer:
    """A failed call, read once."""

    error: Exception
    status: str | None
    """The HTTP status; None if no answer came, or not all of it."""
    code: str | None
    is_repeated: bool
    """Whether an earlier request of the same call may have landed."""

    @classmethod
    def of(cls, error: Exception, *, may_have_landed: bool = False) -> Answer:
        """`may_have_landed` tells it of requests for the same that were sent before."""
        text = str(error)
        status, code = _HTTP_STATUS.search(text), _STORE_CODE.search(text)
        return cls(
            error,
            status[1] if status else None,
            code[1] or code[2] if code else None,
            may_have_landed or _REPETITIONS.search(text) is not None,
        )

    @property
    def is_undecided(self) -> bool:
        """Whether the store asks for the same request again, and did nothing."""
        return self.status == "409" and self.code in _UNDECIDED_CODES

    @property
    def is_cut_off(self) -> bool:
        """Whether an answer came but not all of it, which obstore does not ask for again."""
        return isinstance(self.error, exceptions.GenericError) and (
            "body error" in str(self.error).partition("\n")[0]
        )

    @property
    def is_denied(self) -> bool:
        return (
            isinstance(
                self.error, exceptions.PermissionDeniedError | exceptions.UnauthenticatedError
            )
            # A failed listing has no kind in obstore; only its text tells what the store said.
            or self.status in _DENIED_STATUSES
            or self.code == _DENIED_CODE
            or self.is_expired
        )

    @property
    def is_expired(self) -> bool:
        return self.code in _EXPIRED_CODES

    @property
    def summary(self) -> str:
        """obstore's message cut down to what people can use: its first line and the code."""
        first_line = str(self.error).partition("\n")[0].partition(": <")[0]
        shown = _QUERY.sub("", first_line).rstrip(": ")
        return f"{shown} ({self.code})" if self.code and self.code not in shown else shown


def storage_error(answer: Answer, verb: str, where: str) -> HeadwaterError:
    """Return the error of ours for a call that came to `answer`."""
    error = answer.error
    what = f"Cannot {verb} {where}: {answer.summary}"
    if answer.is_denied:
        return _denied(answer, what, may_have_landed=answer.is_repeated and verb not in _READS)
    if answer.is_undecided:
        return StorageError(
            f"{what}. Another request about the same object was under way, and this one did "
            "nothing. Try again"
        )
    if verb == "delete" and answer.code == _GONE_CODE:  # Where two delete at once, some stores say.
        return NotFoundError(f"There is no object {where}")
    match error:
        case FileNotFoundError() if verb in ("read", "look up", "delete"):
            return NotFoundError(f"There is no object {where}")
        case FileNotFoundError() if verb != "replace":
            return _no_bucket(what)
        case FileNotFoundError():
            return _changed(where)
        case exceptions.PreconditionError() if verb != "write":
            return _changed(where)  # A write has no condition but that nothing is there.
        case exceptions.AlreadyExistsError() if verb == "replace":
            return _changed(where)
        case exceptions.AlreadyExistsError() if verb == "write":
            taken = AlreadyExistsError(f"{where} exists already; it was left as it is")
            if answer.is_repeated:
                taken.context[IS_REPEATED] = True
            return taken
        case exceptions.NotSupportedError() | NotImplementedError():
            return UnsupportedError(f"{what}. Use a store that has conditional requests")
    if answer.status == "404":
        return _no_bucket(what)
    if answer.code in _ELSEWHERE_CODES:
        return StorageError(
            f"{what}. Set headwater.storage.region or AWS_REGION to the region of the bucket",
            retry=Retry.SAME_CALL if answer.is_repeated and verb not in _READS else Retry.NEVER,
        )
    return StorageError(f"{what}. Try again")


def _changed(where: str) -> ConflictError:
    return ConflictError(
        f"{where} changed or vanished since it was read. Read it again and decide anew"
    )


def _denied(answer: Answer, what: str, *, may_have_landed: bool) -> StorageError:
    advice = "Check the credentials and what they are allowed to do"
    if answer.is_expired:
        advice = "The credentials have expired; renew them"
    elif answer.code in _SKEWED_CODES:
        advice = "The clock of this machine is off; set it, for example by NTP"
    return StorageError(
        f"{what}. {advice}",
        kind=ErrorKind.STORAGE_DENIED,
        # An earlier request of the same call may have come through before this one was refused.
        retry=Retry.SAME_CALL if may_have_landed else Retry.NEVER,
    )


def _no_bucket(what: str) -> StorageError:
    return StorageError(f"{what}. Create the bucket or container first", retry=Retry.NEVER)
