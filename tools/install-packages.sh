#!/bin/bash
# Installs what pip cannot: BCC's bindings (PyPI's `bcc` is another project), a C compiler, the venv module. Without root it says
# what is missing and goes on: recordings can be read without any of it.
set -euo pipefail

missing=()
need() { if ! eval "$2"; then missing+=("$1"); fi; }

need python3-bpfcc '[ -e /usr/lib/python3/dist-packages/bcc/__init__.py ]'
need gcc 'command -v cc > /dev/null'
need libc6-dev '[ -e /usr/include/stdio.h ]'
need python3-venv 'python3 -c "import ensurepip, venv" 2> /dev/null'
if [ ${#missing[@]} -gt 0 ]; then
    if [ "$(id -u)" = 0 ] && command -v apt-get > /dev/null; then
        echo "installing ${missing[*]}"
        export DEBIAN_FRONTEND=noninteractive
        log=$(mktemp)
        if ! { apt-get update -qq && apt-get install -y -qq --no-install-recommends "${missing[@]}"; } > "$log" 2>&1; then
            tail -20 "$log"
            echo "could not install ${missing[*]}; going on without" >&2
        fi
        rm -f "$log"
    else
        echo "not installed, and this user cannot install it: ${missing[*]} (recording needs python3-bpfcc and root)" >&2
    fi
fi
# Containers and minimal machines do not mount it, and tracepoints are found in it.
if [ "$(id -u)" = 0 ] && [ ! -d /sys/kernel/tracing/events ] && [ -d /sys/kernel/tracing ]; then
    mount -t tracefs nodev /sys/kernel/tracing 2> /dev/null || true
fi
