"""Apache Hudi on a server of S3: what its session needs to reach tables and locks there.

`make hudi` lays Hadoop's client for S3 beside Hudi's bundle. Hudi's own lock client for S3 is in
its module for AWS, of which no release of this Hudi can be fetched; the bundle has the lock
provider, and a client of ours, `java/s3_lock`, does the reads and conditional writes for it.
"""

from __future__ import annotations

from pathlib import Path

from tests.support.compiled_java import compile_java
from tests.support.hudi_peer import Bundle, NoHudiError, cache_folder
from tests.support.store_servers import S3Server


def s3_settings(bundle: Bundle, server: S3Server, folder: Path) -> dict[str, str]:
    """Return the settings of a session that reads and writes `s3://`, and locks tables there.

    The lock client is compiled into the folder.

    Raises:
        NoHudiError: Hadoop's client for S3 was not fetched, or there is no compiler for Java.
    """
    jars = sorted((cache_folder() / "s3").glob("*.jar"))
    if not jars:
        raise NoHudiError("Hadoop's client for S3 is not here. Run `make hudi`.")
    client = compile_java("s3_lock", [bundle.jar, *jars], folder)
    endpoint = f"http://{server.host}:{server.port}"
    # All of it on the class path of the virtual machine: the client has to see Hudi's classes, and
    # Spark would copy what it is told of by `spark.jars` for each session.
    return {
        "spark.driver.extraClassPath": ":".join(map(str, [bundle.jar, *jars, client])),
        "spark.hadoop.fs.s3.impl": "org.apache.hadoop.fs.s3a.S3AFileSystem",
        "spark.hadoop.fs.s3a.endpoint": endpoint,
        "spark.hadoop.fs.s3a.path.style.access": "true",
        "spark.hadoop.fs.s3a.connection.ssl.enabled": "false",
        "spark.hadoop.fs.s3a.access.key": "test",
        "spark.hadoop.fs.s3a.secret.key": "test",
        # Hudi opens all log files that it compacts, each a connection, and waits for one more.
        "spark.hadoop.fs.s3a.connection.maximum": "4096",
        # Else it deletes an object for each folder above a new file. To a server that keeps objects
        # as files these are the folders themselves, and it refuses.
        "spark.hadoop.fs.s3a.directory.marker.retention": "keep",
    }


def s3_lock_options(server: S3Server) -> dict[str, str]:
    """Return the options of a write by which the lock client finds the server."""
    return {
        "hoodie.test.s3.endpoint": f"http://{server.host}:{server.port}",
        "hoodie.test.s3.access.key": "test",
        "hoodie.test.s3.secret.key": "test",
    }
