"""The lock config under the name that `table` and `spark` know."""

from __future__ import annotations

from headwater.config.lock import LockConfig

lock_config_from_options = LockConfig.from_options
