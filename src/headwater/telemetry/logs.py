"""Lines of logs that say which table, instant and attempt they are about, as text or as JSON.

Messages of ours are events with `key=value` fields. `Context` adds what the process is at work on
to every record; `TextFormatter` ends a line with what its message does not say itself, and
`JsonFormatter` makes a field of each. `configure_logging` puts them into place for our loggers;
whoever configures logging elsewhere names the classes there. Neither shows secrets of URLs.
"""

from __future__ import annotations

import json as json_format
import logging
import re
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TextIO

from headwater.config.secrets import without_url_secrets
from headwater.errors import ErrorKind, InvalidInputError
from headwater.seams.log_context import subject

OURS = "headwater"

_FIELD = re.compile(r"(?:(\w+)=)?%(?:%|[-#0 +]*\d*(?:\.\d+)?[a-zA-Z])")
"""A place of a message where a value goes, and its name if it has one."""


class Context(logging.Filter):
    """Adds `table`, `instant` and `attempt` to each record, where they are known."""

    def filter(self, record: logging.LogRecord) -> bool:
        # A record that has passed here in its own thread keeps what it was given.
        if not hasattr(record, "subject"):
            record.subject = subject().fields()
        return True


class TextFormatter(logging.Formatter):
    """`time LEVEL logger: message table=... instant=... attempt=...`"""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's name.
        said = fields_of(record)
        more = {key: value for key, value in _subject_of(record).items() if key not in said}
        ending = "".join(f" {key}={value}" for key, value in more.items())
        return f"{super().formatMessage(record)}{ending}"

    def format(self, record: logging.LogRecord) -> str:
        return without_url_secrets(super().format(record))


class JsonFormatter(logging.Formatter):
    """One JSON object a line: `time`, `level`, `logger`, `message`, and a field for each value."""

    def format(self, record: logging.LogRecord) -> str:
        own: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": without_url_secrets(record.getMessage()),
        }
        if record.exc_info:
            own["exception"] = without_url_secrets(self.formatException(record.exc_info))
        # They come first, and no field of a message takes their names.
        line = {**own, **_subject_of(record), **fields_of(record), **own}
        return json_format.dumps(line, ensure_ascii=False)


def configure_logging(
    *, json: bool = False, level: str = "INFO", stream: TextIO | None = None
) -> Callable[[], None]:
    """Send the logs of Headwater to standard error, each line with what it is about.

    Called again it replaces what it set up before. Loggers of others are left as they are.

    Args:
        json: whether a line is a JSON object, for programs.
        level: the least that is shown: `DEBUG`, `INFO`, `WARNING` or `ERROR`.
        stream: where lines go instead.

    Returns:
        A function that undoes it.

    Raises:
        InvalidInputError: there is no such level.
    """
    number = logging.getLevelNamesMapping().get(level.upper())
    if number is None:
        raise InvalidInputError(
            f"There is no level {level!r}; there are DEBUG, INFO, WARNING and ERROR",
            kind=ErrorKind.INVALID_OPTION,
        )
    handler = _Ours(stream or sys.stderr)
    handler.addFilter(Context())
    handler.setFormatter(JsonFormatter() if json else TextFormatter())
    logger = logging.getLogger(OURS)
    before = (logger.level, logger.propagate)
    for earlier in [each for each in logger.handlers if isinstance(each, _Ours)]:
        logger.removeHandler(earlier)
    logger.addHandler(handler)
    logger.setLevel(number)
    logger.propagate = False  # Or whoever configured the root logger would see each line twice.

    def undo() -> None:
        logger.removeHandler(handler)
        logger.setLevel(before[0])
        logger.propagate = before[1]

    return undo


class _Ours(logging.StreamHandler[TextIO]):
    """The handler of `configure_logging`, to be known again."""


def fields_of(record: logging.LogRecord) -> dict[str, str | int | float]:
    """Return the values that a message names, such as `files=%d`."""
    if not isinstance(record.args, tuple):
        return {}
    places = [place for place in _FIELD.finditer(str(record.msg)) if not place[0].endswith("%%")]
    if len(places) != len(record.args):
        return {}
    return {
        place[1]: _plain(value)
        for place, value in zip(places, record.args, strict=True)
        if place[1] is not None
    }


def _subject_of(record: logging.LogRecord) -> dict[str, str | int]:
    found: dict[str, str | int] = getattr(record, "subject", None) or subject().fields()
    return found


def _plain(value: object) -> str | int | float:
    return value if type(value) in (int, float) else without_url_secrets(str(value))  # type: ignore[return-value]
