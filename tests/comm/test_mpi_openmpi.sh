#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The transport over Open MPI: every operation on 1 to 8 ranks, whole and in parts.
flavour=openmpi
. "$(dirname "$0")/mpi_lib.sh"

for n in 1 2 3 5 8; do
    expect $n $n -- "$ranks" exchange
done
expect 3 3 -- "$ranks" exchange 1000
expect 2 2 -- "$ranks" early
# Another way between two ranks than shared memory.
expect 3 3 --mca btl self,tcp -- "$ranks" exchange

# Which module is opened: the one of the MPI library in this process.
unset MOXIE_MPI_LIBRARY
start 3 -- "$1/tests/mpi_launched" || true
[ "$(grep -c 'the sum is 3' "$tmp/out")" = 3 ] || fail "moxie_comm_mpi_launch: $(cat "$tmp/out" "$tmp/err")"
finish
