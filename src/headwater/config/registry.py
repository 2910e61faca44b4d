"""All options in one list, and the check that every mapping of options goes through.

What becomes of a key, in this order:

    known, well-formed               kept, under its own name if an alias was given
    known, malformed                 a problem
    set by Headwater alone           a problem
    Hudi's, for another option       kept as that one (`hudi_options`)
    Hudi's, but not implemented      refused with `UnsupportedError`
    Hudi's, without effect here      kept; why is said once
    `hoodie.*`, unknown              kept and warned about: other engines may read it
    anything else                    a problem, with the nearest known key
"""

from __future__ import annotations

import difflib
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from headwater.config.advice import AdviceConfig
from headwater.config.archive import ArchiveConfig
from headwater.config.arguments import text_of
from headwater.config.clean import CleanConfig
from headwater.config.clustering import ClusteringConfig
from headwater.config.compaction import CompactionConfig
from headwater.config.detection import DetectionConfig
from headwater.config.files import FileConfig
from headwater.config.harmless import harmless_reason
from headwater.config.hudi_options import (
    MAPPED_VALUES,
    PAYLOAD_KEYS,
    PAYLOADS,
    RENAMED_OPTIONS,
    Fate,
    mapped_option,
)
from headwater.config.limits import LimitConfig
from headwater.config.lock import LockConfig
from headwater.config.markers import MarkerConfig
from headwater.config.metadata import MetadataConfig
from headwater.config.option import (
    HarmlessOptionWarning,
    Option,
    OptionAliasWarning,
    OptionPrefix,
    UnknownOptionWarning,
    problem_list,
)
from headwater.config.option_config import OptionConfig
from headwater.config.plans import PlanConfig
from headwater.config.secrets import HIDDEN, Options, is_secret, without_values
from headwater.config.source import SOURCE_OPTIONS
from headwater.config.spark import SparkConfig
from headwater.config.sql import SqlConfig
from headwater.config.table_options import MERGE_MODE, TABLE_OPTIONS, TABLE_PREFIXES
from headwater.config.table_services import TableServicesConfig
from headwater.config.unsupported import UNSUPPORTED_OPTIONS
from headwater.config.write import WriteConfig
from headwater.errors import ErrorKind, InvalidInputError, UnsupportedError

STORAGE_PREFIX = OptionPrefix(
    "headwater.storage.", "Settings of the storage client; the rest of the key is the client's own."
)
HADOOP_PREFIXES = tuple(
    OptionPrefix(
        prefix, "Hadoop's settings of its file systems; those that mean the same are read."
    )
    for prefix in ("fs.s3a.", "fs.azure.", "fs.gs.", "spark.hadoop.fs.")
)

CONFIGS: Mapping[str, type[OptionConfig]] = {
    "Writers": WriteConfig,
    "Markers": MarkerConfig,
    "Early conflict detection": DetectionConfig,
    "Files": FileConfig,
    "Spark": SparkConfig,
    "Locks": LockConfig,
    "Compaction": CompactionConfig,
    "Clustering": ClusteringConfig,
    "Clean": CleanConfig,
    "Archive": ArchiveConfig,
    "Metadata table": MetadataConfig,
    "Plans": PlanConfig,
    "Services after a write": TableServicesConfig,
    "Advice": AdviceConfig,
    "SQL": SqlConfig,
    "Limits": LimitConfig,
}
"""The subjects; each knows its options, and the rules that bind several of them."""

OPTION_GROUPS: Mapping[str, tuple[Option[Any, Any], ...]] = {
    "Table": TABLE_OPTIONS,
    **{title: config.options() for title, config in CONFIGS.items()},
}
OPTION_PREFIXES = (*TABLE_PREFIXES, STORAGE_PREFIX, *HADOOP_PREFIXES)
ALL_OPTIONS = tuple(option for group in OPTION_GROUPS.values() for option in group)

_BY_NAME: Mapping[str, Option[Any, Any]] = {
    name: option for option in ALL_OPTIONS for name in (option.key, *option.aliases)
}


_WARNED = (Fate.UNREAD, Fate.HONOURED)
"""What becomes of keys that nothing reads where they were given, though another door may."""

_OF_SOURCE = frozenset(name for option in SOURCE_OPTIONS for name in (option.key, *option.aliases))
"""Keys that the data source takes before the table is opened with the others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedOptions:
    """Options that passed `check_options`, all as text."""

    known: Mapping[str, str]
    unknown: Mapping[str, str]
    """Keys that nothing here reads."""

    @property
    def all(self) -> dict[str, str]:
        return Options({**self.known, **self.unknown})


def check_options(given: Mapping[str, Any] | None) -> CheckedOptions:
    """Return the options as text under their own names, having checked every key and value.

    Values may be text, numbers or booleans.

    Raises:
        InvalidInputError: kind INVALID_OPTION, with every problem in one message.
        UnsupportedError: kind UNSUPPORTED_OPTION, if unsupported options are the only problem.
    """
    known: dict[str, str] = {}
    unknown: dict[str, str] = {}
    harmless: dict[str, str] = {}
    invalid: list[str] = []
    unsupported: list[str] = []
    for key, value in _mapped(_named(given), invalid).items():
        text = _text(value)
        option = _BY_NAME.get(key)
        refusal = None if text is None else _refusal(key, text)
        if text is None:
            told = HIDDEN if is_secret(key) else repr(value)
            invalid.append(f"{key} must be text, a number or a boolean, got {told}")
        elif option is not None:
            problem = _problem_of_known(option, key, text, known)
            if problem is not None:
                invalid.append(problem)
            else:
                known[option.key] = text
        elif refusal is None and _is_of_a_family(key):
            known[key] = text
        elif refusal is None and _is_accepted(key):
            unknown[key] = text
        elif refusal is None and (why := harmless_reason(key)) is not None:
            unknown[key] = text
            harmless.setdefault(why, key)
        elif refusal is None and key.startswith("hoodie."):
            unknown[key] = text
        elif refusal is None:
            advice = _suggestion(key) or "; options begin with hoodie. or headwater."
            invalid.append(f"{key} is no option{advice}")
        if refusal is not None:
            unsupported.append(refusal)
    if not invalid:
        invalid = _cross_option_problems(known)
    _raise_problems(
        [without_values(problem, given or {}) for problem in invalid],
        [without_values(problem, given or {}) for problem in unsupported],
    )
    for why, key in harmless.items():
        warnings.warn(f"{key} has no effect here: {why}", HarmlessOptionWarning, stacklevel=3)
    unread = [key for key in sorted(unknown) if fate_of(key)[0] in _WARNED]
    if unread:
        warnings.warn(
            "Nothing here reads these options; they are kept: "
            + ", ".join(f"{key}{_suggestion(key)}" for key in unread),
            UnknownOptionWarning,
            stacklevel=3,
        )
    return CheckedOptions(known=Options(known), unknown=Options(unknown))


def fate_of(key: str) -> tuple[Fate, str]:
    """Return what becomes of a key of Hudi's, and a sentence about it."""
    option = _BY_NAME.get(key)
    if option is not None:
        if option.is_managed:
            return Fate.REFUSED, "Headwater sets it"
        return Fate.HONOURED, "" if option.key == key else f"as `{option.key}`"
    if key in RENAMED_OPTIONS:
        return Fate.MAPPED, f"to `{RENAMED_OPTIONS[key]}`"
    if key in MAPPED_VALUES:
        targets = dict.fromkeys(own for to in MAPPED_VALUES[key].values() for own in to)
        return Fate.MAPPED, "to " + ", ".join(f"`{own}`" for own in targets)
    if key in PAYLOAD_KEYS:
        return Fate.MAPPED, f"to `{MERGE_MODE.key}`: {', '.join(PAYLOADS)}; others are refused"
    if _is_of_a_family(key):
        return Fate.HONOURED, ""
    if key.lower() in _OF_SOURCE:
        return Fate.HONOURED, 'by `format("headwater")`'
    for refused in UNSUPPORTED_OPTIONS:
        if refused.is_meant(key):
            return Fate.REFUSED, f"{refused.limits}: {refused.advice}"
    why = harmless_reason(key)
    return (Fate.UNREAD, "") if why is None else (Fate.HARMLESS, why)


def check_supported(options: Mapping[str, str]) -> None:
    """Raise if any option asks for what this release does not implement.

    Raises:
        UnsupportedError: kind UNSUPPORTED_OPTION, naming all of them.
    """
    refusals = (_refusal(key, text) for key, text in options.items())
    _raise_problems([], [refusal for refusal in refusals if refusal is not None])


def _named(given: Mapping[str, Any] | None) -> Mapping[str, Any]:
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise InvalidInputError(
            f"Options are a mapping of names to values, got {type(given).__name__}",
            kind=ErrorKind.INVALID_OPTION,
        )
    for key in given:
        text_of(key, "The name of an option")
    return given


def _mapped(given: Mapping[str, Any], invalid: list[str]) -> dict[str, Any]:
    """Return options with those of Hudi's that stand for others in the form of these."""
    found = dict(given)
    for key, value in given.items():
        own_text = _text(value)
        mapped = None if own_text is None else mapped_option(key, own_text)
        if mapped is None and key in MAPPED_VALUES:
            invalid.append(f"{key} must be one of {', '.join(MAPPED_VALUES[key])}, got {value!r}")
        if mapped is None:
            continue
        del found[key]
        for other, text in mapped.items():
            if str(found.setdefault(other, text)).upper() != text.upper():
                invalid.append(f"{key}={value} means {other}={text}, but {found[other]} was given")
    return found


def _refusal(key: str, text: str) -> str | None:
    # A key may also belong to a family that comes after it.
    option = next((each for each in UNSUPPORTED_OPTIONS if each.is_meant(key)), None)
    if option is None or not option.refuses(text):
        return None
    return f"{key}={text} is not supported ({option.limits}): {option.advice}"


def _text(value: Any) -> str | None:
    match value:
        case str():
            return value
        case bool():
            return "true" if value else "false"
        case int() | float():
            return str(value)
        case _:
            return None


def _problem_of_known(
    option: Option[Any, Any], key: str, text: str, known: Mapping[str, str]
) -> str | None:
    if option.is_managed:
        return f"{key} is set by Headwater and cannot be passed as an option"
    try:
        value = option.parse(text)
    except InvalidInputError as error:
        return error.message
    if option.key in known and option.parse(known[option.key]) != value:
        names = " and ".join((option.key, *option.aliases))
        return f"{names} are one option, but were given different values"
    if key != option.key:
        warnings.warn(f"{key} is an older name; use {option.key}", OptionAliasWarning, stacklevel=4)
    return None


def _cross_option_problems(known: Mapping[str, str]) -> list[str]:
    problems = []
    for config in CONFIGS.values():
        try:
            config.from_options(known)
        except InvalidInputError as error:
            problems.append(error.message)
    return problems


def _is_accepted(key: str) -> bool:
    """Whether a key is one of which some values change nothing here."""
    return any(option.is_meant(key) for option in UNSUPPORTED_OPTIONS)


def _is_of_a_family(key: str) -> bool:
    return any(key.startswith(family.prefix) for family in OPTION_PREFIXES)


def _suggestion(key: str) -> str:
    nearest = difflib.get_close_matches(key, list(_BY_NAME), n=1, cutoff=0.8)
    return f" (did you mean {nearest[0]}?)" if nearest else ""


def _raise_problems(invalid: list[str], unsupported: list[str]) -> None:
    if invalid:
        raise InvalidInputError(
            problem_list("Invalid options", [*invalid, *unsupported]),
            kind=ErrorKind.INVALID_OPTION,
        )
    if unsupported:
        raise UnsupportedError(
            problem_list("Unsupported options", unsupported), kind=ErrorKind.UNSUPPORTED_OPTION
        )
