"""How services are configured, and what advice may be about."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from headwater.config.clustering import ClusteringConfig
from headwater.config.compaction import CompactionConfig
from headwater.model.files import FileGroupId
from headwater.services.advice.advice import Need


@dataclass(frozen=True, slots=True, kw_only=True)
class RewriteSettings:
    """How services are configured, and how soon their work has to pay."""

    compaction: CompactionConfig
    clustering: ClusteringConfig
    reads_max: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """What advice may be about."""

    bytes_max: int | None = None
    """How many bytes one rewrite may cost; the least that brings anything is always taken."""
    avoided: Mapping[Need, Collection[FileGroupId]] = field(default_factory=dict)
    """File groups that are left alone for now."""
    is_cold_first: bool = False
    """Whether clustering leaves hot file groups alone as long as there are cold ones to gain by."""
