#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Ranks over Open MPI that are late, stopped, killed or go: the others fail soon after the deadline and name the rank. Without its recovery option the launcher ends them all instead.
# shellcheck disable=SC2086 # $recovery is words
flavour=openmpi
. "$(dirname "$0")/mpi_lib.sh"

for mode in late leaves breaks; do
    expect 4 4 $recovery -- "$ranks" "$mode"
done
expect 2 2 $recovery -- "$ranks" odd
expect 4 3 $recovery -- "$ranks" stopped
# A rank that is killed while it writes into Open MPI's shared memory may leave a survivor inside MPI for ever, once in
# some hundred trials (docs/ranks.md). Such a trial, which timeout ends with 124, is repeated; two in a row are a failure.
moment=41000 # us; others: test_mpi_degraded.sh
limit=40
start 4 $recovery -- "$ranks" killed $moment || [ $? != 124 ] ||
    start 4 $recovery -- "$ranks" killed $((moment + 777)) || true
check 4 3 "$recovery" killed $moment
limit=150
# Over connections: the signal of a broken one must not end a survivor.
expect 4 3 $recovery --mca pml ob1 --mca btl self,tcp -- "$ranks" killed $moment

start 3 -- "$ranks" killed && fail "the launcher says that all is well, though a rank was killed"
finish
