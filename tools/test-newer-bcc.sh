#!/bin/bash
# test-newer-bcc.sh PYTHON: compile and load every BPF program with Debian 13's BCC, in a chroot, on this machine's kernel.
# Needs root. The chroot is kept in ~/.cache/fencepath/trixie; it has no network, so its Python packages come from here.
set -euo pipefail

python=$1 repo=$(cd "$(dirname "$0")/.." && pwd)
root=${XDG_CACHE_HOME:-$HOME/.cache}/fencepath/trixie
work=$repo/.build/newer-bcc

[ "$(id -u)" = 0 ] || { echo "test-bcc needs root" >&2; exit 1; }
if ! command -v debootstrap > /dev/null; then
    echo "installing debootstrap"
    { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends debootstrap; } > /dev/null
fi
if [ ! -e "$root/usr/lib/python3/dist-packages/bcc/__init__.py" ]; then
    rm -rf "$root"
    mkdir -p "$(dirname "$root")"
    log=$(mktemp)
    echo "unpacking Debian 13 into $root"
    if ! debootstrap --variant=minbase --include=python3,python3-bpfcc trixie "$root" "$("$repo/tools/debian-mirror.sh")" > "$log" 2>&1; then
        tail -20 "$log" >&2
        exit 1
    fi
    rm -f "$log"
fi

version=$(chroot "$root" python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])')
rm -rf "$work"
mkdir -p "$work"
"$python" -m pip wheel --quiet --no-deps --wheel-dir "$work" "$repo"
"$python" -m pip install --quiet --target "$work/packages" --python-version "$version" --only-binary=:all: \
    "$work"/*.whl pytest pytest-timeout hypothesis

export root repo work
unshare --mount bash -euc '
    mkdir -p "$root/repo" "$root/packages" "$root/sys" "$root/dev" "$root/proc"
    mount --rbind /sys "$root/sys"
    mount --rbind /dev "$root/dev"
    mount -t proc proc "$root/proc"
    mount --bind "$repo" "$root/repo"
    mount --bind "$work/packages" "$root/packages"
    exec chroot "$root" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 \
        PYTHONDONTWRITEBYTECODE=1 FENCEPATH_REQUIRE_BPF=1 PYTHONPATH=/packages:/repo:/usr/lib/python3/dist-packages \
        sh -euc "
            cd /repo
            python3 -c \"import bcc; print(f\\\"BCC {bcc.__version__}\\\")\"
            python3 -m pytest -q -p no:cacheprovider \
                -k \"compiles_and_loads or is_accepted or load_with_every_kernel or taken_by_the_verifier\" \
                plugins/*/tests/test_*conformance.py plugins/drm/tests/test_programs.py tests/core/test_bpf_compiler.py \
                tests/core/test_testing_matrix.py tests/core/test_tracepoints_live.py
        "
'
