package podlife

import "strings"

// remedies are what to do about failures and waits, by a part of their texts in lower case. The
// first one that fits counts.
var remedies = []struct{ part, text string }{
	{"call close (mpi_finalize)", ""}, // the text has its remedy

	// What outrigger why tells of ranks that wait.
	{"(a wrong tag?)", "give send and receive the same tag"},
	{"(a wrong source?)", "give the receive the rank that sends, or MPI_ANY_SOURCE"},
	{"(another communicator?)", "send and receive in the same communicator"},
	{"which finds nothing", "probe for the source, tag and communicator that a send has (or MPI_ANY_SOURCE, MPI_ANY_TAG), and have the sender send before it waits"},
	{"which change nothing", winLock},
	{"with different roots?)", "have every rank of a communicator call the same collectives in the same order, with the same root"},
	{"(in different collectives", "have every rank of a communicator call the same collectives in the same order"},
	{"(in different communicators", sameOrder},
	{"communicators disagree", sameOrder},
	{"has held for", "call Unlock (MPI_Win_unlock) in the rank that holds the window"},
	{"wait for each other", "let one of the ranks send before it receives, or receive before it sends, or use MPI_Sendrecv (Sendrecv)"},
	{"ranks disagree about a collective", "have every rank of a communicator call the same collectives, with the same root, size, type and operation, in the same order"},

	{"its mpi uses shared memory of its own", "run the job with MPIR_CVAR_NOLOCAL=1 in the environment of its ranks, with which the ranks that wait for each other are named"},
	{"such as mpi_win_lock", "if a rank waits in MPI_Win_lock, " + winLock + "; if it waits in MPI_Win_start, call MPI_Win_post in each of its targets"},
	{"in mpi_init or mpi_finalize, for all ranks", "before a rank calls MPI_Finalize, have it make the calls for which the others wait (a send, a collective), or leave these out in all"},

	// Errors that an MPI aborts with: the names of Open MPI, and texts of MPICH and Intel MPI.
	{"mpi_err_truncate", receiveAll},
	{"truncated", receiveAll},
	{"mpi_err_rank", rightRank},
	{"invalid rank", rightRank},
	{"mpi_err_tag", "use a tag from 0 to the value of the attribute MPI_TAG_UB"},
	{"invalid tag", "use a tag from 0 to the value of the attribute MPI_TAG_UB"},
	{"mpi_err_comm", rightComm},
	{"invalid communicator", rightComm},
	{"null communicator", rightComm},
	{"mpi_err_count", "use a count that is not negative"},
	{"negative count", "use a count that is not negative"},
	{"mpi_err_type", rightType},
	{"invalid datatype", rightType},
	{"datatype has not been committed", rightType},
	{"mpi_err_root", "use a root from 0 to the size of the communicator less 1"},
	{"invalid root", "use a root from 0 to the size of the communicator less 1"},
	{"mpi_err_buffer", rightBuffer},
	{"null pointer", rightBuffer},
	{"null buffer pointer", rightBuffer},
	{"buffers must not be aliased", rightBuffer},
	{"mpi_err_rma_range", "compare the displacement and the count with the size that the target gave to MPI_Win_create or MPI_Win_allocate"},
	{"mpi_err_win", "use the window between its creation and MPI_Win_free"},
	{"invalid window", "use the window between its creation and MPI_Win_free"},
	{"mpi_err_request", rightRequest},
	{"invalid request", rightRequest},
	{"mpi_err_op", "use an operation that is defined for the datatype"},
	{"mpi_finalize", "call MPI_Finalize (Close) in every rank, after its last call of MPI"},
	{"closing its session", "call MPI_Finalize (Close) in every rank, after its last call of MPI"},

	// Ends of processes.
	{"program for another machine", "compile the program for this machine"},
	{"exited with code 127", "look for the program or shared library that its output names: install it, or set PATH or LD_LIBRARY_PATH"},
	{"exited with code 126", "make the program executable (chmod +x), and look at its first line if it is a script"},
	{"no such file or directory", "give a path that exists, or put the program's directory into PATH"},
	{"killed by sigkill", "if no person has ended it, the kernel did for lack of memory (dmesg): start fewer ranks, or use less memory in each"},
	{"killed by sigsegv", memoryFault},
	{"killed by sigbus", memoryFault},
	{"killed by sigabrt", memoryFault},
	{"killed by sigfpe", "look for a division of integers by zero; a debugger shows the line of a core file (ulimit -c unlimited)"},
	{"killed by sigill", "compile the program for this processor"},
	{"killed by sigxcpu", "raise the limit of processor time (ulimit -t)"},
	{"killed by sigxfsz", "raise the limit of the size of files (ulimit -f)"},
}

const (
	sameOrder    = "have every rank use its communicators in the same order"
	winLock      = "call MPI_Win_unlock in the rank that has locked the window, before it waits for other ranks"
	receiveAll   = "give the receive a buffer for the longest message, or ask for the size first (MPI_Probe and MPI_Get_count)"
	rightRank    = "use ranks from 0 to the size of the communicator less 1"
	rightComm    = "use a communicator that this rank is in, and that is not freed"
	rightType    = "commit the datatype (MPI_Type_commit) before its use, and free it later"
	rightBuffer  = "give each operation memory of its own that is allocated, or MPI_IN_PLACE"
	rightRequest = "wait once for each request, which the call that started it has set"
	memoryFault  = "compile with -g and -fsanitize=address, or look at the core file (ulimit -c unlimited): an index or pointer is wrong, an allocation has failed, or the stack is too small (ulimit -s)"
)

// Remedy returns what a user can do about a failure or a wait that text describes, or an empty
// text.
func Remedy(text string) string {
	text = strings.ToLower(text)
	for _, r := range remedies {
		if strings.Contains(text, r.part) {
			return r.text
		}
	}
	return ""
}
