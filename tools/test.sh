#!/bin/bash
# test.sh BIN: every check of the project; warnings are errors. Live BPF tests must run where this user is root.
set -euo pipefail

bin=$1
cd "$(dirname "$0")/.."
step() { printf '\n== %s\n' "$1"; }

step ruff
"$bin/ruff" check .
"$bin/ruff" format --check .
step mypy
"$bin/mypy"
step pyright
"$bin/pyright" --pythonpath "$bin/python"
step docs
export NO_MKDOCS_2_WARNING=1 # its theme prints news that would bury warnings of ours
"$bin/mkdocs" build --strict --quiet --site-dir "$(mktemp -d)/site"
step pytest
if [ "$(id -u)" = 0 ]; then export FENCEPATH_REQUIRE_BPF=1; fi
"$bin/python" -m pytest -q --durations=10
