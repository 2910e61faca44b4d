"""Procedures of Apache Hudi, called on a table by its path or by a name that Hudi knows."""

from __future__ import annotations

from collections.abc import Mapping

from tests.support.hudi_peer import HudiPeer

# Procedures take no data source options, only settings of the session, which other tests share.
_CALL = """
for key, value in settings.items():
    spark.conf.set(key, value)
try:
    spark.sql(text).collect()
finally:
    for key in settings:
        spark.conf.unset(key)
"""
_SETTINGS = {"hoodie.metadata.enable": "false", "hoodie.embed.timeline.server": "false"}


def call(
    hudi: HudiPeer, procedure: str, arguments: str, settings: Mapping[str, str] | None = None
) -> None:
    """Call a procedure; it does without the metadata table unless settings say otherwise."""
    text = f"CALL {procedure}({arguments})"
    hudi.run(_CALL, text=text, settings={**_SETTINGS, **(settings or {})})


def register(hudi: HudiPeer, name: str, path: str) -> None:
    """Let statements know a table by a name; some procedures take no path."""
    hudi.execute(f"DROP TABLE IF EXISTS {name}")
    hudi.execute(f"CREATE TABLE {name} USING hudi LOCATION '{path}'")
