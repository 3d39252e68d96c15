#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Ranks on two machines: two network namespaces with one cable between them. The transport, layers, the cable cut; and
# MOXIE_TEST_TRIALS ranks that die.
flavour=openmpi
. "$(dirname "$0")/mpi_lib.sh"
a=moxie$$a b=moxie$$b
command -v ip >/dev/null || { echo "skipped: no ip (package iproute2)"; exit 77; }
# What runs in a namespace belongs to this test.
end_all() {
    for name in $a $b; do ip netns pids $name 2>/dev/null | xargs -r kill -9 2>/dev/null || true; done
}
trap 'end_all
    ip netns del $a 2>/dev/null || true
    ip netns del $b 2>/dev/null || true
    rm -rf "$tmp"' EXIT
{ ip netns add $a && ip netns add $b && ip link add veth0 netns $a type veth peer name veth0 netns $b; } 2>"$tmp/err" ||
    { echo "skipped: no network namespaces here: $(head -1 "$tmp/err")"; exit 77; }
number=1
for name in $a $b; do
    ip -n $name addr add 10.77.0.$number/24 dev veth0
    ip -n $name link set veth0 up
    ip -n $name link set lo up
    number=2
done
# In the place of ssh: HOST COMMAND...
cat >"$tmp/agent" <<END
#!/bin/sh
shift
exec ip netns exec $b sh -c "\$*"
END
chmod +x "$tmp/agent"
if [ -n "$ulfm" ]; then
    network="--prtemca plm_ssh_agent $tmp/agent --prtemca prte_if_include 10.77.0.0/24"
else
    network="--mca plm_rsh_agent $tmp/agent --mca oob_tcp_if_include 10.77.0.0/24"
fi
network="$network --mca pml ob1 --mca btl self,tcp --mca btl_tcp_if_include 10.77.0.0/24 --host 10.77.0.1:2,10.77.0.2:2"
inside="ip netns exec $a"

# shellcheck disable=SC2086 # options
expect 4 4 $network -- "$ranks" exchange
# shellcheck disable=SC2086
expect 4 4 $network -- "$layers" 12 82000

# The launcher does not end by itself where ranks have died, so it is ended when all that live have said their words.
# wait_fine N: of the run in the background.
wait_fine() {
    for try in $(seq 600); do
        [ "$(count_fine)" -lt "$1" ] || break
        sleep 0.1
    done
    end_all
    wait $job || true
}
limit=300

# Rank 1 dies on one machine; the others are on both.
trial=0
while [ "$trial" -lt "${MOXIE_TEST_TRIALS:-0}" ]; do
    trial=$((trial + 1))
    moment=$((trial * 7919 % 90000))
    # shellcheck disable=SC2086
    start 4 $recovery $network -- "$ranks" killed $moment &
    job=$!
    wait_fine 3
    check 4 3 killed $moment
done

# Cut while all ranks exchange. They end in time, each naming another; their words come when the cable is back.
# marks N: waits for N marks of ranks that have failed, a minute at most.
marks() {
    for try in $(seq 600); do
        [ "$(find "$tmp" -name 'cut.*' | wc -l)" -lt "$1" ] || break
        sleep 0.1
    done
}
# shellcheck disable=SC2086
start 4 $recovery $network -- "$ranks" cut "$tmp/cut" &
job=$!
for try in $(seq 600); do
    [ "$(grep -o ready "$tmp/out" 2>/dev/null | wc -l)" -lt 4 ] || break
    sleep 0.1
done
sleep 0.3
ip -n $a link set veth0 down
marks 4
ip -n $a link set veth0 up
wait_fine 4
[ "$(count_fine)" = 4 ] && ! grep -q ', line' "$tmp/out" || fail "a cut cable: $(cat "$tmp/out" "$tmp/err")"
finish
