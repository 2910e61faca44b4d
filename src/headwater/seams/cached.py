"""A property that is computed once for an instance, under a lock of that instance.

That of `functools` has one lock for all instances of a class up to Python 3.11. Ours read storage:
threads that read two tables would wait for each other's round trips. The lock is gone once there is
a value, so that instances pickle.
"""

from __future__ import annotations

import functools
import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from functools import cached_property as cached_property
else:

    class cached_property(functools.cached_property):  # noqa: N801
        """See above; otherwise it is that of `functools`."""

        def __get__(self, instance: Any, owner: type | None = None) -> Any:
            if instance is None:
                return self
            values = instance.__dict__
            if self.attrname in values:
                return values[self.attrname]
            lock_name = f"lock of {self.attrname}"
            with values.setdefault(lock_name, threading.RLock()):
                if self.attrname not in values:
                    try:
                        values[self.attrname] = self.func(instance)
                    finally:
                        values.pop(lock_name, None)
                return values[self.attrname]
