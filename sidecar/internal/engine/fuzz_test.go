package engine

import (
	"testing"

	"github.com/outrigger-hpc/outrigger/api/shm"
)

// FuzzIntake fills the rings of two applications with arbitrary bytes: the engine may expel
// them, and must not panic, hang, or complete a request that was never submitted.
func FuzzIntake(f *testing.F) {
	for _, op := range []shm.Op{
		shm.OpSend, shm.OpRecv, shm.OpProbe, shm.OpMprobe, shm.OpMrecv, shm.OpCancel, shm.OpStage, shm.OpComm, shm.OpColl,
		shm.OpReduced, shm.OpWin, shm.OpPut, shm.OpGet, shm.OpAcc, shm.OpFetch, shm.OpCas, shm.OpFlush, shm.OpLock, shm.OpUnlock, shm.OpAbort, shm.OpDetach, shm.OpDrop,
		shm.OpPost, shm.OpStart, shm.OpComplete, shm.OpWait,
	} {
		for _, class := range []shm.Class{shm.ClassInline, shm.ClassSlab, shm.ClassArena, shm.ClassStaged} {
			var b []byte
			for _, peer := range []uint32{1, 0} {
				var raw [shm.DescriptorBytes]byte
				d := shm.Descriptor{Op: op, Class: class, Req: peer, Peer: peer, Status: 4 << 8}
				d.SetBody(64, 70_000, 0, 0)
				d.Encode(&raw)
				b = append(b, raw[:]...)
				d.Op = shm.OpRecv
				d.Req += 7
				d.Encode(&raw)
				b = append(b, raw[:]...)
			}
			f.Add(b)
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		e, apps := pod(t, 2)
		defer func() {
			if err := e.Close(); err != nil {
				t.Error(err)
			}
		}()
		var submitted [2][shm.MaxRequests]bool
		for i := 0; len(data) >= shm.DescriptorBytes && i < 64; i++ {
			var d shm.Descriptor
			d.Decode((*[shm.DescriptorBytes]byte)(data))
			data = data[shm.DescriptorBytes:]
			if d.Req < shm.MaxRequests {
				submitted[i%2][d.Req] = true
			}
			if _, err := apps[i%2].submit.Push(&d); err != nil {
				t.Fatal(err)
			}
			e.Turn()
		}
		for range 8 {
			e.Turn()
		}
		var d shm.Descriptor
		for r, a := range apps {
			for a.complete.Pop(&d) {
				if d.Op == shm.OpDone && !submitted[r][d.Req] {
					t.Fatalf("rank %d: request %d is done and was never submitted", r, d.Req)
				}
			}
		}
	})
}
