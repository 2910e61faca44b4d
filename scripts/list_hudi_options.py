"""Write down every option that a bundle of Apache Hudi declares, for headwater.config.hudi_keys.

Run by the Python that has the bundle's Spark, with the bundle and the file to write:

    ~/.cache/headwater/hudi/spark35/bin/python scripts/list_hudi_options.py BUNDLE.jar \
        src/headwater/config/hudi_keys.txt
"""

from __future__ import annotations

import os
import sys
import zipfile
from pathlib import Path
from typing import Any

from pyspark import SparkConf
from pyspark.java_gateway import launch_gateway

PROPERTY = "org.apache.hudi.common.config.ConfigProperty"
SCALA_OBJECTS = {
    "org.apache.hudi.DataSourceReadOptions$": "Data source: reads",
    "org.apache.hudi.DataSourceWriteOptions$": "Data source: writes",
}
FIRST = (
    *SCALA_OBJECTS.values(),
    *("Table", "Write", "Common", "Common Index", "Storage", "Reader", "Clustering"),
    *("Compaction", "Clean", "Archival", "Common Lock", "Storage-based lock", "Metadata"),
)
"""The pages that most people look for; the others follow as they are found."""
UNTITLED = {
    "HoodieInternalConfig": "Internal settings",
    "StorageBasedLockConfig": "Storage-based lock",
    "HoodieTableServiceManagerConfig": "Table service manager",
    "HoodieTimeGeneratorConfig": "Time generator",
    "HiveSyncConfigHolder": "Hive Sync",
}
DEFAULT_LENGTH_MAX = 120


def main(bundle: str, target: str) -> None:
    os.environ["PYSPARK_SUBMIT_ARGS"] = f"--driver-class-path {bundle} pyspark-shell"
    gateway: Any = launch_gateway(SparkConf())  # type: ignore[no-untyped-call]
    try:
        pages = dict(find_pages(gateway, bundle))
    finally:
        gateway.shutdown()
    seen: set[str] = set()
    lines = [
        "# Every option of Apache Hudi 1.2.0: key, default, older names. "
        "Written by scripts/list_hudi_options.py."
    ]
    for title in (*FIRST, *(title for title in pages if title not in FIRST)):
        rows = [row for row in sorted(pages.get(title, [])) if row[0] not in seen]
        seen.update(key for key, *_ in rows)
        if rows:
            lines += ["", f"[{title}]", *("\t".join(row).rstrip() for row in rows)]
    Path(target).write_text("\n".join(lines) + "\n", encoding="utf-8")


def find_pages(gateway: Any, bundle: str) -> Any:
    """Return by title the key, default and older names of each option."""
    of_name = gateway.jvm.java.lang.Class.forName
    page_of = of_name("org.apache.hudi.common.config.ConfigClassProperty")
    loader = page_of.getClassLoader()
    pages: dict[str, list[tuple[str, str, str]]] = {}
    for name in zipfile.ZipFile(bundle).namelist():
        short = name.rpartition("/")[2].removesuffix(".class")
        if not name.startswith("org/apache/hudi/") or "Config" not in short + "Options":
            continue
        try:
            found = of_name(name.removesuffix(".class").replace("/", "."), False, loader)
            fields = [f for f in found.getDeclaredFields() if f.getType().getName() == PROPERTY]
            page = found.getAnnotation(page_of)
        except Exception:  # noqa: BLE001 - a class whose own dependencies the bundle lacks
            continue
        title = UNTITLED.get(short) if page is None else plain(page.name())
        for field in fields if title else ():
            field.setAccessible(True)
            pages.setdefault(str(title), []).append(row_of(field.get(None)))
    for name, title in SCALA_OBJECTS.items():
        found = of_name(name)
        self = found.getField("MODULE$").get(None)
        nothing = gateway.new_array(gateway.jvm.java.lang.Object, 0)
        for method in found.getMethods():
            if method.getParameterCount() == 0 and method.getReturnType().getName() == PROPERTY:
                pages.setdefault(title, []).append(row_of(method.invoke(self, nothing)))
    return pages


def plain(title: str) -> str:
    for word in (" Configurations", " Configs", " configs", " Options"):
        title = title.replace(word, "")
    return title.replace("Hudi Table Basic", "Table")


def row_of(option: Any) -> tuple[str, str, str]:
    default = str(option.defaultValue()) if option.hasDefaultValue() else ""
    if default in ("True", "False"):
        default = default.lower()
    older = ",".join(str(name) for name in option.getAlternatives())
    return option.key(), default.strip()[:DEFAULT_LENGTH_MAX], older


if __name__ == "__main__":
    main(*sys.argv[1:])
