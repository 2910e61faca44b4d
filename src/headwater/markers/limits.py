"""What one request to the marker service may hold; the service and its clients keep to it."""

from __future__ import annotations

REQUEST_BYTES_MAX = 1 << 20
"""A marker takes about 150 bytes, and never much more than a kilobyte."""

MARKERS_PER_REQUEST_MAX = 250
"""So that markers with the longest paths, of which JSON escapes every letter, still fit."""
