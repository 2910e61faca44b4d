#!/bin/sh
# Fetch the object stores that tests run on loopback into a cache outside the project: versitygw
# for S3, built by Go from its module, and Azurite for Azure, a package of npm. What cannot be had
# is said and left out; the tests of that store are skipped.
set -u

cache="${XDG_CACHE_HOME:-$HOME/.cache}/headwater/stores"
versitygw="github.com/versity/versitygw/cmd/versitygw@v1.8.0"
azurite="azurite@3.35.0"
mkdir -p "$cache"

if [ -x "$cache/bin/versitygw" ]; then
  echo "S3: $cache/bin/versitygw"
elif ! command -v go >/dev/null 2>&1; then
  echo "S3: Go is not here to build versitygw; install it, or set HEADWATER_VERSITYGW." >&2
elif GOBIN="$cache/bin" go install "$versitygw" >"$cache/go.log" 2>&1; then
  echo "S3: $cache/bin/versitygw"
else
  echo "S3: versitygw could not be built; $cache/go.log says why." >&2
fi

if [ -x "$cache/node_modules/.bin/azurite-blob" ]; then
  echo "Azure: $cache/node_modules/.bin/azurite-blob"
elif ! command -v npm >/dev/null 2>&1; then
  echo "Azure: npm is not here to fetch Azurite; install it, or set HEADWATER_AZURITE." >&2
elif npm install --silent --no-audit --no-fund --prefix "$cache" "$azurite" >"$cache/npm.log" 2>&1; then
  echo "Azure: $cache/node_modules/.bin/azurite-blob"
else
  echo "Azure: Azurite could not be fetched; $cache/npm.log says why." >&2
fi
