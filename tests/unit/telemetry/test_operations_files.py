"""The dashboard and the alerts name metrics that exist, and the runbook knows every alert."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from headwater.seams.metrics import METRICS
from headwater.telemetry.collected import series_names

DOCS = Path(__file__).parents[3] / "docs"
DASHBOARD: dict[str, Any] = json.loads((DOCS / "operations" / "grafana.json").read_text())
ALERTS: dict[str, Any] = yaml.safe_load((DOCS / "operations" / "alerts.yml").read_text())
SERIES = {name: metric for metric in METRICS for name in series_names(metric)}
USED = re.compile(r"\b(headwater_\w+)(?:\{([^}]*)\})?")


def queries() -> Iterator[str]:
    for panel in DASHBOARD["panels"]:
        yield from (target["expr"] for target in panel.get("targets", ()))
    yield from (
        one["query"]["query"] for one in DASHBOARD["templating"]["list"] if one["type"] == "query"
    )


def rules() -> list[dict[str, Any]]:
    return [rule for group in ALERTS["groups"] for rule in group["rules"]]


def check_query(query: str) -> None:
    """Every series exists, and has the labels that it is asked by."""
    found = USED.findall(query)
    assert found, query
    for name, asked in found:
        assert name in SERIES, f"{name} in {query}"
        labels = re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", asked)
        assert set(labels) <= {*SERIES[name].labels, "le"}, f"{asked} of {name}"
    known = {label for name, _ in found for label in SERIES[name].labels}
    for grouped in re.findall(r"\bby \(([^)]*)\)", query):
        assert {label.strip() for label in grouped.split(",")} <= known | {"le"}, query
    assert query.count("(") == query.count(")"), query


def test_panels_show_metrics_that_exist() -> None:
    assert len(list(queries())) > 20
    for query in queries():
        check_query(query)


def test_every_metric_is_on_the_dashboard() -> None:
    shown = {SERIES[name].name for query in queries() for name, _ in USED.findall(query)}
    assert {metric.name for metric in METRICS} - shown == set()


def test_panels_have_numbers_and_places_of_their_own() -> None:
    panels = DASHBOARD["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    places = {(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in panels}
    assert len(places) == len(panels)


def test_alerts_ask_for_metrics_that_exist() -> None:
    for rule in rules():
        check_query(rule["expr"])
        assert rule["labels"]["severity"] in ("page", "ticket")
        assert rule["annotations"]["summary"].endswith(".")


def test_the_runbook_says_what_to_do_about_every_alert_and_which_of_them_wake() -> None:
    page = (DOCS / "guide" / "runbook.md").read_text()
    listed = dict(re.findall(r"^\| `(Headwater\w+)`( \(page\))? \|", page, re.MULTILINE))
    assert listed == {
        rule["alert"]: " (page)" if rule["labels"]["severity"] == "page" else "" for rule in rules()
    }
