package coll

// Recursive doubling for any number of ranks. A range of numbers has two halves, of which the lower
// one has the extra number if there is one. Both halves combine, and then each number receives the
// result of the other half. A range of n numbers takes levels(n) rounds, and its halves are done
// one round earlier at the latest. All numbers of a range combine the same results in the same
// order, so that they have the same bits, and operands stay in rank order.

// doubling is the part of a number in one round. Its fields are numbers of the group, or -1.
type doubling struct {
	from  int    // sends to this number the result of the other half
	to    [2]int // receive that of the own half
	lower bool   // the result of the other half is the left operand
	fresh bool   // the own half is this number alone
}

// doublingAt returns the part of a number of n in round i. It receives nothing if the ranges that
// it is in take other rounds.
func doublingAt(number, n, i int) doubling {
	first := 0
	for levels(n) > i+1 {
		if a := (n + 1) / 2; number < first+a {
			n = a
		} else {
			first, n = first+a, n-a
		}
	}
	d := doubling{from: -1, to: [2]int{-1, -1}}
	if levels(n) <= i {
		return d
	}
	a := (n + 1) / 2
	b := n - a
	twice := spare(b) // sends also to the extra number
	switch x := number - first; {
	case x >= a:
		d.from, d.to[0] = number-a, number-a
		d.lower, d.fresh = true, b == 1
		if a > b && x-a == twice {
			d.to[1] = first + b
		}
	case x < b:
		d.from, d.to[0] = number+a, number+a
		d.fresh = a == 1
	default:
		d.from = first + a + twice
	}
	return d
}

// spare returns a number of a range that has sent at most one message in each round, and fewer
// than levels(n) unless n is a power of two: the extra number in one of the halves sends none in
// its round.
func spare(n int) int {
	for n&1 == 0 {
		n /= 2
	}
	return (n - 1) / 2
}

// doubledAllreduce exchanges the whole vector in every round. It has the fewest rounds of all
// algorithms, and is the only one that keeps operands in order.
func doubledAllreduce(w *round, g *group, v *vector, i int) {
	d := doublingAt(g.rank, g.size, i)
	for _, to := range d.to {
		if to >= 0 {
			w.send(g, to, v.own(d.fresh), v.bytes())
		}
	}
	if d.from >= 0 {
		w.merge(g, d.from, v, 0, v.bytes(), d.fresh, d.lower)
	}
}
