#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Random layers on 2 to 8 processes over Open MPI: every rank's output bytes equal those of one process.
flavour=openmpi
. "$(dirname "$0")/mpi_lib.sh"

seed=81000
for n in 2 3 4 7 8; do
    expect $n $n -- "$layers" 12 $seed
    seed=$((seed + 12))
done
finish
