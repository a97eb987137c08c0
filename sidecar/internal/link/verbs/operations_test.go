package verbs

import (
	"errors"
	"testing"
)

// TestOperationsTakeTurns checks that operations go piece by piece, in turn, with at most
// piecesMax pieces in flight, and that an operation ends with its last request.
func TestOperationsTakeTurns(t *testing.T) {
	var o operations
	if o.turn() != -1 {
		t.Error("a turn without operations")
	}
	large, small := uint64(3*pieceMax+1), uint64(100)
	o.add(operation{token: 1, length: large, regUpTo: large})
	o.add(operation{token: 2, length: small, regUpTo: small})
	var order []uint64
	var posted []int32
	for n := o.turn(); n >= 0; n = o.turn() {
		off, length, last := o.piece(n)
		op := &o.table[n]
		if off != op.posted || length != min(pieceMax, op.length-off) || last != (off+length == op.length) || op.allPosted || op.needsPart() {
			t.Fatalf("%d bytes at %d of %d, the last one: %v", length, off, op.length, last)
		}
		o.sent(n, length, 1)
		if o.table[n].allPosted != last || o.table[n].needsPart() {
			t.Errorf("over %v, and it was the last one: %v", o.table[n].allPosted, last)
		}
		order, posted = append(order, op.token), append(posted, n)
	}
	if want := []uint64{1, 2, 1, 1, 1}; len(order) != len(want) || order[0] != 1 || order[1] != 2 || o.inFlight != len(want) {
		t.Errorf("turns of %v, want %v; %d in flight", order, want, o.inFlight)
	}
	for i, n := range posted {
		token := o.table[n].token
		whole := o.complete(n)
		if whole != (i == 1 || i == 4) || o.inFlight != len(posted)-1-i {
			t.Errorf("request %d, of operation %d: ends it %v, %d in flight", i, token, whole, o.inFlight)
		}
		if whole {
			o.remove(n)
		}
	}
	if o.add(operation{token: 3, length: 1, regUpTo: 1}); len(o.table) != 2 || o.table[o.turn()].token != 3 || !o.table[o.turn()].used {
		t.Errorf("%d entries for one operation after two", len(o.table))
	}
}

// TestOperationsAreBounded checks that the bound is in requests, whatever the number of
// pieces, and that each completed request makes room.
func TestOperationsAreBounded(t *testing.T) {
	var o operations
	for range 2 * piecesMax {
		o.add(operation{length: 1, regUpTo: 1})
	}
	for o.turn() >= 0 {
		o.sent(o.turn(), 1, 2)
	}
	if o.inFlight != piecesMax || o.turns.Len() != 2*piecesMax-piecesMax/2 {
		t.Errorf("%d requests are in flight, %d operations wait", o.inFlight, o.turns.Len())
	}
	if o.complete(0) {
		t.Error("the operation ends with the first of two requests")
	}
	if o.turn() != piecesMax/2 {
		t.Errorf("the turn of %d, want %d", o.turn(), piecesMax/2)
	}
	if !o.complete(0) {
		t.Error("the operation does not end with its last request")
	}
}

// TestOperationsStopped checks that an operation whose next part cannot be registered
// ends when its posted requests have, that the next one has its turn, and that waiting
// operations take no more memory, however many there are.
func TestOperationsStopped(t *testing.T) {
	var o operations
	cause := errors.New("no room")
	o.add(operation{length: 100, regUpTo: 40})
	o.add(operation{length: 100, regUpTo: 0})
	o.add(operation{length: 1, regUpTo: 1})
	if n := o.turn(); n != 0 || o.table[0].needsPart() || !o.table[1].needsPart() {
		t.Fatalf("the turn of %d", n)
	}
	if off, n, last := o.piece(0); off != 0 || n != 40 || last {
		t.Errorf("%d bytes at %d, the last: %v", n, off, last)
	}
	o.sent(0, 40, 1)
	if !o.table[0].needsPart() || o.table[0].allPosted {
		t.Error("needsPart is wrong after 40 of 100 bytes")
	}
	if !o.stop(o.turn(), cause) || !errors.Is(o.table[1].err, cause) {
		t.Error("a request of it is posted")
	}
	if n := o.turn(); n != 2 {
		t.Fatalf("the turn of %d", n)
	}
	o.sent(2, 1, 1)
	if n := o.turn(); n != 0 || o.stop(n, cause) {
		t.Errorf("the turn of %d, of which nothing is posted", n)
	}
	if o.turn() != -1 || !o.complete(0) {
		t.Error("the operation does not end with its last request")
	}
	for range 1000 {
		o.add(operation{length: 2, regUpTo: 2})
	}
	for range 10_000 { // each has a turn, and waits again
		o.sent(o.turn(), 0, 0)
	}
	seen := map[int32]bool{}
	for range 1000 {
		seen[o.turn()] = true
		o.sent(o.turn(), 0, 0)
	}
	if len(seen) != 1000 {
		t.Errorf("%d of 1,000 operations have had a turn in a round", len(seen))
	}
}

// TestOperationsEnd checks that the entry of an operation that has ended is free, then
// another's, and that an operation whose posted pieces are complete continues with its
// next piece.
func TestOperationsEnd(t *testing.T) {
	var o operations
	o.add(operation{token: 1, length: 2 * pieceMax, regUpTo: 2 * pieceMax})
	for i, ends := range []bool{false, true} {
		if n := o.turn(); n != 0 {
			t.Fatalf("the turn of %d before piece %d", n, i)
		}
		if o.sent(0, pieceMax, 1); o.complete(0) != ends {
			t.Errorf("piece %d ends it: %v", i, !ends)
		}
	}
	if o.remove(0); o.table[0].used || o.table[0].token != 0 {
		t.Errorf("the operation has ended, but its entry is: %+v", o.table[0])
	}
	for token := range uint64(3) {
		o.add(operation{token: 2 + token, length: 1, regUpTo: 1})
	}
	for want := range uint64(3) {
		n := o.turn()
		if o.table[n].token != 2+want {
			t.Errorf("the turn of operation %d, want %d", o.table[n].token, 2+want)
		}
		o.sent(n, 1, 1)
	}
}
