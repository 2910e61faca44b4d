#!/bin/sh
# Spark needs Java 17 or newer: find it, install it where that is allowed, or ask for it.
set -eu

is_recent() {
  version=$("$1" -version 2>&1 | sed -n 's/.*version "\([0-9]*\).*/\1/p' | head -n 1)
  [ -n "$version" ] && [ "$version" -ge 17 ]
}

if [ -n "${JAVA_HOME:-}" ] && [ -x "$JAVA_HOME/bin/java" ] && is_recent "$JAVA_HOME/bin/java"; then
  exit 0
fi
if command -v java >/dev/null 2>&1 && is_recent "$(command -v java)"; then
  exit 0
fi
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
  echo "Installing a Java runtime from the system's packages ..."
  apt-get update -qq && { apt-get install -y -qq openjdk-17-jre-headless >/dev/null \
    || apt-get install -y -qq default-jre-headless >/dev/null; }
  is_recent "$(command -v java)" && exit 0
fi
echo "headwater needs Java 17 or newer: install a JRE and set JAVA_HOME, or put java on PATH." >&2
exit 1
