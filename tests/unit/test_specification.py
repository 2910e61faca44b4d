"""The rules that code, tests and pages cite by id are defined, and something holds each of them.

The definitions are the tables and headings of `docs/protocol`. Nothing is imported: the simulator
and the tests are read as text, so this takes about a second.
"""

from __future__ import annotations

import ast
import gc
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
PROTOCOL = ROOT / "docs" / "protocol"
SIMULATOR = ROOT / "src" / "headwater" / "testing"

TOY_IDS = {"INV-00"}
"""What tests of the simulator call an invariant that means nothing."""

NAMES_OF_FILES = {"F60"}
"""A base file of the demo of RFC-66. The other, `F10`, is the name of a fault as well."""


# What is defined ---------------------------------------------------------------------------------


class Rule(NamedTuple):
    """One row of a table: an id, and what the columns say of it."""

    id: str
    page: str
    kept_by: str
    held_by: str

    @property
    def must_be_held(self) -> bool:
        return self.id.startswith(("INV-", "LIV-"))


def rules_in(page: str, text: str) -> Iterator[Rule]:
    """Give the rows whose first cell is an id and nothing else, as definitions have it."""
    columns: list[str] = []
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split(" | ")]
        if line.startswith("| id |"):
            columns = cells
        elif columns and line.startswith("|") and DEFINED.fullmatch(cells[0]):
            row = dict(zip(columns, cells, strict=True))
            if len(row) > 2 or "fault" in row:
                kept_by = row.get("kept by", row.get("where", ""))
                yield Rule(row["id"], page, kept_by, row.get("held by", ""))


DEFINED = re.compile(r"(?:INV|LIV|H|N)-\d{2,3}|M\d|F\d\d?|A\d")


@cache
def rules() -> Mapping[str, Rule]:
    pages = sorted(PROTOCOL.glob("*.md"))
    found = [rule for page in pages for rule in rules_in(page.name, page.read_text())]
    times = Counter(rule.id for rule in found)
    doubled = [one for one, count in times.items() if count > 1]
    assert not doubled, f"defined twice: {doubled}"
    return {rule.id: rule for rule in found}


HEADING = re.compile(r"^#{2,3} (\d+(?:\.\d+)?) ", re.MULTILINE)


@cache
def sections() -> Mapping[str, frozenset[str]]:
    """Return the numbered sections of the rules and outcomes, with the names of their rows."""
    found = {}
    for page in ("invariants.md", "outcomes.md"):
        _, *parts = HEADING.split((PROTOCOL / page).read_text())
        for number, text in zip(parts[::2], parts[1::2], strict=True):
            found[number] = frozenset(re.findall(r"^\| ([^|]+?) \|", text, re.MULTILINE))
    return found


@cache
def format_rules() -> frozenset[str]:
    return frozenset(HEADING.findall((PROTOCOL / "format-rules.md").read_text()))


# What is cited -----------------------------------------------------------------------------------


@cache
def sources() -> Mapping[str, str]:
    """Return the text of everything that may cite a rule, by path."""
    paths = [
        ROOT / "README.md",
        *(ROOT / "docs").rglob("*.md"),
        *(ROOT / "src").rglob("*.py"),
        *(ROOT / "tests").rglob("*.py"),
    ]
    return {
        str(path.relative_to(ROOT)): path.read_text()
        for path in sorted(paths)
        if path != Path(__file__)
    }


PLAIN_ID = re.compile(r"\b(?:(?:INV|LIV|H|N)-\d+|[MFA]\d{1,2})\b")
ID_IN_NAME = re.compile(r"(?<=_)(inv|liv|h|n)_(\d{2,3})(?:_and_(\d{2,3}))?(?![^\W_])")
SHORT_ID_IN_NAME = re.compile(r"(?:test_|Test)([hmfHMF])(\d{1,2})(?:_|\b)")


def cited_ids(text: str) -> Iterator[tuple[int, str]]:
    """Give every id in a text, as `INV-07` has it or as `test_inv_07_...` does, with its place."""
    for match in PLAIN_ID.finditer(text):
        yield match.start(), match[0]
    for match in ID_IN_NAME.finditer(text):
        for number in filter(None, match.groups()[1:]):
            yield match.start(), f"{match[1].upper()}-{number}"
    for match in SHORT_ID_IN_NAME.finditer(text):
        letter = match[1].upper()
        yield match.start(), f"H-{int(match[2]):02d}" if letter == "H" else letter + match[2]


NUMBERS = r"\d{1,2}(?:\.\d{1,2})?(?:(?:,|\s+and)\s+\d{1,2}\.\d{1,2})*"
FORMAT_RULES = re.compile(
    rf"\b(?:[Ff]ormat\s+rules?|format|[Rr]ules?(?: of)?|Table)\s+({NUMBERS})(?=[\s,.;:)]|$)"
)
FORMAT_RULE_IN_NAME = re.compile(r"_(?:rule|of_format)_(\d{1,2})_(\d{1,2})(?![^\W_])")


def cited_format_rules(text: str) -> Iterator[tuple[int, str]]:
    for match in FORMAT_RULES.finditer(text):
        is_named = "ormat" in match[0]
        for number in re.findall(r"\d+(?:\.\d+)?", match[1]):
            if is_named or "." in number:  # A plain "rule 1" is one of a list nearby.
                yield match.start(), number
    for match in FORMAT_RULE_IN_NAME.finditer(text):
        yield match.start(), f"{match[1]}.{match[2]}"


SECTION = re.compile(r"(?<![\d.])[1-9][._]\d{1,2}(?![\d.]*\d)")
BEFORE_SECTION = re.compile(
    r"(?:\b[Ss]ection |\b[Rr]ows? (?:of )?|nvariants |resolutions of |what |RFC-\d\d, "
    r"|Violation\(\s*\"|\btest_)$"
)
BEGINNING = re.compile(r'(?:"""|(?<!#)# )$')
OPENING = re.compile(r"\(\d\.\d+,?\s(?:case|[A-E]|H-|INV-|and)")


ROW = re.compile(r"5\.([12]) ([A-E]\d?)\b|test_5_([12])_([a-e]\d?)_(?:and_([a-e]\d)_)?")
CASE = re.compile(r"5\.8,? case (\w+)|test_5_8_case_([0-9][a-z]?)_")


def cited_sections(text: str) -> Iterator[tuple[int, str]]:
    for match in SECTION.finditer(text):
        at, before = match.start(), text[max(0, match.start() - 24) : match.start()]
        if (
            BEFORE_SECTION.search(before)
            or (BEGINNING.search(before) and text[match.end() : match.end() + 1] in " ,:")
            or OPENING.match(text, max(0, at - 1))
        ):
            yield at, match[0].replace("_", ".")


def cited_rows(text: str) -> Iterator[tuple[int, tuple[str, str]]]:
    """Give every row of an outcome that is cited: its section, and its name."""
    for match in ROW.finditer(text):
        number = match[1] or match[3]
        for name in filter(None, (match[2], match[4], match[5])):
            yield match.start(), (f"5.{number}", name.upper())
    for match in CASE.finditer(text):
        yield match.start(), ("5.8", match[1] or match[2])


def place(path: str, text: str, at: int) -> str:
    return f"{path}:{text.count(chr(10), 0, at) + 1}"


# What holds them ---------------------------------------------------------------------------------


@cache
def names_of_tests() -> frozenset[str]:
    """Return the names of test functions, test classes and modules of tests."""
    found = set()
    for path, text in sources().items():
        if path.startswith("tests/"):
            found.add(Path(path).stem)
            found.update(re.findall(r"\b(?:def (test_\w+)|class (Test\w+))", text))
    return frozenset(
        name for one in found for name in ((one,) if isinstance(one, str) else one) if name
    )


@cache
def simulator() -> str:
    return "\n".join(path.read_text() for path in sorted(SIMULATOR.rglob("*.py")))


@cache
def checks() -> frozenset[str]:
    """Return the ids under which the simulator reports."""
    made = r'\b(?:Invariant\(\s*id=|Violation\(\s*|_at_commit\(\s*)"([^"]+)"'
    return frozenset(re.findall(made, simulator()))


@cache
def scenarios() -> frozenset[str]:
    given = r"\((?:[^()]|\([^()]*\))*\)"
    return frozenset(re.findall(rf"^def ([a-z]\w*){given} -> Scenario:", simulator(), re.M))


@cache
def mutants() -> Mapping[str, frozenset[str]]:
    """Return the mutants of the catalog, with the rules that each must violate."""
    catalog = (SIMULATOR / "catalog.py").read_text()
    found: dict[str, frozenset[str]] = {}
    for path in sorted((SIMULATOR / "mutants").glob("*.py")):
        made = list(_mutants_in(path.read_text()))
        assert not made or f"*{path.stem}_mutants.MUTANTS" in catalog, f"{path.stem} is not run"
        found.update(made)
    return found


def parsed(text: str) -> ast.Module:
    """Parse a module. Python 3.11 fails if garbage that is collected meanwhile parses, too."""
    gc.disable()
    try:
        return ast.parse(text)
    finally:
        gc.enable()


def _mutants_in(text: str) -> Iterator[tuple[str, frozenset[str]]]:
    for node in ast.walk(parsed(text)):
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Mutant":
            given = {word.arg: word.value for word in node.keywords}
            yield (
                ast.literal_eval(given["name"]),
                frozenset(ast.literal_eval(given["must_violate"])),
            )


@cache
def names_of_code() -> frozenset[str]:
    """Return the names of modules, classes, functions and methods of the product."""
    found = set()
    for path, text in sources().items():
        if path.startswith("src/"):
            found.add(Path(path).stem)
            found.update(re.findall(r"^ *(?:def|class) (\w+)", text, re.MULTILINE))
    return frozenset(found)


class Held(NamedTuple):
    """What a cell says that a rule is held by."""

    checks: frozenset[str]
    tests: frozenset[str]
    mutants: frozenset[str]
    scenarios: frozenset[str]
    others: frozenset[str]
    """Whatever else is set as code, such as targets of make."""


def held_by(rule: Rule) -> Held:
    sims = re.findall(r"\bsim\b(?: ((?:INV|LIV)-\d{2,3}|\d\.\d+))?", rule.held_by)
    code = frozenset(re.findall(r"`([^`]+)`", rule.held_by))
    tests = frozenset(name for name in code if name.startswith(("test_", "Test")))
    named = re.findall(r"scenarios? ((?:`\w+`(?:, | and )?)+)", rule.held_by)
    scenarios = frozenset(re.findall(r"`(\w+)`", " ".join(named)))
    return Held(
        checks=frozenset(other or rule.id for other in sims),
        tests=tests,
        mutants=frozenset(re.findall(r'"([^"]+)"', rule.held_by)),
        scenarios=scenarios,
        others=code - tests - scenarios,
    )


def is_test(name: str) -> bool:
    if name.endswith("*"):
        return any(one.startswith(name[:-1]) for one in names_of_tests())
    return name in names_of_tests()


def is_other(name: str) -> bool:
    is_target = name.startswith("make ") and f"\n{name[5:]}:" in (ROOT / "Makefile").read_text()
    return is_target or name in names_of_code()


# The tests ---------------------------------------------------------------------------------------


def test_every_cited_rule_is_defined() -> None:
    known = rules().keys() | TOY_IDS | NAMES_OF_FILES
    unknown = [
        f"{place(path, text, at)} cites {cited}"
        for path, text in sources().items()
        for at, cited in cited_ids(text)
        if cited not in known
    ]
    assert not unknown, "\n".join(unknown)


def test_every_cited_section_and_row_is_defined() -> None:
    unknown: list[str] = []
    for path, text in sources().items():
        unknown += [
            f"{place(path, text, at)} cites section {number}"
            for at, number in cited_sections(text)
            if number not in sections()
        ]
        unknown += [
            f"{place(path, text, at)} cites row {row[1]} of {row[0]}"
            for at, row in cited_rows(text)
            if row[1] not in sections()[row[0]]
        ]
    assert not unknown, "\n".join(unknown)


def test_every_cited_format_rule_is_defined() -> None:
    unknown = [
        f"{place(path, text, at)} cites format rule {number}"
        for path, text in sources().items()
        for at, number in cited_format_rules(text)
        if number not in format_rules() and not _is_of_rules(path, number)
    ]
    assert not unknown, "\n".join(unknown)


def _is_of_rules(path: str, number: str) -> bool:
    """Whether a number in a page of the protocol is that of one of its own sections."""
    return path.startswith("docs/protocol/") and number in sections()


def test_every_rule_is_held() -> None:
    bare = {
        rule.id
        for rule in rules().values()
        if rule.must_be_held and not (held_by(rule).checks or held_by(rule).tests)
    }
    assert not bare


def test_every_hole_is_held_by_a_rule_or_a_test() -> None:
    for rule in rules().values():
        if rule.id.startswith(("H-", "N-")):
            held, others = held_by(rule), PLAIN_ID.findall(rule.held_by)
            assert any(held) or others, f"{rule.id} is held by nothing"


def test_what_holds_a_rule_exists() -> None:
    missing: list[str] = []
    for rule in rules().values():
        held = held_by(rule)
        missing += [f"{rule.id}: check {one}" for one in held.checks - checks()]
        missing += [f"{rule.id}: mutant {name}" for name in held.mutants - mutants().keys()]
        missing += [f"{rule.id}: test {name}" for name in sorted(held.tests) if not is_test(name)]
        missing += [f"{rule.id}: scenario {name}" for name in held.scenarios - scenarios()]
        missing += [f"{rule.id}: name {name}" for name in sorted(held.others) if not is_other(name)]
    assert not missing, "\n".join(missing)


def test_what_the_simulator_checks_is_said() -> None:
    """Both ways: the page names all checks and mutants of a rule, and no others."""
    for rule in rules().values():
        if rule.must_be_held:
            held = held_by(rule)
            assert (rule.id in held.checks) == (rule.id in checks()), rule.id
            caught = {name for name, violated in mutants().items() if rule.id in violated}
            assert held.mutants == caught, rule.id


def test_what_keeps_a_rule_exists() -> None:
    missing = [
        f"{rule.id}: {name}"
        for rule in rules().values()
        for name in re.findall(r"`([A-Za-z_]\w*)`", rule.kept_by)
        if name not in names_of_code()
    ]
    assert not missing, "\n".join(missing)


def test_the_last_table_lists_what_is_not_kept() -> None:
    last = (PROTOCOL / "invariants.md").read_text().partition("\n## 7 ")[2]
    listed = re.findall(r"^\| ((?:INV|LIV)-\d{2,3}) \|", last, re.MULTILINE)
    told = {rule.id for rule in rules().values() if "see section 7" in _row_of(rule)}
    assert set(listed) == told


def _row_of(rule: Rule) -> str:
    text = (PROTOCOL / rule.page).read_text()
    return text.partition(f"\n| {rule.id} |")[2].partition("\n")[0]


# How the tests see citations ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("kept (INV-99, H-98)", ["INV-99", "H-98"]),
        ("def test_inv_98_and_99_hold()", ["INV-98", "INV-99"]),
        ("def test_liv_99_x(), `test_n_98_*`", ["LIV-99", "N-98"]),
        ("def test_inv_33_and_inv_52_over()", ["INV-33", "INV-52"]),
        ("def test_h43_x(); class TestM6; test_f10_x", ["H-43", "M6", "F10"]),
        ("under A1 by M9 (F2)", ["A1", "M9", "F2"]),
        ("# noqa: N802, B023; n_12x; 4M8; m_h_1", []),
    ],
)
def test_ids_are_seen(text: str, found: list[str]) -> None:
    assert _values(cited_ids(text)) == found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("(format rule 99.1)", ["99.1"]),
        ("format rules 5.1, 5.2 and\n5.9", ["5.1", "5.2", "5.9"]),
        ("properties (format 1.9, INV-79)", ["1.9"]),
        ("(format rule 9).", ["9"]),
        ("as rule 8.9 has it", ["8.9"]),
        ("test_format_rule_8_9, test_rule_7_9_x", ["8.9", "7.9"]),
        ("rule 1 of the proof; rules for 2", []),
    ],
)
def test_format_rules_are_seen(text: str, found: list[str]) -> None:
    assert _values(cited_format_rules(text)) == found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('yield Violation("5.99", x)', ["5.99"]),
        ("def test_5_99_x()", ["5.99"]),
        ("Rows 5.98 to 5.9; section 6.9", ["5.98", "6.9"]),
        ('"""5.98 under', ["5.98"]),
        ("(5.97, INV-02); (3.9, H-24); (5.96, case 3c)", ["5.97", "3.9", "5.96"]),
        ("IN (5.5, 7.0); float(3.5); took 5.2 s", []),
    ],
)
def test_sections_are_seen(text: str, found: list[str]) -> None:
    assert _values(cited_sections(text)) == found


def test_rows_are_seen() -> None:
    text = "5.1 C, test_5_2_d2_and_e1_x, 5.8, case 3z, test_5_8_case_3c_y"
    rows = [("5.1", "C"), ("5.2", "D2"), ("5.2", "E1"), ("5.8", "3z"), ("5.8", "3c")]
    assert _values(cited_rows(text)) == rows


def _values(found: Iterable[tuple[int, object]]) -> list[object]:
    return [value for _, value in found]
