#!/bin/sh
# Fetch Apache Hudi's bundle for Spark into a cache outside the project, and write down in
# peer.json which jar it is and which Python has the Spark that it is made for.
#
# First choice is the bundle for the Spark that Headwater runs on. Where no release of it can be
# had, the bundle for Spark 3.5 runs in an environment of its own: it is the same Hudi. Beside that
# one goes Hadoop's client for S3, for the tests of Hudi's storage-based lock; they are skipped where
# it is not.
set -eu

cache="${XDG_CACHE_HOME:-$HOME/.cache}/headwater/hudi"
versions="1.2.3 1.2.2 1.2.1 1.2.0"
copy="org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy"

if [ -n "${HUDI_SPARK_BUNDLE:-}" ]; then
  [ -f "$HUDI_SPARK_BUNDLE" ] || { echo "HUDI_SPARK_BUNDLE names $HUDI_SPARK_BUNDLE, which is no file." >&2; exit 1; }
  echo "Hudi: $HUDI_SPARK_BUNDLE, as HUDI_SPARK_BUNDLE says"
  exit 0
fi
s3="hadoop-aws-3.3.4.jar aws-java-sdk-bundle-1.12.262.jar"
is_whole=yes
if [ -x "$cache/spark35/bin/python" ]; then
  for jar in $s3; do [ -f "$cache/s3/$jar" ] || is_whole=""; done
fi
if [ -f "$cache/peer.json" ] && [ -n "$is_whole" ]; then
  echo "Hudi: $(cat "$cache/peer.json")"
  exit 0
fi
if ! command -v mvn >/dev/null 2>&1; then
  if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
    echo "Installing Maven from the system's packages ..."
    apt-get update -qq && apt-get install -y -qq maven >/dev/null
  else
    echo "Fetching Hudi needs Maven: install mvn, or set HUDI_SPARK_BUNDLE=/path/to/bundle.jar." >&2
    exit 1
  fi
fi
mkdir -p "$cache"

# fetch ARTIFACT: the newest release that can be had goes into the cache; its path into $jar.
fetch() {
  for version in $versions; do
    echo "Looking for $1 $version ..."
    if mvn -B -q "$copy" -Dartifact="org.apache.hudi:$1:$version" -DoutputDirectory="$cache" >"$cache/mvn.log" 2>&1; then
      jar="$cache/$1-$version.jar"
      return 0
    fi
  done
  return 1
}

# fetch_s3: what Spark 3.5, with Hadoop 3.3, needs for s3a://. Without it all else works.
fetch_s3() {
  for artifact in org.apache.hadoop:hadoop-aws:3.3.4 com.amazonaws:aws-java-sdk-bundle:1.12.262; do
    echo "Looking for $artifact ..."
    if ! mvn -B -q "$copy" -Dartifact="$artifact" -DoutputDirectory="$cache/s3" >"$cache/mvn.log" 2>&1; then
      echo "$artifact could not be fetched; tests of the storage-based lock are skipped." >&2
      rm -rf "$cache/s3"
      return 0
    fi
  done
}

if [ -f "$cache/peer.json" ]; then
  fetch_s3
  echo "Hudi: $(cat "$cache/peer.json")"
  exit 0
fi
if fetch hudi-spark4.1-bundle_2.13; then
  python=""
elif fetch hudi-spark3.5-bundle_2.12; then
  echo "Installing Spark 3.5 beside it ..."
  python="$cache/spark35/bin/python"
  [ -x "$python" ] || "${PYTHON:-python3}" -m venv "$cache/spark35"
  "$python" -m pip install --quiet "pyspark>=3.5.6,<3.6"
  fetch_s3
else
  echo "No bundle of Apache Hudi 1.2 could be fetched; the last answer is in $cache/mvn.log." >&2
  exit 1
fi
printf '{"jar": "%s", "python": "%s"}\n' "$jar" "$python" >"$cache/peer.json"
echo "Hudi: $(cat "$cache/peer.json")"
