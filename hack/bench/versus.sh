#!/usr/bin/env bash
# This tree against an older commit, on this machine: `outrigger bench` of both by
# turns, between pods and in one. Prints Markdown; results are kept as
# docs/benchmarks/*.json.
#
#   hack/bench/versus.sh COMMIT
#   ROUNDS=6           rounds are interleaved, and begin with the other one in turn
#   TESTS=latency,...  of `outrigger bench`; tests that the older one lacks are omitted.
#                      Only tests whose figures have equal names in both: not fairness
#   TRANSPORT=node     between pods; default: tcp, which is all that older ones have
#   PROGRAMS=DIR       keep the programs there for the next run
set -euo pipefail
cd "$(dirname "$0")/../.."
old=$(git rev-parse --verify --short "${1:?which commit to compare with: hack/bench/versus.sh COMMIT}^{commit}")
rounds=${ROUNDS:-6}
tests=${TESTS:-latency,bandwidth,rate,collectives}
transport=${TRANSPORT:-tcp}
work=$(mktemp -d)
programs=$(realpath -m "${PROGRAMS:-$work}") # a folder that an earlier run has built into
trap 'git worktree remove --force "$work/tree" 2>/dev/null || true; rm -rf "$work"' EXIT

CGO_ENABLED=0 go build -o "$programs/new/" ./sidecar/cmd/...
if [ ! -e "$programs/$old/outrigger" ]; then
	git worktree add --quiet --detach "$work/tree" "$old"
	(cd "$work/tree" && CGO_ENABLED=0 go build -o "$programs/$old/" ./sidecar/cmd/...)
fi
go build -o "$work/compare" ./hack/bench/compare

# take WHICH FILE: a round of one of the two joins a file.
take() {
	local pods over=()
	if "$programs/$1/outrigger" bench --help | grep -q -- '--transport'; then
		over=(--transport "$transport")
	fi
	for pods in 1 2; do
		timeout --kill-after=10 300 "$programs/$1/outrigger" bench "${over[@]}" --pods "$pods" --tests "$tests" --json \
			>>"$work/$2" 2>"$work/errors" </dev/null || { tail -5 "$work/errors" >&2; exit 1; }
	done
}

load=$(cut -d' ' -f1-3 /proc/loadavg)
for ((r = 1; r <= rounds; r++)); do
	echo "versus: round $r of $rounds" >&2
	if [ $((r % 2)) = 1 ]; then
		take "$old" before; take new after
	else
		take new after; take "$old" before
	fi
done

printf '%s\n' "- $(date -u '+%Y-%m-%d %H:%M') UTC, $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -1), $(nproc) cores, Linux $(uname -r), load before the run $load" \
	"- \`hack/bench/versus.sh $old\`, after: $(git describe --always --dirty 2>/dev/null), $rounds interleaved rounds; us, or 10^6 bytes or messages a second; median (least to most) of the rounds. Above 1: slower than before" ''
"$work/compare" -before "$work/before" -after "$work/after"
