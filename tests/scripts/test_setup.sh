#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# scripts/setup on pretended machines, each a PATH of stub programs: complete; without a library, without apt, without
# root; with another apt running.
set -eu
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
unset CC CMAKE_PREFIX_PATH
failures=0
fail() {
    echo "FAILED: $*"
    failures=$((failures + 1))
}

# machine: an empty one, with the programs that a shell script needs; has NAME...: programs that do nothing.
machine() {
    rm -rf "$tmp/bin"
    mkdir "$tmp/bin"
    for name in sh env awk sed grep tr cat mktemp rm printf dirname seq head; do
        ln -s "$(command -v "$name")" "$tmp/bin/$name"
    done
    has ninja help2man c++ pkg-config
    stub cmake 'echo "cmake version 3.25.1"'
    stub id 'echo 1000'
    stub sleep 'echo "slept $1" >>"$LOG"'
    # A compiler that lacks the header named in $LACKS.
    stub cc 'case $1 in *.c) ! grep -q "<${LACKS:-nothing}>" "$1" ;; esac'
    : >"$tmp/log"
}
stub() {
    printf '#!/bin/sh\n%s\n' "$2" >"$tmp/bin/$1"
    chmod +x "$tmp/bin/$1"
}
has() { for name; do stub "$name" ":"; done; }
# setup CODE TEXT [ARGUMENT...]: its exit code, and what it must say.
setup() {
    want=$1 text=$2
    shift 2
    code=0
    LOG=$tmp/log PATH=$tmp/bin scripts/setup "$@" >"$tmp/out" 2>&1 || code=$?
    [ "$code" = "$want" ] || fail "exit code $code instead of $want: $(cat "$tmp/out")"
    grep -qE -- "$text" "$tmp/out" || [ -z "$text" ] || fail "no \"$text\" in: $(cat "$tmp/out")"
}

# A complete machine: dpkg, apt and root are not needed.
machine
setup 0 ""
[ ! -s "$tmp/out" ] || fail "it prints something although nothing is missing: $(cat "$tmp/out")"
setup 0 "" test
# A missing optional program is no error.
rm "$tmp/bin/help2man"
setup 0 "without help2man"
# A CMake that is too old counts as missing.
stub cmake 'echo "cmake version 3.22.1"'
setup 1 "CMake 3.25"

# Without apt: what is missing, and how to go on.
machine
export LACKS=jansson.h
setup 1 "no apt-get here"
grep -q "Jansson" "$tmp/out" || fail "Jansson is not named: $(cat "$tmp/out")"
grep -q "cmocka\|xxHash" "$tmp/out" && fail "things are named that are there or not needed: $(cat "$tmp/out")"
grep -q "cmake --build build/release" "$tmp/out" || fail "no way to go on: $(cat "$tmp/out")"
# With apt, but neither root nor sudo.
stub apt-get 'echo "$@" >>"$LOG"'
setup 1 "no sudo.*libjansson-dev"
[ ! -s "$tmp/log" ] || fail "apt was called without root: $(cat "$tmp/log")"

# apt is called through sudo, waits for locks, and is believed only when the library is there afterwards.
stub sudo '"$@"'
setup 1 "apt does not have what is needed"
grep -q "Lock::Timeout=[1-9].* install .*libjansson-dev" "$tmp/log" || fail "apt's own waiting is not asked for: $(cat "$tmp/log")"

# Another apt holds the package lists twice, then the archives once, and lets go.
machine
stub id 'echo 0'
stub apt-get 'echo "$@" >>"$LOG"
case "$*" in
*update*) [ "$(grep -c update "$LOG")" -gt 2 ] || { echo "E: Could not get lock /var/lib/apt/lists/lock. It is held by process 1" >&2; exit 100; } ;;
*install*) [ "$(grep -c " install" "$LOG")" -gt 1 ] || { echo "E: Unable to lock directory /var/cache/apt/archives/" >&2; exit 100; }
    : >"$LOG.installed" ;;
esac'
stub cc 'case $1 in *.c) [ -f "$LOG.installed" ] || ! grep -q "<jansson.h>" "$1" ;; esac'
setup 0 "another apt is at work"
[ "$(grep -c update "$tmp/log")" = 3 ] || fail "update was not tried again: $(cat "$tmp/log")"
[ "$(grep -c " install" "$tmp/log")" = 2 ] || fail "install was not tried again: $(cat "$tmp/log")"
[ "$(grep -c slept "$tmp/log")" = 3 ] || fail "it did not wait between tries: $(cat "$tmp/log")"

# A mirror fails twice, for the package lists and for a package; a third failure is the end.
rm -f "$tmp/log.installed"
: >"$tmp/log"
stub apt-get 'echo "$@" >>"$LOG"
case "$*" in
*update*) [ "$(grep -c update "$LOG")" -gt 2 ] || { echo "E: Failed to fetch http://mirror/InRelease  502 Bad Gateway" >&2; exit 100; } ;;
*install*) [ "$(grep -c " install" "$LOG")" -gt 2 ] || { echo "E: Unable to fetch some archives, maybe run apt-get update" >&2; exit 100; }
    : >"$LOG.installed" ;;
esac'
setup 0 ""
[ "$(grep -c slept "$tmp/log")" = 4 ] || fail "a mirror was not asked again, or at once: $(cat "$tmp/log")"
rm -f "$tmp/log.installed"
: >"$tmp/log"
stub apt-get 'echo "$@" >>"$LOG"; echo "E: Failed to fetch http://mirror/a.deb  502 Bad Gateway" >&2; exit 100'
setup 1 "502 Bad Gateway"
[ "$(grep -c " install" "$tmp/log")" = 3 ] || fail "a mirror was not asked three times: $(cat "$tmp/log")"

# Another failure ends at once, with what apt said.
rm -f "$tmp/log.installed"
: >"$tmp/log"
stub apt-get 'echo "$@" >>"$LOG"; echo "E: Unable to locate package libjansson-dev" >&2; exit 100'
setup 1 "Unable to locate package"
grep -q slept "$tmp/log" && fail "it waits although no lock is held"
[ "$failures" = 0 ] || { echo "$failures failures"; exit 1; }
