package podlife

import (
	"strings"
	"testing"
)

// TestRemedy checks the remedies of texts that users have seen.
func TestRemedy(t *testing.T) {
	for text, want := range map[string]string{
		"rank 1 (pod 0) failed: called abort: MPI_ERR_TRUNCATE: message truncated":                                                                                          "longest message",
		"called abort: Message from rank 0 and tag 7 truncated; 1000 bytes received but buffer size is 10":                                                                  "longest message",
		"rank 1 (pod 0) failed: called abort: MPI_ERR_RANK: invalid rank":                                                                                                   "size of the communicator",
		"called abort: MPIR_Win_create: Invalid window":                                                                                                                     "MPI_Win_free",
		"rank 2 (pod 1) was killed by SIGSEGV":                                                                                                                              "-fsanitize=address",
		"rank 2 (pod 1) was killed by SIGKILL":                                                                                                                              "dmesg",
		"rank 0 (pod 0) exited with code 127":                                                                                                                               "LD_LIBRARY_PATH",
		"could not be started: t/arm is a program for another machine: for EM_AARCH64":                                                                                      "compile the program for this machine",
		"rank 1 (pod 0) ended well, but it has not called MPI_Finalize: its process ended without closing its session":                                                      "MPI_Finalize",
		"its process ended without closing its session: call Close (MPI_Finalize) before the program ends":                                                                  "",
		"rank 1 waits 12 s: MPI_Recv(source 0, tag 8); unexpected here: from 0 tag 7, 4 B (a wrong tag?)":                                                                   "same tag",
		"ranks 0 and 2 wait for each other: 0 in MPI_Allreduce, 2 in MPI_Bcast (in different collectives?)":                                                                 "same order",
		"ranks 0 and 1 wait for each other: 0 in recv, 1 in recv":                                                                                                           "MPI_Sendrecv",
		"rank 1 waits 12 s: MPI_Probe or MPI_Iprobe(source 2, tag 5, communicator of 4 ranks), again and again, which finds nothing":                                        "MPI_ANY_SOURCE",
		"rank 1 waits 12 s: MPI_Recv(source 0, tag 8); unexpected here: from 0 tag 8, 4 B (another communicator?)":                                                          "same communicator",
		"rank 1 waits 9 s: in a call of MPI that has no receive of its own open; what it waits for within its pod is not seen: its MPI uses shared memory of its own there": "NOLOCAL",
		"rank 3 waits 9 s: one-sided accesses at rank 0, again and again, which change nothing (MPI_Win_lock, or a loop that polls?)":                                       "MPI_Win_unlock",
		"rank 3 waits 9 s: in a call of MPI that has no receive of its own open, such as MPI_Win_lock or MPI_Win_start":                                                     "MPI_Win_unlock",
		"rank 3 waits 12 s: MPI_Recv(source 0, tag 2)\nranks 0 to 2 wait 11 s: in MPI_Init or MPI_Finalize, for all ranks":                                                  "for which the others wait",
		"communicators disagree: rank 1 is in a collective of one, and ranks 0 and 2 are in a collective of another one":                                                    "same order",
		"ranks 0 and 1 wait for each other: 0 in lock of window 1, which rank 1 has held for 14 s, 1 in recv":                                                               "Unlock",
		"rank 1 (pod 1) exited with code 3":                                                                                                                                 "",
		"interrupted":                                                                                                                                                       "",
	} {
		if got := Remedy(text); got == "" != (want == "") || !strings.Contains(got, want) {
			t.Errorf("%s: %q, want %q in it", text, got, want)
		}
	}
}
