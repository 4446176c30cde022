#!/bin/bash
# A SLURM cluster of two virtual nodes on this machine, to try jobs and their failures:
#
#     apt-get install slurmctld slurmd slurm-client munge
#     experiments/launch/local_slurm.sh up /tmp/slurm      # prints: export SLURM_CONF=/tmp/slurm/slurm.conf
#     experiments/launch/local_slurm.sh kill /tmp/slurm 2  # node 2 loses power: its daemon and its tasks
#     experiments/launch/local_slurm.sh start /tmp/slurm 2 # and comes back
#     experiments/launch/local_slurm.sh down /tmp/slurm
#
# Run it as root, which owns the daemons. Every node says it has 64 CPUs and 4 GPUs, so that scripts
# for real nodes can be submitted as they are; nothing is reserved. The names node1 and node2 are
# added to /etc/hosts. Partition `high` preempts `low`,
# the default, whose jobs have 60 s to save after SIGTERM and go back into the queue.

set -eu
usage="usage: $0 up|down|kill|start DIR [NODE]"
action=${1:?$usage} dir=${2:?$usage} node=${3:-}
export SLURM_CONF=$dir/slurm.conf
PATH=$PATH:/usr/sbin

configure() {
    local host port
    host=$(hostname -s)
    port=${SLURM_PORT:-17010} # and the three after it
    mkdir -p "$dir/state" "$dir/node1" "$dir/node2"
    chmod 755 "$dir"
    dd if=/dev/urandom of="$dir/munge.key" bs=128 count=1 status=none
    chmod 600 "$dir/munge.key"
    cat > "$SLURM_CONF" <<END
ClusterName=simuljax
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=$port
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket=$dir/munge.socket
StateSaveLocation=$dir/state
SlurmdSpoolDir=$dir/%n
SlurmctldPidFile=$dir/slurmctld.pid
SlurmdPidFile=$dir/slurmd.%n.pid
SlurmctldLogFile=$dir/slurmctld.log
SlurmdLogFile=$dir/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SwitchType=switch/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
GresTypes=gpu
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
SlurmdTimeout=15
MinJobAge=600
KillWait=60
InactiveLimit=0
ReturnToService=2
SchedulerParameters=bf_interval=5,sched_interval=5,batch_sched_delay=1,requeue_delay=1
NodeName=node1 NodeHostname=$host NodeAddr=127.0.0.1 Port=$((port + 1)) CPUs=64 RealMemory=8000 Gres=gpu:4
NodeName=node2 NodeHostname=$host NodeAddr=127.0.0.1 Port=$((port + 2)) CPUs=64 RealMemory=8000 Gres=gpu:4
PartitionName=low Nodes=ALL Default=YES PriorityTier=1 PreemptMode=REQUEUE GraceTime=60 OverSubscribe=NO
PartitionName=high Nodes=ALL PriorityTier=2 PreemptMode=OFF OverSubscribe=NO
END
    touch "$dir"/gpu{0..3}
    echo "Name=gpu File=$dir/gpu[0-3]" > "$dir/gres.conf"
    echo "CgroupPlugin=cgroup/v1" > "$dir/cgroup.conf"
}

name_nodes() { # jobs look up the name of their first node
    getent hosts node1 node2 > /dev/null || echo "127.0.0.1 node1 node2 # of local_slurm.sh" >> /etc/hosts
}

start_node() {
    slurmd -N "node$1" -f "$SLURM_CONF"
}

kill_node() { # its daemon, its tasks and the daemons above them
    local entry pid parent found
    found=$(cat "$dir/slurmd.node$1.pid" 2> /dev/null || true)
    for entry in /proc/[0-9]*/environ; do
        pid=${entry//[^0-9]/}
        if grep -qzx "SLURMD_NODENAME=node$1" "$entry" && grep -qzx "SLURM_CONF=$SLURM_CONF" "$entry"; then
            parent=$(ps -o ppid= -p "$pid" | tr -d ' ')
            [ "$(ps -o comm= -p "$parent")" = slurmstepd ] && found="$parent $found"
            found="$found $pid"
        fi
    done 2> /dev/null
    for pid in $found; do kill -KILL "$pid" 2> /dev/null || true; done
}

case $action in
up)
    configure
    name_nodes
    munged --force --socket="$dir/munge.socket" --key-file="$dir/munge.key" \
        --log-file="$dir/munged.log" --pid-file="$dir/munged.pid" --seed-file="$dir/munged.seed"
    slurmctld -f "$SLURM_CONF"
    for number in 1 2; do start_node "$number"; done
    for _ in $(seq 60); do
        [ "$(sinfo -h -N -t idle -o %N | sort -u | wc -l)" = 2 ] && break
        sleep 0.5
    done
    sinfo >&2
    echo "export SLURM_CONF=$SLURM_CONF"
    ;;
start) start_node "${node:?$usage}" ;;
kill) kill_node "${node:?$usage}" ;;
down)
    for number in 1 2; do kill_node "$number"; done
    for daemon in slurmctld munged; do
        kill -TERM "$(cat "$dir/$daemon.pid")" 2> /dev/null || true
    done
    ;;
*)
    echo "$usage" >&2
    exit 2
    ;;
esac
