#!/usr/bin/env bash
# An unmodified MPI program over Outrigger and over each MPI's own tcp, two ranks:
# latency, bandwidth, and how much of a transfer is hidden behind computing, with the
# program's buffers as they are and in the arena (OUTRIGGER_MPI_ARENA=on), and with a
# thread that continues transfers while the ranks compute (OUTRIGGER_MPI_PROGRESS).
# Prints Markdown; results are kept as docs/benchmarks/*.json. hack/bench/mpibench.c
# has the method (`short`, `speed`).
#
#   ROUNDS=3 hack/bench/mpi.sh     rounds (of 13 minutes for all four MPIs) are
#                                  interleaved; medians count
#   MPIS='mpich openmpi4'          only these, of mpich intel openmpi4 openmpi5
#   WAYS='tcp plain'               only these, of the ways below
#   WHAT=speed                     latency and bandwidth alone: a round is two minutes
#   WHAT=puts                      one-sided operations alone. Open MPI 4.1 does not end them over
#                                  its own tcp: MPIS='mpich intel openmpi5'
#   FIGURES=FILE                   join the figures there, and print all that are in
#                                  it; with ROUNDS=0 print only
#
#   TRANSPORT=tcp                  between pods; node, the default: memory of the machine
#                                  that sidecars share
#   LINK=10gbit                    both systems over TCP through a loopback of this rate
#                                  (tc-tbf(8)), in a network namespace of its own, as root:
#                                  data in flight takes time and no processor, as on a
#                                  network. Both directions share it; it delays nothing
#
# Needs the MPIs of hack/mpi/install and `make mpi`. Over Outrigger the ranks are in
# two pods with a sidecar each.
set -euo pipefail
figures=${FIGURES:+$(realpath -m "$FIGURES")}
cd "$(dirname "$0")/../.."
if [ -n "${LINK:-}" ]; then
	if [ -z "${LINKED:-}" ]; then
		exec env LINKED=1 TRANSPORT=tcp FIGURES="$figures" unshare --net hack/bench/mpi.sh
	fi
	# A burst is the largest packet that loopback has, so that no message goes at once.
	ip link set lo up
	tc qdisc add dev lo root tbf rate "$LINK" burst 70000 latency 50ms
fi
rounds=${ROUNDS:-3}
read -ra mpis <<<"${MPIS:-mpich intel openmpi4 openmpi5}"
# The ways, with their names in tables: own tcp; over Outrigger as it is; with the arena;
# with progress of messages, of all, and of all with the arena.
declare -A called=([tcp]='own tcp' [plain]='over Outrigger' [arena]='arena' [messages]='progress: messages' [all]='progress: all' [both]='arena, progress: all')
read -ra ways <<<"${WAYS:-tcp plain arena messages all both}"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
figures=${figures:-$work/figures}
touch "$figures"
have=$PWD/bin/mpi
debian=/usr/lib/$(uname -m)-linux-gnu/openmpi
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 PRTE_ALLOW_RUN_AS_ROOT=1 PRTE_ALLOW_RUN_AS_ROOT_CONFIRM=1

say() { printf 'mpi: %s\n' "$*" >&2; }

# build MPI: the program with its headers; Intel's runs that of MPICH.
build() {
	local flags=(-O2 -Wall -Wextra -std=gnu11 -o "$work/$1" hack/bench/mpibench.c)
	case $1 in
	mpich | intel) gcc "${flags[@]}" -I"$have/mpich/include" -L"$have/mpich/lib" -lmpi ;;
	openmpi4) gcc "${flags[@]}" -I"$debian/include" -I"$debian/include/openmpi" -L"$debian/lib" -lmpi ;;
	openmpi5) gcc "${flags[@]}" -I"$have/openmpi/include" -L"$have/openmpi/lib" -lmpi -Wl,-rpath-link,"$have/openmpi/lib/openmpi" ;;
	*) say "no MPI is called $1" && exit 1 ;;
	esac
}

# libraries MPI: where its programs find it.
libraries() {
	case $1 in
	mpich) echo "$have/mpich/lib" ;;
	intel) echo "$have/intel/lib:$have/mpich/lib/mpich" ;; # its package has no libfabric
	openmpi4) echo "$debian/lib" ;;
	openmpi5) echo "$have/openmpi/lib" ;;
	esac
}

# own MPI: the command that runs two ranks over its own tcp.
own() {
	local tcp=(--mca pml ob1 --mca btl 'tcp,self' --mca btl_tcp_if_include lo)
	case $1 in
	mpich) command=(env MPIR_CVAR_CH4_NETMOD=ofi MPIR_CVAR_NOLOCAL=1 FI_PROVIDER=tcp "$have/mpich/bin/mpiexec.hydra" -n 2) ;;
	intel) command=(env I_MPI_FABRICS=ofi I_MPI_OFI_PROVIDER=tcp FI_PROVIDER=tcp "I_MPI_ROOT=$have/intel" "$have/intel/bin/mpiexec.hydra" -localhost 127.0.0.1 -n 2) ;;
	openmpi4) command=(mpirun.openmpi -n 2 --oversubscribe "${tcp[@]}") ;;
	openmpi5) command=(env "OPAL_PREFIX=$have/openmpi" "$have/openmpi/bin/mpirun" -n 2 --map-by :OVERSUBSCRIBE "${tcp[@]}") ;;
	esac
}

# take NAME MPI COMMAND...: its figures join the others. One that fails is named, and
# the table has no figure of it.
take() {
	local name=$1 libs
	libs=$(libraries "$2")
	shift 2
	if LD_LIBRARY_PATH=$libs timeout --kill-after=10 150 "$@" "$name" "${WHAT:-short}" >"$work/lines" 2>"$work/errors" </dev/null; then
		sed -n 's/^\(\[0\] \)\?{"peer":"\([^"]*\)","test":"latency","bytes":\([0-9]*\),"us":\([0-9.]*\).*/\2 latency \3 \4/p
			s/^\(\[0\] \)\?{"peer":"\([^"]*\)","test":"bandwidth","bytes":\([0-9]*\),"mb_s":\([0-9.]*\).*/\2 bandwidth \3 \4/p
			s/^\(\[0\] \)\?{"peer":"\([^"]*\)","test":"put","bytes":\([0-9]*\),"us":\([0-9.]*\).*/\2 put \3 \4/p
			s/^\(\[0\] \)\?{"peer":"\([^"]*\)","test":"puts","bytes":\([0-9]*\),"msg_s":\([0-9.]*\).*/\2 puts \3 \4/p
			/"test":"overlap"/{
			h
			s/^\(\[0\] \)\?{"peer":"\([^"]*\)","test":"overlap","bytes":\([0-9]*\),"side":"\([a-z]*\)","mode":"\([a-z]*\)".*"hidden":\([0-9.]*\).*/\2 hidden-\4-\5 \3 \6/p
			g
			s/^\(\[0\] \)\?{"peer":"\([^"]*\)","test":"overlap","bytes":\([0-9]*\),"side":"\([a-z]*\)","mode":"\([a-z]*\)".*"starting":\([0-9.]*\).*/\2 starting-\4-\5 \3 \6/p
			g
			}
			s/^\(\[0\] \)\?{"peer":"\([^"]*\)","test":"overlap","bytes":\([0-9]*\),"side":"\([a-z]*\)","mode":"\([a-z]*\)","overlap":\([-0-9.]*\).*/\2 \4-\5 \3 \6/p' "$work/lines" >>"$figures"
	else
		say "$name failed with status $? (124: it passed its 150 s): $*"
		tail -5 "$work/errors" >&2
		failed=1
	fi
}

# over ARENA PROGRESS: the command that runs two ranks over Outrigger.
over() { command=(env "OUTRIGGER_MPI_ARENA=$1" "OUTRIGGER_MPI_PROGRESS=$2" bin/outrigger run -n 2 --pods 2 --transport "${TRANSPORT:-node}" --mpi auto --); }

# by WAY MPI: the command of one of the ways.
by() {
	case $1 in
	tcp) own "$2" ;;
	plain) over off "$([ "${WHAT:-short}" = puts ] || echo off)" ;; # the default has a thread for accesses
	arena) over on off ;;
	messages) over off messages ;;
	all) over off all ;;
	both) over on all ;;
	*) say "no way is called $1" && exit 1 ;;
	esac
}

round() {
	local m w
	for m in "${mpis[@]}"; do
		for w in "${ways[@]}"; do
			by "$w" "$m" && take "$m.$w" "$m" "${command[@]}" "$work/$m"
		done
	done
}

# table FIRST-COLUMN TESTS FORM: a row for each MPI, test and size that has figures: the
# medians of the rounds by each way, in brackets the ratio to own tcp, and how often each
# was taken.
table() {
	local w head="| $1 |" rule='|---|'
	for w in "${ways[@]}"; do
		head+=" ${called[$w]} |"
		rule+='---:|'
	done
	printf '%s rounds |\n%s---:|\n' "$head" "$rule"
	awk -v tests="$2" -v form="$3" -v ways="${ways[*]}" '
		function median(list,  v, n, i, j, t) {
			n = split(list, v, " ")
			for (i = 2; i <= n; i++) for (j = i; j > 1 && v[j] + 0 < v[j-1] + 0; j--) { t = v[j]; v[j] = v[j-1]; v[j-1] = t }
			return n == 0 ? "" : n % 2 ? v[(n + 1) / 2] : (v[n / 2] + v[n / 2 + 1]) / 2
		}
		function size(b) { return b < 1024 ? b " B" : b < 1048576 ? b / 1024 " KiB" : b / 1048576 " MiB" }
		function show(x) { return x == "" ? "" : form == "percent" ? sprintf("%.0f %%", 100 * x) : sprintf(x < 100 ? "%.1f" : "%.0f", x) }
		function ratio(x, base) { return x == "" || base == "" || form == "percent" ? "" : sprintf(" (%.2f)", x / base) }
		{
			split($1, who, ".")
			if (!(who[1] in seen)) { seen[who[1]] = 1; mpi[++mpis] = who[1] }
			all[who[1], who[2], $2, $3 + 0] = all[who[1], who[2], $2, $3 + 0] " " $4
		}
		END {
			nt = split(tests, test, " ")
			nw = split(ways, way, " ")
			ns = split("8 8192 65536 262144 1048576 4194304", s, " ")
			for (m = 1; m <= mpis; m++) for (t = 1; t <= nt; t++) for (k = 1; k <= ns; k++) {
				row = ""; rounds = 0; base = median(all[mpi[m], "tcp", test[t], s[k]])
				for (w = 1; w <= nw; w++) {
					list = all[mpi[m], way[w], test[t], s[k]]; v = median(list)
					row = row " " show(v) (way[w] == "tcp" ? "" : ratio(v, base)) " |"
					n = split(list, x, " "); if (n > rounds) rounds = n
				}
				if (rounds == 0) continue
				name = test[t]; sub("-one", ", one computes", name); sub("-both", ", both compute", name)
				printf "| %s%s, %s |%s %d |\n", mpi[m], (nt == 1 ? "" : " " name), size(s[k]), row, rounds
			}
		}' "$figures"
}

failed=0
load=$(cut -d' ' -f1-3 /proc/loadavg)
if [ "$rounds" -gt 0 ]; then
	for m in "${mpis[@]}"; do
		build "$m"
	done
fi
for ((i = 1; i <= rounds; i++)); do
	say "round $i of $rounds"
	round
done

printf '%s\n' "- $(date -u '+%Y-%m-%d %H:%M') UTC, $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -1), $(nproc) cores, Linux $(uname -r), $(git describe --always --dirty 2>/dev/null); load average before: $load" \
	"- \`hack/bench/mpi.sh\`, interleaved rounds; medians of the rounds${LINK:+; TCP over a loopback of $LINK}" ''
if [ "${WHAT:-short}" = puts ]; then
	printf '%s\n' '### Puts a second, of 10,000 and a flush' ''
	table 'MPI, message' puts rate
	printf '\n%s\n' '### A put and a flush, us' ''
	table 'MPI, message' put us
	exit "$failed"
fi
printf '%s\n' '### Latency, us (half a round trip)' ''
table 'MPI, message' latency us
printf '\n%s\n' '### Bandwidth, MB/s' ''
table 'MPI, message' bandwidth rate
if [ "${WHAT:-short}" = short ]; then
	printf '\n%s\n' '### Overlap (100 %: the transfer hides behind the computing)' ''
	table 'MPI, message' 'isend-one irecv-one iallreduce-one iallreduce-both' percent
	printf '\n%s\n' '### Samples of which more than half of the transfer was hidden' ''
	table 'MPI, message' 'hidden-isend-one hidden-irecv-one hidden-iallreduce-one' percent
	printf '\n%s\n' '### What the starting call itself takes, as a part of the transfer: it hides behind nothing' ''
	table 'MPI, message' 'starting-isend-one starting-irecv-one starting-iallreduce-one' percent
fi
exit "$failed"
