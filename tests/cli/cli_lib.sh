# SPDX-License-Identifier: Apache-2.0
# Shared by the tests of the command-line tool. Sourced with the build folder as $1; makes a scratch folder $tmp
# that goes with the script.
set -eu
moxie=$1/moxie
[ -x "$moxie" ] || { echo "skipped: $moxie was not built"; exit 77; }
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
PYTHONPATH=$(cd "$(dirname "$0")" && pwd) PYTHONDONTWRITEBYTECODE=1 # tensors.py
export PYTHONPATH PYTHONDONTWRITEBYTECODE
failures=0

fail() {
    echo "FAILED: $*"
    failures=$((failures + 1))
}

# expect CODE TEXT COMMAND...: the exit code (a shell pattern), and an extended regular expression that the output must contain.
expect() {
    want=$1 text=$2
    shift 2
    code=0
    "$@" >"$tmp/out" 2>"$tmp/err" || code=$?
    # shellcheck disable=SC2254 # a pattern: "[34]"
    case "$code" in
    $want) ;;
    *) fail "exit code $code instead of $want: $* $(head -c 600 "$tmp/err")" ;;
    esac
    cat "$tmp/out" "$tmp/err" | grep -qE -- "$text" || fail "no \"$text\" from: $* -- $(cat "$tmp/out" "$tmp/err" | head -c 600)"
}

# Small checkpoints: true names and formats, small sizes.
synth() {
    preset=$1 format=$2 dir=$3
    shift 3
    "$moxie" synth "$preset" --format "$format" -o "$dir" --layers 1 --experts 16 --hidden 256 --intermediate 128 "$@" >/dev/null
}

# resume OUT COMMAND...: again, until OUT is there and nothing else of the work. A killed process may hold its lock for a moment.
resume() {
    resumed=$1
    shift
    for _ in $(seq 100); do
        "$@" >/dev/null 2>"$tmp/err" || true
        [ ! -e "$resumed" ] || [ -e "$resumed.partial" ] || [ -e "$resumed/moxie_quantize.finished.json" ] || return 0
        sleep 0.3
    done
    fail "a killed run is not resumed: $(cat "$tmp/err")"
}

finish() {
    [ "$failures" = 0 ] && exit 0
    echo "$failures failures"
    exit 1
}
