#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Ranks over Open MPI that lose one of them while they run: the runs end without it, and the others start anew. Then as
# many trials as MOXIE_TEST_TRIALS says, each with another moment.
flavour=openmpi
. "$(dirname "$0")/mpi_lib.sh"
degraded=$build/tests/mpi_degraded_$flavour

expect 4 3 --enable-recovery -- "$degraded" stopped $(($$ % 50 * 1000))
trial=0
while [ "$trial" -lt "${MOXIE_TEST_TRIALS:-0}" ]; do
    trial=$((trial + 1))
    moment=$((trial * 7919 % 90000))
    expect 4 3 --enable-recovery -- "$degraded" stopped $moment
    expect 4 3 --enable-recovery -- "$ranks" stopped
    expect 3 2 --enable-recovery -- "$degraded" killed $moment
    expect 4 3 --enable-recovery -- "$ranks" killed $moment
    expect 4 4 --enable-recovery -- "$ranks" late
done
finish
