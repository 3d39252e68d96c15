#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A program that dies of a signal in a step of scripts/gpu-check leaves its backtrace in what the step prints, and the step
# has failed by that signal, or as the program's own handler says, which acts after the report. A program that ends by
# itself prints nothing more.
set -eu
build=$1
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
[ -e "$build/tests/libcrash_report.so" ] || { echo "skipped: no library to preload in this build"; exit 77; }
fail() {
    echo "FAILED: $*"
    cat "$tmp/out"
    exit 1
}
cp scripts/gpu-check "$build/tests/libcrash_report.so" "$tmp/"
cat >"$tmp/program.c" <<'END'
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <unistd.h>
static void handle(int number) { _exit(number == SIGSEGV ? 3 : 4); }
static void *work(void *user) { return *(int *)user > 0 ? user : NULL; }
int main(int argc, char **argv)
{
    pthread_t thread;
    int number = 1;
    if (argc > 1 && argv[1][0] == 'a')
        abort();
    if (argc > 2)
        signal(SIGSEGV, handle);
    pthread_create(&thread, NULL, work, argc > 1 && argv[1][0] == 'b' ? (void *)(size_t)0x10 : &number);
    pthread_join(thread, NULL);
    return 0;
}
END
${CC:-cc} -w "$tmp/program.c" -o "$tmp/program" -lpthread

# run WAY SIGNAL [STATUS]: the step "info" runs $tmp/moxie, which dies so; "": it does not. STATUS: of the step.
run() {
    printf '#!/bin/sh\nulimit -c 0 # no core in the working directory\nexec "%s/program" %s\n' "$tmp" "$1" >"$tmp/moxie"
    chmod +x "$tmp/moxie"
    OUT=$tmp/logs "$tmp/gpu-check" run info >"$tmp/out" 2>&1 || true
    if [ -z "$2" ]; then
        grep -q '^1 passed, 0 failed' "$tmp/out" && ! grep -q libcrash_report "$tmp/out" || fail "a program that ends well"
        return
    fi
    grep -q "^== info: FAILED (${3:-$((128 + $2))})" "$tmp/out" || fail "$1: the step's status"
    grep -q "^libcrash_report: signal $2 (.*) at .*, thread [0-9]" "$tmp/out" || fail "$1: no report"
    grep -q "^$tmp/program(" "$tmp/out" || fail "$1: the program is in no frame"
}
run "" ""
run abort 6
run badly 11
grep -q ' at 0x10, thread' "$tmp/out" || fail "the address that was read"
run "badly handled" 11 3
echo "backtraces of a thread and of abort()"
