"""The options that Apache Hudi 1.2 has, page by page, as `hudi_keys.txt` lists them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files


@dataclass(frozen=True, slots=True)
class HudiKey:
    """One option of Hudi's."""

    key: str
    default: str
    """As text; blank if there is none."""
    older_names: tuple[str, ...]


def load_hudi_keys() -> Mapping[str, tuple[HudiKey, ...]]:
    """Load Hudi's options by the titles of its configuration pages."""
    listed = files("headwater.config").joinpath("hudi_keys.txt").read_text(encoding="utf-8")
    pages: dict[str, list[HudiKey]] = {}
    page: list[HudiKey] = []
    for line in listed.splitlines():
        if line.startswith("["):
            page = pages.setdefault(line.strip("[]"), [])
        elif line and not line.startswith("#"):
            key, default, older, *_ = [*line.split("\t"), "", ""]
            page.append(HudiKey(key, default, tuple(older.split(",")) if older else ()))
    return {title: tuple(keys) for title, keys in pages.items()}
