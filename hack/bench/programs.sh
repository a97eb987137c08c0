#!/usr/bin/env bash
# Whole programs over Outrigger (four ranks in two pods) and over Open MPI 4.1's own tcp, in
# pairs: a stencil, Debian's LAMMPS, and the factorization and random accesses of Debian's HPC
# Challenge. Prints Markdown with medians, their ratio, and how often a sidecar changed contexts
# for each message of the program.
#
#   ROUNDS=5 hack/bench/programs.sh
#
# Needs `make mpi` and the packages of hack/mpi/install. A machine with less than six
# processors measures how its kernel shares them, too: own tcp has two processes less.
set -euo pipefail
cd "$(dirname "$0")/../.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
root=$PWD

say() { printf 'programs: %s\n' "$*" >&2; }

mpicc.openmpi -O2 -Wall -Wextra -o "$work/stencil" hack/bench/stencil.c -lm
sed 's/^run.*/run 2000/' /usr/share/lammps/examples/melt/in.melt >"$work/in.melt"
cp /usr/share/doc/hpcc/examples/_hpccinf.txt "$work/hpccinf.txt"

programs=(stencil lammps hpcc)
declare -A runs=([stencil]="$work/stencil 1024 2000" [lammps]="lmp -in $work/in.melt -log none" [hpcc]="hpcc")
declare -A times=([stencil]=stencil [lammps]=LAMMPS [hpcc]='HPL RandomAccess')

# seconds TIME OUTPUT: what the program says of its time.
seconds() {
	case $1 in
	stencil) sed -n 's/^stencil: \([0-9.]*\) seconds.*/\1/p' "$2" ;;
	LAMMPS) sed -n 's/^Loop time of \([0-9.]*\) .*/\1/p' "$2" ;;
	HPL) sed -n 's/^HPL_time=\([0-9.]*\)$/\1/p' "$work/hpccoutf.txt" ;;
	RandomAccess) sed -n 's/^MPIRandomAccess_time=\([0-9.]*\)$/\1/p' "$work/hpccoutf.txt" ;;
	esac
}

# take WAY PROGRAM COMMAND...: the seconds join the figures of both.
take() {
	local way=$1 program=$2 name value
	shift 2
	rm -f "$work/hpccoutf.txt"
	if ! (cd "$work" && timeout --kill-after=10 200 "$@") >"$work/out" 2>"$work/errors" </dev/null; then
		say "$program over $way failed:"
		tail -5 "$work/errors" >&2
		exit 1
	fi
	for name in ${times[$program]}; do
		value=$(seconds "$name" "$work/out")
		[ -n "$value" ] || { say "$program over $way printed no time of $name" && exit 1; }
		echo "$name $way $value" >>"$work/figures"
	done
	# Lines of the pods in the table of --report.
	awk -v p="$program" '/switches per message/ { at = 1; next } at && NF == 6 { print p, "switches", $6; next } at { exit }' "$work/out" >>"$work/figures"
}

for ((i = 1; i <= ${ROUNDS:-5}; i++)); do
	say "round $i"
	for p in "${programs[@]}"; do
		read -ra run <<<"${runs[$p]}"
		take tcp "$p" mpirun.openmpi --oversubscribe -n 4 --mca pml ob1 --mca btl tcp,self --mca btl_tcp_if_include lo "${run[@]}"
		take outrigger "$p" "$root/bin/outrigger" run -n 4 --pods 2 --mpi openmpi --no-prefix --report -- "${run[@]}"
	done
done

# median PROGRAM WHAT
median() {
	awk -v p="$1" -v w="$2" '$1 == p && $2 == w { print $3 }' "$work/figures" | sort -n |
		awk '{ v[NR] = $1 } END { print NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2 }'
}

printf '### Seconds of whole programs, four ranks\n\n| program | own tcp | Outrigger | ratio | context switches per message |\n|---|---:|---:|---:|---:|\n'
for p in "${programs[@]}"; do
	for name in ${times[$p]}; do
		tcp=$(median "$name" tcp)
		ours=$(median "$name" outrigger)
		printf '| %s | %.3g | %.3g | %s | %s |\n' "$name" "$tcp" "$ours" "$(awk -v a="$ours" -v b="$tcp" 'BEGIN { printf "%.2f", a / b }')" "$(median "$p" switches)"
	done
done
