package mpi

import (
	"strings"
	"testing"
)

// TestClue checks that the reason of an MPI's abort is found in the output of its ranks.
func TestClue(t *testing.T) {
	for _, c := range []struct{ printed, want string }{
		{`reading mesh
[vm:15848] *** An error occurred in MPI_Recv
[vm:15848] *** reported by process [3758581391,2]
[vm:15848] *** MPI_ERR_TRUNCATE: message truncated
[vm:15848] *** MPI_ERRORS_ARE_FATAL (processes in this communicator will now abort,
[vm:15857] *** MPI_ERR_OTHER: known error not in list`, "MPI_ERR_TRUNCATE: message truncated"},
		{`Abort(671) on node 2 (rank 2 in comm 0): Fatal error in internal_Recv: Message truncated, error stack:
internal_Recv(117)......: MPI_Recv(buf=0x1, count=10, MPI_INT, 1, 5, MPI_COMM_WORLD, status=0x1) failed
MPIDI_OFI_recv_event(1).: 
MPIDIG_recv(5)..........: Message from rank 1 and tag 5 truncated; 400 bytes received but buffer size is 40
end of the program
deallocate(3).: not of the stack`, "Message from rank 1 and tag 5 truncated; 400 bytes received but buffer size is 40"},
		{`Abort(1007326734) on node 2 (rank 2 in comm 0): Fatal error in internal_Recv: Message truncated, error stack:
internal_Recv(134): MPI_Recv(buf=0x5632b2ea8180, count=10, MPI_INT, 1, 5, MPI_COMM_WORLD, status=0x1) failed
MPIR_Wait(745)....: 
(unknown)(): Message truncated`, "Message truncated"},
		{"Abort(3) on node 0 (rank 0 in comm 0): Fatal error in PMPI_Send: Invalid tag", "PMPI_Send: Invalid tag"},
		{"Abort(42) on node 1 (rank 1 in comm 0): application called MPI_Abort(MPI_COMM_WORLD, 42) - process 1", ""},
		{"node1: *** MPI_ERRORS_ARE_FATAL is not what it is about\nsolver: residual (3): 0.1", ""},
		{"outrigger-launch: it ran to its end without Outrigger: mpirun ended well", "it ran to its end without Outrigger: mpirun ended well"},
		{"outrigger: refused by the sidecar: rank 1 is not hosted here\nAbort(8) on node 1: Fatal error in internal_Init: Other MPI error, error stack:\nMPID_Init(5): ep_enable failed", "refused by the sidecar: rank 1 is not hosted here"},
		{"x *** MPI_ERR_" + strings.Repeat("a", 1000), "MPI_ERR_" + strings.Repeat("a", clueMax-len("MPI_ERR_")-len("…")) + "…"},
	} {
		var clue Clue
		for line := range strings.Lines(c.printed) {
			clue.Line([]byte(line))
		}
		if got := clue.String(); got != c.want {
			t.Errorf("%q, want %q, of\n%s", got, c.want, c.printed)
		}
	}
}
