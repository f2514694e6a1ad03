#!/bin/bash
# make-venv.sh PYTHON FOLDER: a virtual environment with the package, editable, and everything its tests need.
set -euo pipefail

python=$1 folder=$2
[ -x "$folder/bin/python" ] || "$python" -m venv "$folder"
echo "installing the package and its development dependencies into $folder"
"$folder/bin/python" -m pip install --quiet --disable-pip-version-check --upgrade pip
"$folder/bin/python" -m pip install --quiet --disable-pip-version-check -e '.[dev]'
