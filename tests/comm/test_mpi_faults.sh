#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Ranks over Open MPI that are late, stopped, killed or go: the others fail soon after the deadline and name the rank.
# Without its recovery option the launcher ends them all instead.
# shellcheck disable=SC2086 # $recovery is words
flavour=openmpi
. "$(dirname "$0")/mpi_lib.sh"

for mode in leaves breaks; do
    expect 4 4 $recovery -- "$ranks" "$mode"
done
expect_named 4 4 $recovery -- "$ranks" late
expect 2 2 $recovery -- "$ranks" odd
expect_named 4 3 $recovery -- "$ranks" stopped
# A rank that is killed while it writes into Open MPI's shared memory may also leave a survivor inside MPI for ever, once
# in some hundred trials (docs/ranks.md); timeout ends such a trial.
moment=41000 # us; others: test_mpi_degraded.sh
limit=40
expect_named 4 3 $recovery -- "$ranks" killed $moment
limit=150
# Over connections: the signal of a broken one must not end a survivor.
expect_named 4 3 $recovery --mca pml ob1 --mca btl self,tcp -- "$ranks" killed $moment

start 3 -- "$ranks" killed && fail "the launcher says that all is well, though a rank was killed"
finish
