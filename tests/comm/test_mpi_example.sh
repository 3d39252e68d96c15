#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# examples/ranks_mpi.c on 1 to 4 processes: eight tokens, the same numbers each time.
flavour=openmpi
. "$(dirname "$0")/mpi_lib.sh"
unset MOXIE_MPI_LIBRARY # libmoxie finds the module itself
example=$build/examples/example_ranks_mpi_openmpi
[ -x "$build/moxie" ] || { echo "skipped: the tool, which makes the checkpoint, is not built"; exit 77; }

"$build/moxie" synth qwen3-30b-a3b -o "$tmp/model" --layers 1 --experts 8 --hidden 256 --intermediate 128 >/dev/null
for n in 1 2 3 4; do
    start $n -- "$example" "$tmp/model" || fail "$n ranks: $(cat "$tmp/out" "$tmp/err")"
    sort "$tmp/out" >"$tmp/out-$n"
    cmp "$tmp/out-1" "$tmp/out-$n" || fail "$n ranks print other numbers than one"
done
[ "$(grep -c '^token [0-7]: ' "$tmp/out-1")" = 8 ] || fail "not eight tokens: $(cat "$tmp/out-1")"
[ "$(cut -d: -f2 "$tmp/out-1" | sort -u | wc -l)" = 8 ] || fail "tokens are alike: $(cat "$tmp/out-1")"
start 2 -- "$example" "$tmp/absent" && fail "an absent model opened"
grep -q "there is no such directory" "$tmp/err" || fail "an absent model: $(cat "$tmp/err")"
finish
