#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The transport over MPICH: every operation on 1 and 2 ranks (it spins, so more ranks than processors take long), faults.
flavour=mpich
. "$(dirname "$0")/mpi_lib.sh"

expect 1 1 -- "$ranks" exchange
expect 2 2 -- "$ranks" exchange
expect 2 2 -- "$ranks" exchange 1000
expect 2 2 -- "$ranks" early
expect 2 2 -- "$layers" 12
expect 2 2 -disable-auto-cleanup -- "$ranks" odd
expect_named 3 3 -disable-auto-cleanup -- "$ranks" late
for mode in leaves breaks; do
    expect 3 3 -disable-auto-cleanup -- "$ranks" "$mode"
done

unset MOXIE_MPI_LIBRARY
start 2 -- "$1/tests/mpi_launched" || true
[ "$(grep -c 'the sum is 2' "$tmp/out")" = 2 ] || fail "moxie_comm_mpi_launch: $(cat "$tmp/out" "$tmp/err")"
finish
