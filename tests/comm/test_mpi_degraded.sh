#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Ranks over Open MPI that lose one of them while they run: the runs end without it, and the others start anew. Then as
# many trials as MOXIE_TEST_TRIALS says, each with another moment. With ULFM also one that is killed, and over connections, as between machines.
# shellcheck disable=SC2086 # $recovery is words
flavour=openmpi
. "$(dirname "$0")/mpi_lib.sh"
degraded=$build/tests/mpi_degraded_$flavour
how=${ulfm:+shrink}

expect 4 3 $recovery -- "$degraded" stopped 23000
if [ -n "$ulfm" ]; then
    expect 4 3 $recovery -- "$degraded" killed 41000 shrink
    expect 4 3 $recovery --mca pml ob1 --mca btl self,tcp -- "$degraded" killed 17000 shrink
fi
trial=0
while [ "$trial" -lt "${MOXIE_TEST_TRIALS:-0}" ]; do
    trial=$((trial + 1))
    moment=$((trial * 7919 % 90000))
    expect 4 3 $recovery -- "$degraded" stopped $moment
    expect 4 3 $recovery -- "$ranks" stopped
    expect 3 2 $recovery -- "$degraded" killed $moment $how
    expect 4 3 $recovery -- "$ranks" killed $moment
    expect 4 4 $recovery -- "$ranks" late
done
finish
