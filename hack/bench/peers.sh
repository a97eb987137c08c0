#!/usr/bin/env bash
# Outrigger against its peers on this machine, in one run: the bare chain of
# four processes, bare ping-pongs over TCP (wire) and over a line of shared memory
# (line), Open MPI over TCP and over shared memory, and `outrigger bench` over TCP
# and over memory of the machine (two pods), and in one pod. Prints
# Markdown: the machine, the commands, the figures, and
# each target with PASS or MISS. The method is described in hack/bench/mpibench.c.
#
#   ROUNDS=3 hack/bench/peers.sh     the rounds are interleaved; medians count
#   JSON=file hack/bench/peers.sh    also keep the figures as JSON lines
#
# Needs root only to install Open MPI and gcc from Debian when they are missing.
# Exit status: 0 when every figure was taken, 1 otherwise; a missed target does
# not fail the run unless STRICT=1.
set -euo pipefail
json=${JSON:+$(realpath -m "$JSON")}
cd "$(dirname "$0")/../.."

rounds=${ROUNDS:-1}
strict=${STRICT:-0}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
figures=$work/figures.json
: >"$figures"

say() { printf 'peers: %s\n' "$*" >&2; }

install_peers() {
	if command -v mpicc >/dev/null && command -v mpirun >/dev/null && command -v gcc >/dev/null; then
		return
	fi
	if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
		say "Open MPI or gcc is missing: as root on Debian run 'apt-get install openmpi-bin libopenmpi-dev gcc', or run this script as root"
		exit 1
	fi
	say "installing openmpi-bin, libopenmpi-dev and gcc from Debian"
	{
		timeout 300 apt-get update -q
		DEBIAN_FRONTEND=noninteractive timeout 600 apt-get install -y -q --no-install-recommends \
			openmpi-bin libopenmpi-dev gcc libc6-dev
	} >"$work/apt.log" 2>&1 || { tail -5 "$work/apt.log" >&2; say "apt-get failed"; exit 1; }
}

# measure NAME SECONDS COMMAND...: its JSON lines join the figures. A peer that
# fails is named, and the table then says ABSENT where its figures belong.
measure() {
	local name=$1 limit=$2
	shift 2
	say "$name: $*"
	commands+=("$*")
	if timeout --kill-after=10 "$limit" "$@" >"$work/lines" 2>"$work/errors" </dev/null; then
		grep '^{' "$work/lines" >>"$figures" || { say "$name printed no figure"; failed=1; }
	else
		say "$name failed with status $? (124: it passed its $limit s):"
		tail -5 "$work/errors" >&2
		failed=1
	fi
}

round() {
	measure chain 120 "$work/chain"
	measure wire 120 "$work/wire"
	measure line 70 "$work/line"
	measure openmpi-tcp 300 mpirun -n 2 --oversubscribe --mca pml ob1 \
		--mca btl tcp,self --mca btl_tcp_if_include lo "$work/mpibench" openmpi-tcp
	measure openmpi-vader 300 mpirun -n 2 --oversubscribe --mca pml ob1 \
		--mca btl vader,self "$work/mpibench" openmpi-vader
	if [ -x bin/outrigger ]; then
		measure outrigger-tcp 300 bin/outrigger bench --pods 2 --transport tcp --tests latency,bandwidth,rate,overlap --json
		measure outrigger-node 300 bin/outrigger bench --pods 2 --transport node --tests latency,bandwidth,rate,overlap --json
		measure outrigger-local 300 bin/outrigger bench --pods 1 --tests self,latency,bandwidth,rate,overlap --json
	fi
}

machine() {
	echo "- date: $(date -u +'%Y-%m-%d %H:%M UTC')"
	echo "- machine: $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -1), $(nproc) cores, $(awk '/^MemTotal/ {printf "%.0f GiB", $2 / 1048576}' /proc/meminfo)"
	echo "- kernel: $(uname -sr); $(sed -n 's/^PRETTY_NAME="\(.*\)"/\1/p' /etc/os-release)"
	echo "- load average before the run: $load"
	echo "- $(mpirun --version | head -1); $(gcc --version | head -1); $(go version)"
	echo "- outrigger: $(git rev-parse --short HEAD 2>/dev/null || echo 'no commit')$(test -z "$(git status --porcelain 2>/dev/null)" || echo ' with local changes')"
	echo "- command: \`hack/bench/peers.sh\`, rounds: $rounds, which ran:"
	printf '%s\n' "${commands[@]}" | sed "s#$work/##" | sort -u | awk '{ print "  - `" $0 "`" }'
}

failed=0
commands=()
load=$(cut -d' ' -f1-3 /proc/loadavg)
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1

install_peers
gcc -O2 -Wall -Wextra -std=c11 -o "$work/chain" hack/bench/chain.c
gcc -O2 -Wall -Wextra -std=c11 -o "$work/wire" hack/bench/wire.c
gcc -O2 -Wall -Wextra -std=c11 -o "$work/line" hack/bench/line.c
mpicc -O2 -Wall -Wextra -std=gnu11 -o "$work/mpibench" hack/bench/mpibench.c
go build -o "$work/compare" ./hack/bench/compare
if ! make --no-print-directory build >"$work/build.log" 2>&1; then
	tail -5 "$work/build.log" >&2
	say "outrigger does not build: its figures will be ABSENT"
	rm -f bin/outrigger
fi
if [ ! -x bin/outrigger ]; then
	say "there is no bin/outrigger: its figures will be ABSENT"
	failed=1
fi

for ((i = 1; i <= rounds; i++)); do
	say "round $i of $rounds"
	round
done

machine
echo
flags=()
[ "$strict" = 0 ] || flags=(-strict)
"$work/compare" "${flags[@]}" <"$figures" || failed=1
[ -z "$json" ] || cp "$figures" "$json"
exit "$failed"
