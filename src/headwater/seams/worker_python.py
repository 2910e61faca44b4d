"""Which Python the workers of Spark run.

Spark asks the environment for it (`PYSPARK_PYTHON`) and otherwise runs whatever `python3` is on the
path, which is another one than the driver's in an environment that is not activated. Here the
driver's own is named, if nobody named one and workers may be expected on machines where it is: not
under YARN or Kubernetes, nor where `spark-submit` has started Spark already.
"""

from __future__ import annotations

import os
import sys

PYTHON_VARIABLE = "PYSPARK_PYTHON"

_CHOSEN_BY = (
    PYTHON_VARIABLE,
    "PYSPARK_DRIVER_PYTHON",
    "PYSPARK_GATEWAY_PORT",
    "HADOOP_CONF_DIR",
    "YARN_CONF_DIR",
    "KUBERNETES_SERVICE_HOST",
)
"""If the environment has one of these, somebody else decides."""


def offer_interpreter() -> None:
    """Name this interpreter to sessions that this process starts later, unless there is one."""
    if sys.executable and not any(name in os.environ for name in _CHOSEN_BY):
        os.environ[PYTHON_VARIABLE] = sys.executable


def offered_interpreter() -> str | None:
    """Return this interpreter, if it is the one that the environment names."""
    named = os.environ.get(PYTHON_VARIABLE)
    return named if named and named == sys.executable else None
