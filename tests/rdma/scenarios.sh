# scenarios.sh: the scenarios of tests/rdma/run on two hosts with Soft-RoCE. Sourced, here and in the virtual machine.
#
# A scenario is a function scenario_NAME and a word in one of the lists below. It runs outside both hosts; `on 0 COMMAND`
# runs a command on host 0. Status 0 passes, 77 skips, all others fail. v0 and v1 are the ends of the first wire, v2 and
# v3 of the second. $build is the build folder. The names of shell functions and lists are the interface.
# Limits, for a scenario that hangs.
seconds_of() { # seconds_of SCENARIO
    case $1 in
        jobs_failover | jobs_gid_failover | jobs_rails_lost) echo 240 ;;
        jobs_kills) echo $((60 + 15 * ${RDMA_KILLS:-30})) ;;
        jobs | jobs_random) echo 240 ;;
        rdma_check) echo 240 ;;
        *) echo 120 ;;
    esac
}
with_one_rail=(devices ping_pong conformance conformance_ucx loss reordering link gids memory_limit no_device
    jobs jobs_ucx jobs_options jobs_no_device jobs_random jobs_gids jobs_gid_lost jobs_loss jobs_link_flap jobs_kills jobs_memory_limit rdma_check)
with_two_rails=(two_rails jobs_two_rails jobs_failover jobs_gid_failover jobs_rails_lost)

# Checks. Each says what was wrong.
wrong() { echo "FAIL: $*"; return 1; }
says() { # says TEXT COMMAND...: the command's output has the text (a regular expression).
    local text=$1 output
    shift
    output=$("$@" 2>&1)
    grep -Eq -- "$text" <<<"$output" || { printf '%s\n' "$output" | tail -n 40; wrong "\`$*\` does not say: $text"; }
}
rdma_of() { on "$1" env "${@:2}" weft info | sed -n '/^RDMA/,/^Transports/p'; } # rdma_of HOST [VARIABLE=VALUE]...

# Ends what an earlier scenario did to the wires.
settle() {
    local port
    for port in v0 v1 v2 v3; do
        [ -e "/sys/class/net/$port" ] || continue
        tc qdisc del dev $port root 2>/dev/null
        ip link set $port up
    done
    active 0
}
# active RAIL: waits until both ports of the rail carry traffic.
active() {
    local try device
    for device in rxe$((2 * $1)) rxe$((2 * $1 + 1)); do
        for ((try = 0; try < 100; ++try)); do
            [[ $(</sys/class/infiniband/$device/ports/1/state) != *ACTIVE* ]] || continue 2
            sleep 0.1
        done
        wrong "$device does not come up" || return 1
    done
}

# ping_pong [MESSAGES [BYTES]]: between the hosts, through the driver, with the data checked.
ping_pong() {
    local meet
    meet=$(mktemp -d) || return 1
    on 0 "$build/tests/verbs/verbs_ping_pong" "" "" 0 "$meet" "$@" &
    on 1 "$build/tests/verbs/verbs_ping_pong" "" "" 1 "$meet" "$@" || { wait $!; return 1; }
    wait $!
}

scenario_devices() {
    local host
    for host in 0 1; do
        says "^  rxe$host:1 +RoCE, .*MTU 4096" rdma_of $host || return
        ! rdma_of $host | grep "rxe$((1 - host))" || wrong "host $host lists the other's device" || return
        says "a rank here +rxe$host:1, the only one" rdma_of $host || return
    done
    # The hosts do not see the network devices.
    says 'in another network namespace' rdma_of 0 || return
    says 'mean rxe[01]\?' on 0 env WEFT_IB_DEVICES=rxy0 weft info || return
    says 'rxe0:1 has no GID of index 77; it has index 0 fe80' on 0 env WEFT_IB_DEVICES=rxe0 WEFT_IB_GID_INDEX=77 weft info || return
    says 'rxe0:1 has no partition key 0x8123; it has 0xffff' on 0 env WEFT_IB_DEVICES=rxe0 WEFT_IB_PKEY=0x8123 weft info || return
    says 'not used +WEFT_IB_DISABLE' rdma_of 0 WEFT_IB_DISABLE=1
}
scenario_ping_pong() { ping_pong 200 4096; }
# The promises of all transports, between two processes of one host.
scenario_conformance() { on 0 env WEFT_TRANSPORTS=verbs "$build/tests/conformance/conformance_test" '[transport]'; }
scenario_conformance_ucx() {
    on 0 env WEFT_TRANSPORTS=ucx UCX_TLS=rc_verbs,tcp "$build/tests/conformance/conformance_test" '[transport]'
}
scenario_loss() {
    tc qdisc add dev v0 root netem loss 3% delay 1ms && ping_pong 100 4096
}
scenario_reordering() {
    # rxe counts each reordering of a message as a retry.
    tc qdisc add dev v0 root netem delay 2ms reorder 5% && ping_pong 200 16384
}
scenario_link() {
    ip link set v0 down
    says 'rxe0:1 .*not used: the port is DOWN' rdma_of 0 || return
    ip link set v0 up
    active 0 && ping_pong 20
}
scenario_gids() {
    local before
    before=$(rdma_of 0 | grep -oE '[0-9]+ GIDs') || return
    ip address add 10.77.9.1/24 dev v0
    says "rxe0:1 .*, $((${before% *} + 1)) GIDs" rdma_of 0 || return
    ip address del 10.77.9.1/24 dev v0
    says "rxe0:1 .*, $before" rdma_of 0 && ping_pong 20
}
# Root may pin all memory as long as it has CAP_IPC_LOCK.
limited() { prlimit --memlock=65536:65536 setpriv --bounding-set=-ipc_lock "$@"; }
scenario_memory_limit() {
    export -f limited
    says 'RLIMIT_MEMLOCK of this process is 65536 bytes' on 0 bash -c 'limited weft info' || return
    says 'verbs.memlock' on 0 bash -c 'limited "$build/tests/verbs/verbs_ping_pong" "" "" 0 "$PWD" 1 1048576'
}
# A container without the devices.
scenario_no_device() {
    says '/sys shows rxe.*/dev/infiniband is missing: start the container' on 0 unshare --mount bash -c '
        mount -t tmpfs none /dev && mknod -m 666 /dev/null c 1 3 && mknod -m 666 /dev/urandom c 1 9 && weft info'
}
scenario_two_rails() {
    says '^  rxe0:1 +RoCE' rdma_of 0 && says '^  rxe2:1 +RoCE' rdma_of 0 || return
    says 'a rank here +rxe2:1' rdma_of 0 WEFT_IB_DEVICES=^rxe0 || return
    says 'rxe2:1 .*rail 1' rdma_of 0 WEFT_IB_DEVICES==rxe0:1:0,rxe2:1:1 || return
    ip link set v0 down
    says 'a rank here +rxe2:1' rdma_of 0
}

# Jobs of two hosts with the transport over verbs, which may not be built.
needs_transport() {
    on 0 weft info >info.txt
    grep -Eq '^  verbs +yes' info.txt || { echo "the transport over verbs is not built"; exit 77; }
}
# job RANKS PROGRAM...: half of the ranks on each host. Leaves rank0.log and so on, and their statuses in $statuses.
job_port=20100
start_job() {
    local ranks=$1 rank half
    shift
    half=$((ranks / 2)) job_port=$((job_port + 1)) ranks_running=()
    for ((rank = 0; rank < ranks; ++rank)); do
        on $((rank / half)) env WEFT_RANK=$rank WEFT_SIZE=$ranks WEFT_LOCAL_RANK=$((rank % half)) WEFT_LOCAL_SIZE=$half \
            WEFT_ROOT_HOST=10.78.0.1 WEFT_ROOT_PORT=$job_port WEFT_SECRET=0123456789abcdef0123456789abcdef WEFT_DEBUG=INFO \
            WEFT_SLEEP_US=50 "$@" >rank$rank.log 2>&1 &
        ranks_running+=($!)
    done
}
end_job() {
    local each
    statuses=()
    for each in "${ranks_running[@]}"; do
        wait "$each"
        statuses+=($?)
    done
}
# Waits until all ranks of the job have links.
linked() {
    local rank try
    for ((rank = 0; rank < ${#ranks_running[@]}; ++rank)); do
        for ((try = 0; try < 300; ++try)); do
            ! grep -q ' links rank ' rank$rank.log || continue 2
            sleep 0.2
        done
        tail -n 15 rank*.log
        wrong "rank $rank makes no link" || return
    done
}
job() { start_job "$@" && end_job; }
# All ranks ended well, over verbs.
job_is_right() {
    [[ "${statuses[*]}" =~ ^(0\ ?)+$ ]] && grep -q 'over verbs' rank*.log && ! grep -q 'over tcp, channel' rank*.log && return
    tail -n 15 rank*.log
    wrong "statuses ${statuses[*]}, or another transport"
}
benchmark() { echo "$build/perf/${1}_perf" -b 8 -e 256K -f 32 -n 2 -w 1 -c 1; }

scenario_jobs() {
    local each
    needs_transport
    for each in all_reduce all_gather broadcast reduce_scatter alltoall sendrecv; do
        [ -x "$build/perf/${each}_perf" ] || continue
        job 4 $(benchmark $each)
        job_is_right || return
    done
}
# UCX on its own transport of verbs. Its connections begin over TCP, because its UD times out on Soft-RoCE.
scenario_jobs_ucx() {
    local sent=/sys/class/infiniband/rxe0/ports/1/hw_counters/sent_pkts before
    needs_transport
    before=$(<$sent)
    job 4 env WEFT_TRANSPORTS=shm,ucx UCX_TLS=rc_verbs,tcp $(benchmark all_reduce)
    echo "rxe0 has sent $(($(<$sent) - before)) packets"
    [ "${statuses[*]}" = "0 0 0 0" ] && grep -q 'over ucx, channel' rank*.log && [ $(($(<$sent) - before)) -gt 200 ] && return
    tail -n 15 rank*.log
    wrong "statuses ${statuses[*]}, or another transport"
}
# Host 1 has no rxe0.
scenario_jobs_options() {
    local rank
    needs_transport
    job 2 env WEFT_IB_DEVICES=rxe0 $(benchmark all_reduce)
    for rank in 0 1; do
        grep -Eq 'rank 1 \(pid .*There are rxe1.*\[option.names\]' rank$rank.log && [ "${statuses[$rank]}" != 0 ] && continue
        tail -n 15 rank$rank.log
        wrong "rank $rank does not say which device rank 1 lacks" || return
    done
    job 2 env WEFT_IB_QPS=3 WEFT_IB_TIMEOUT=18 $(benchmark all_reduce)
    job_is_right || return
    [ "$(grep -c ' links rank ' rank0.log)" = 3 ] || { tail rank0.log; wrong "rank 0 does not make three queue pairs"; }
}
# Host 1 is a container without the devices.
scenario_jobs_no_device() {
    needs_transport
    job 2 bash -c '[ "$WEFT_RANK" = 0 ] || exec unshare --mount bash -c "mount -t tmpfs none /dev/infiniband && exec $0"; exec $0' \
        "$(benchmark all_reduce)"
    [ "${statuses[*]}" = "0 0" ] && grep -q 'WARN.*over tcp, because' rank0.log rank1.log && return
    tail -n 15 rank*.log
    wrong "statuses ${statuses[*]}, or no warning"
}
scenario_jobs_loss() {
    needs_transport
    tc qdisc add dev v0 root netem loss 1% delay 1ms reorder 10%
    job 2 $(benchmark all_reduce) && job_is_right
}
# A flap that is shorter than the retries of a device breaks no connection.
scenario_jobs_link_flap() {
    needs_transport
    start_job 2 "$build/perf/all_reduce_perf" -b 64K -e 64K -n 400 -w 1 -c 1
    linked || return
    ip link set v0 down; sleep 0.2; ip link set v0 up
    end_job
    # A port that is down may fail a request at once, and then each rank says so.
    [ "${statuses[*]}" = "0 0" ] || grep -q 'verbs\.' rank0.log rank1.log || { tail rank*.log; wrong "no reason is given"; }
}
# Random calls, messages, programs and one-sided calls against a model.
scenario_jobs_random() {
    local kind
    needs_transport
    for kind in calls messages programs windows; do
        job 4 "$build/tests/comm/worker" "${WEFT_TEST_SEED:-1}" 15 40000 0 $kind
        job_is_right || return
    done
}
# The addresses of a port change while a link uses another one of its GIDs.
scenario_jobs_gids() {
    needs_transport
    start_job 2 "$build/perf/all_reduce_perf" -b 64K -e 64K -n 400 -w 1 -c 1
    linked || return
    ip address add 10.77.9.1/24 dev v0
    sleep 0.5
    ip address del 10.77.9.1/24 dev v0
    end_job
    job_is_right || return
    # New links take the table as it is then.
    ip address add 10.77.9.1/24 dev v0
    ip address add 10.77.9.2/24 dev v1
    job 2 env WEFT_IB_ADDR_RANGE=10.77.9.0/24 $(benchmark all_reduce)
    job_is_right && grep -q 'GID [0-9]* 10.77.9.1' rank0.log || { tail rank0.log; wrong "the new address is not used"; return 1; }
    ip address del 10.77.9.1/24 dev v0
    ip address del 10.77.9.2/24 dev v1
}
# The address that the only rail uses goes away: each rank says so.
scenario_jobs_gid_lost() {
    local rank
    needs_transport
    ip address add 10.77.9.1/24 dev v0
    ip address add 10.77.9.2/24 dev v1
    start_job 2 env WEFT_IB_ADDR_RANGE=10.77.9.0/24 "$build/perf/all_reduce_perf" -b 64K -e 64K -n 100000 -w 1
    linked || return
    ip address del 10.77.9.1/24 dev v0
    end_job
    ip address del 10.77.9.2/24 dev v1
    for rank in 0 1; do
        [ "${statuses[$rank]}" != 0 ] && grep -Eq 'GID [0-9]* 10.77.9.1 .*\[verbs\.' rank$rank.log && continue
        tail -n 15 rank*.log
        wrong "rank $rank does not say which connection failed" || return
    done
    grep -q 'WARN port 1 of rxe0: the GIDs changed' rank0.log || wrong "rank 0 does not say that the GIDs changed"
}
# Both hosts test and measure each other.
scenario_rdma_check() {
    local secret=0123456789abcdef0123456789abcdef
    needs_transport
    on 0 weft rdma-check --secret $secret --runs 1 >check.log 2>&1 &
    on 1 weft rdma-check --join 10.78.0.1 --secret $secret --runs 1 >check1.log 2>&1 || { cat check.log check1.log; wait $!; return 1; }
    wait $! || { cat check.log; return 1; }
    cat check.log
    says 'verbs.memlock on both ranks' cat check.log && says 'an error after' cat check.log && says '1 MiB, one direction.*ib_write_bw' cat check.log
}
process_of_rank() { # of the benchmark
    local each
    for each in $(pgrep -x all_reduce_perf); do
        ! tr '\0' '\n' <"/proc/$each/environ" | grep -qx "WEFT_RANK=$1" || echo "$each"
    done
}
# One rank, or in each fifth job a rank of both hosts at the same moment. The others end, and name a rank.
scenario_jobs_kills() {
    local kill begin ranks victims
    needs_transport
    for ((kill = 0; kill < ${RDMA_KILLS:-30}; ++kill)); do
        ranks=2 victims=$((kill % 2))
        [ $((kill % 5)) != 4 ] || ranks=4 victims='0 2'
        start_job $ranks "$build/perf/all_reduce_perf" -b 64K -e 64K -n 100000 -w 1
        # A rank that dies before all have met ends the others only at WEFT_INIT_TIMEOUT_MS.
        linked && sleep $((kill % 3)) || return
        begin=$SECONDS
        command kill -KILL $(for each in $victims; do process_of_rank $each; done)
        end_job
        # A death that is noticed only at WEFT_TIMEOUT_MS takes minutes. On a busy machine the guest needs half of this to end processes.
        [ $((SECONDS - begin)) -lt 60 ] || { tail rank*.log; wrong "job $kill: the other ranks ended only after $((SECONDS - begin)) s"; return 1; }
        grep -qE 'rank [0-3]' rank*.log && ! [[ " ${statuses[*]} " == *' 0 '* ]] || { tail rank*.log; wrong "a rank ends well, or no rank is named"; return 1; }
        echo "job $kill: $((SECONDS - begin)) s"  # how far it came within its time
    done
}
scenario_jobs_memory_limit() {
    needs_transport
    export -f limited
    job 2 bash -c 'limited "$build/perf/all_reduce_perf" -b 1M -e 1M -n 1'
    grep -q 'verbs.memlock' rank0.log && grep -q 'ulimit -l unlimited' rank1.log || { tail rank*.log; wrong "no rank names the limit"; }
}
scenario_jobs_two_rails() {
    needs_transport
    job 2 $(benchmark all_reduce) && job_is_right || return
    ip link set v0 down
    job 2 $(benchmark all_reduce) && job_is_right
}
both_say() { # both_say COUNT WORDS: so many lines of each rank's log have the words.
    local rank try
    for rank in 0 1; do
        for ((try = 0; try < 150; ++try)); do
            [ "$(grep -c "$2" rank$rank.log)" -lt "$1" ] || continue 2
            sleep 0.2
        done
        tail -n 15 rank*.log
        wrong "rank $rank does not say '$2' $1 times"
        return
    done
}
# Each wire in turn goes down and comes back, while the other one carries the job.
scenario_jobs_failover() {
    local rails
    needs_transport
    for rails in 1 2; do
        start_job 2 env WEFT_IB_RAILS=$rails WEFT_IB_QPS=1 WEFT_IB_SPLIT_BYTES=16384 \
            "$build/perf/all_reduce_perf" -b 64K -e 64K -n ${RDMA_FAILOVER_CALLS:-1200} -w 1 -c 1
        linked || return
        ip link set v0 down && both_say 1 'WARN sends to rank' || return
        ip link set v0 up && both_say 1 'has a lane to rank' || return
        ip link set v2 down && both_say 2 'WARN sends to rank' || return
        ip link set v2 up && both_say 2 'has a lane to rank' || return
        end_job
        job_is_right || return
    done
}
# The address of a rail goes away and comes back, while the other rail carries the job.
scenario_jobs_gid_failover() {
    local port
    needs_transport
    for port in 0 1 2 3; do ip address add 10.77.$((8 + port / 2)).$((1 + port % 2))/24 dev v$port; done
    start_job 2 env WEFT_IB_ADDR_RANGE=10.77.8.0/23 WEFT_IB_RAILS=2 WEFT_IB_QPS=1 WEFT_IB_SPLIT_BYTES=16384 \
        "$build/perf/all_reduce_perf" -b 64K -e 64K -n ${RDMA_FAILOVER_CALLS:-1200} -w 1 -c 1
    linked || return
    ip address del 10.77.8.1/24 dev v0 && both_say 1 'WARN sends to rank' || return
    ip address add 10.77.8.1/24 dev v0 && both_say 1 'has a lane to rank' || return
    end_job
    for port in 0 1 2 3; do ip address del 10.77.$((8 + port / 2)).$((1 + port % 2))/24 dev v$port; done
    job_is_right
}
# The wires of both rails lose every packet, one after the other or at once: the retries end, and both ranks fail.
scenario_jobs_rails_lost() {
    local round rank begin
    needs_transport
    for ((round = 0; round < ${RDMA_LOSSES:-3}; ++round)); do
        start_job 2 env WEFT_IB_RAILS=2 WEFT_IB_QPS=1 WEFT_IB_SPLIT_BYTES=16384 WEFT_IB_TIMEOUT=14 \
            "$build/perf/all_reduce_perf" -b 64K -e 64K -n 100000 -w 1
        linked || return
        begin=$SECONDS
        tc qdisc add dev v$((round % 2)) root netem loss 100%
        [ $((round % 3)) = 2 ] || sleep $((round + 1))
        tc qdisc add dev v$((2 + round % 2)) root netem loss 100%
        end_job
        settle
        [ $((SECONDS - begin)) -lt 40 ] || wrong "the ranks ended only after $((SECONDS - begin)) s" || return
        for rank in 0 1; do
            [ "${statuses[$rank]}" != 0 ] && grep -q '\[verbs\.' rank$rank.log && continue
            tail -n 15 rank*.log
            wrong "rank $rank ended with status ${statuses[$rank]}, or does not say which connection failed" || return
        done
    done
}
