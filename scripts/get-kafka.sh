#!/bin/sh
# Fetch Apache Kafka's broker, and Spark's own package for Kafka, into a cache outside the project.
# The tests of jobs that read a topic run them on loopback, and are skipped where this failed.
#
# The package should be of the Spark that is installed, whose version is the first argument; where
# that release of it cannot be had, one of the same minor version before it is taken.
set -eu

spark="${1:?usage: get-kafka.sh SPARK_VERSION}"
kafka="3.9.1" # Whose clients are those of Spark's package as well.
pool="2.12.1"
cache="${XDG_CACHE_HOME:-$HOME/.cache}/headwater/kafka"
maven="mvn -B -q org.apache.maven.plugins:maven-dependency-plugin:3.8.1"

if [ -d "$cache/broker" ] && [ -d "$cache/spark-$spark" ]; then
  echo "Kafka: $cache"
  exit 0
fi
if ! command -v mvn >/dev/null 2>&1; then
  echo "Kafka: Maven is not here to fetch it; install mvn." >&2
  exit 1
fi
mkdir -p "$cache/pom"

give_up() {
  echo "Kafka: $1 could not be fetched; $cache/mvn.log says why." >&2
  exit 1
}

fetch_broker() {
  cat >"$cache/pom/pom.xml" <<POM
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>headwater</groupId><artifactId>tests</artifactId><version>1</version>
  <dependencies>
    <dependency>
      <groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>$kafka</version>
    </dependency>
  </dependencies>
</project>
POM
  (cd "$cache/pom" && $maven:copy-dependencies -DincludeScope=runtime \
    -DoutputDirectory="$cache/broker.new" >"$cache/mvn.log" 2>&1)
}

# copy GROUP:NAME:VERSION: one jar for Spark, without what it needs.
copy() {
  $maven:copy -Dartifact="$1" -DoutputDirectory="$cache/spark.new" >"$cache/mvn.log" 2>&1
}

rm -rf "$cache/broker.new" "$cache/spark.new"
if [ ! -d "$cache/broker" ]; then
  fetch_broker || give_up "the broker"
  mv "$cache/broker.new" "$cache/broker"
fi
if [ ! -d "$cache/spark-$spark" ]; then
  patch="${spark##*.}"
  until copy "org.apache.spark:spark-sql-kafka-0-10_2.13:${spark%.*}.$patch"; do
    [ "$patch" -gt 0 ] || give_up "Spark's package for Kafka"
    patch=$((patch - 1))
  done
  provider="org.apache.spark:spark-token-provider-kafka-0-10_2.13"
  # Not every mirror has it of every release; without tokens any of Spark 4 will do.
  copy "$provider:${spark%.*}.$patch" || copy "$provider:4.0.0" || give_up "its provider of tokens"
  copy "org.apache.commons:commons-pool2:$pool" || give_up "commons-pool2"
  cp "$cache/broker/kafka-clients-$kafka.jar" "$cache/spark.new/"
  mv "$cache/spark.new" "$cache/spark-$spark"
fi
echo "Kafka: $cache"
