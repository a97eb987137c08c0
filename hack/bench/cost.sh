#!/usr/bin/env bash
# The cost of a timeline (--trace) in a ping-pong of 8 bytes, and of the check that
# ranks call the same collective, against a build without it (outrigger_unchecked),
# since it cannot be turned off. Prints Markdown; results are kept as
# docs/benchmarks/*.json.
#
#   ROUNDS=9 hack/bench/cost.sh     rounds (of 20 s) are interleaved, and begin with
#                                   the other of two in turn; medians count
#   PROGRAMS=DIR                    keep the programs there for the next run
#
# A figure of a round is the median of 5 repetitions (sidecar/internal/bench).
set -euo pipefail
cd "$(dirname "$0")/../.."
rounds=${ROUNDS:-9}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
programs=${PROGRAMS:-$work} # a folder that an earlier run has built into

if [ ! -e "$programs/bin-unchecked/outrigger" ]; then
	CGO_ENABLED=0 go build -o "$programs/bin/" ./sidecar/cmd/...
	CGO_ENABLED=0 go build -tags outrigger_unchecked -o "$programs/bin-unchecked/" ./sidecar/cmd/...
fi

# take FIGURES COMMAND...: the figures of a command join a file as "NAME US".
take() {
	local into=$1
	shift
	"$@" --json --bytes-max 8 2>>"$work/errors" |
		sed -n 's/.*"test":"\([a-z]*\)"\(,"op":"\([a-z]*\)"\)*.*"us":\([0-9.]*\),.*/\1\3 \4/p' >>"$work/$into" || { tail -5 "$work/errors" >&2; exit 1; }
}

plain() { take "plain$1" "$programs/bin/outrigger" bench latency --transport tcp --pods "$1"; }
traced() { take "traced$1" "$programs/bin/outrigger" bench latency --transport tcp --pods "$1" --trace "$work/trace.json"; }
checked() { take checked "$programs/bin/outrigger" bench collectives -n 4 --transport tcp --pods 2; }
unchecked() { take unchecked "$programs/bin-unchecked/outrigger" bench collectives -n 4 --transport tcp --pods 2; }

for r in $(seq "$rounds"); do
	if [ $((r % 2)) = 1 ]; then
		plain 1; traced 1; plain 2; traced 2; checked; unchecked
	else
		traced 1; plain 1; traced 2; plain 2; unchecked; checked
	fi
done

# row WHAT NAME WITHOUT WITH: medians, least and most of each, and the median of the
# rounds' ratios.
row() {
	paste <(grep "^$2 " "$work/$3") <(grep "^$2 " "$work/$4") | awk -v what="$1" '
		function sorted(v, n,  i, j, t) { for (i = 2; i <= n; i++) for (j = i; j > 1 && v[j] < v[j-1]; j--) { t = v[j]; v[j] = v[j-1]; v[j-1] = t } }
		NF == 4 { n++; a[n] = $2; b[n] = $4; q[n] = 100 * ($4 / $2 - 1) }
		END {
			if (n == 0) { print "no figures of " what > "/dev/stderr"; exit 1 }
			sorted(a, n); sorted(b, n); sorted(q, n); m = int(n / 2) + 1
			printf "| %s | %.2f (%.2f-%.2f) | %.2f (%.2f-%.2f) | %+.1f %% (%+.1f to %+.1f) |\n", what, a[m], a[1], a[n], b[m], b[1], b[n], q[m], q[1], q[n]
		}'
}

printf '%s\n' "- $(date -u '+%Y-%m-%d %H:%M') UTC, $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -1), $(nproc) cores, Linux $(uname -r), $(git describe --always --dirty 2>/dev/null)" \
	"- \`hack/bench/cost.sh\`, $rounds interleaved rounds; us, median (least to most) of the rounds" ''
printf '%s\n' '| | without | with | difference, median of the rounds |' '|---|---:|---:|---:|'
row 'timeline: 8 B, half a round trip, one pod' latency plain1 traced1
row 'timeline: 8 B, half a round trip, two pods' latency plain2 traced2
row 'check: barrier, 4 ranks in two pods' collectivesbarrier unchecked checked
row 'check: allreduce of 8 B' collectivesallreduce unchecked checked
row 'check: bcast of 8 B' collectivesbcast unchecked checked
