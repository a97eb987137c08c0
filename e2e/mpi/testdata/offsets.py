# The types and calls of offsets.c that Open MPI before 4.1.6 sends wrongly, by an mpi4py that finds
# the MPI with dlopen and its functions with dlsym. All values are checked at the receiver.
from array import array

from mpi4py import MPI

world = MPI.COMM_WORLD
rank, size = world.rank, world.size
ROWS, COLUMNS = 8, 100
out = array("d", range(ROWS * COLUMNS))
wrong = 0


def check(good, call, name):
    global wrong
    if not good:
        wrong += 1
        print("wrong: rank", rank, call, "of", name, flush=True)


# A type, and the elements of the buffer that it has.
types = {
    "rows": (MPI.DOUBLE.Create_subarray([ROWS, COLUMNS], [2, COLUMNS], [4, 0]), range(4 * COLUMNS, 6 * COLUMNS)),
    "a block": (MPI.DOUBLE.Create_subarray([ROWS, COLUMNS], [3, 7], [2, 9]), [r * COLUMNS + 9 + c for r in range(2, 5) for c in range(7)]),
    "one index": (MPI.DOUBLE.Create_indexed([200], [400]), range(400, 600)),
    "a structure": (MPI.Datatype.Create_struct([5], [160], [MPI.DOUBLE]), range(20, 25)),
    "several": (MPI.DOUBLE.Create_hindexed([5], [160]).Create_resized(0, 1600), [200 * k + 20 + i for k in range(3) for i in range(5)]),
}
for name, (type, elements) in types.items():
    type.Commit()
    count = 3 if name == "several" else 1
    want = [out[i] for i in elements]
    for call in ("Send", "Isend", "Send_init", "Ssend_init", "Bsend_init", "Rsend_init"):
        if rank == size - 1:
            into = array("d", [-1] * len(want))
            request = world.Irecv([into, len(want), MPI.DOUBLE], 0, 1)
            world.Send([bytearray(0), 0, MPI.BYTE], 0, 2)
            request.Wait()
            check(list(into) == want, call, name)
        if rank == 0:
            world.Recv([bytearray(0), 0, MPI.BYTE], size - 1, 2)
            if call.startswith("Bsend"):
                MPI.Attach_buffer(bytearray(1 << 16))
            request = getattr(world, call)([out, count, type], size - 1, 1)
            if call.endswith("_init"):
                request.Start()
            if request is not None:
                request.Wait()
            if call.endswith("_init"):
                request.Free()
            if call.startswith("Bsend"):
                MPI.Detach_buffer()

# Each rank sends its row of blocks, turned round.
N = 6
row = array("d", [rank * 1000 + i for i in range(size * N)])
into = array("d", [-1] * (size * N))
sends = [MPI.DOUBLE.Create_subarray([size * N], [N], [p * N]).Commit() for p in range(size)]
receives = [MPI.DOUBLE.Create_subarray([size * N], [N], [(size - 1 - p) * N]).Commit() for p in range(size)]
ones, zeros = [1] * size, [0] * size
world.Alltoallw([row, ones, zeros, sends], [into, ones, zeros, receives])
want = [p * 1000 + rank * N + i for p in reversed(range(size)) for i in range(N)]
check(list(into) == want, "Alltoallw", "blocks")

total = world.allreduce(wrong)
if rank == 0:
    print("offsets:", total, "wrong over", size, "ranks")
