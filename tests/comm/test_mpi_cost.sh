#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A comm over Open MPI and MPICH beside MPI_Alltoallv of the same bytes: every byte arrives. The ratios are printed, and
# judged only where MOXIE_TEST_MPI_RATIO says how large they may be: on a busy machine they say little.
flavour=openmpi
. "$(dirname "$0")/mpi_lib.sh"
for n in 2 4; do
    start $n -- "$build/tests/mpi_cost_openmpi" 15 "${MOXIE_TEST_MPI_RATIO:-0}" || true
    cat "$tmp/out"
    [ "$(count_fine)" = $n ] || fail "$n ranks: $(tail -n 5 "$tmp/err")"
    [ "$(grep -c "^$n ranks.* ratio " "$tmp/out")" = 6 ] || fail "not every size was timed over $n ranks"
done
flavour=mpich mpirun=mpirun.mpich
export MOXIE_MPI_LIBRARY="$build/libmoxie_mpich.so"
if [ -e "$MOXIE_MPI_LIBRARY" ] && command -v "$mpirun" >/dev/null; then # its ranks do not give way: two, no more
    start 2 -- "$build/tests/mpi_cost_mpich" 15 "${MOXIE_TEST_MPI_RATIO:-0}" || true
    cat "$tmp/out"
    [ "$(count_fine)" = 2 ] || fail "2 ranks, mpich: $(tail -n 5 "$tmp/err")"
    [ "$(grep -c "^2 ranks.* ratio " "$tmp/out")" = 6 ] || fail "mpich: not every size was timed over 2 ranks"
fi
finish
