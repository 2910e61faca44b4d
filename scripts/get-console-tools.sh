#!/bin/sh
# Fetch what the tests of the console need into a cache outside the project: axe-core, which looks
# for what people with disabilities would stumble over. The browser is the system's own, such as
# Debian's package chromium. What cannot be had is said; the tests that need it are skipped.
set -u

cache="${XDG_CACHE_HOME:-$HOME/.cache}/headwater/console"
axe="axe-core@4.14.0"
mkdir -p "$cache"

if [ -f "$cache/node_modules/axe-core/axe.min.js" ]; then
  echo "axe-core: $cache/node_modules/axe-core/axe.min.js"
elif ! command -v npm >/dev/null 2>&1; then
  echo "axe-core: npm is not here to fetch it; install it, or set HEADWATER_AXE." >&2
elif npm install --silent --no-audit --no-fund --prefix "$cache" "$axe" >"$cache/npm.log" 2>&1; then
  echo "axe-core: $cache/node_modules/axe-core/axe.min.js"
else
  echo "axe-core: it could not be fetched; $cache/npm.log says why." >&2
fi

if command -v "${HEADWATER_CHROMIUM:-chromium}" >/dev/null 2>&1; then
  echo "browser: $(command -v "${HEADWATER_CHROMIUM:-chromium}")"
else
  echo "browser: chromium is not here; install the system's package, or set HEADWATER_CHROMIUM." >&2
fi
