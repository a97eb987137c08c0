package match

import "math/bits"

// minBuckets is the number of buckets of a table when it gets its first bin.
const minBuckets = 16

// seeds are the secret part of the hash.
type seeds struct{ tag, peer uint64 }

// newSeeds draws two words from one with the splitmix64 finaliser.
func newSeeds(seed uint64) seeds {
	next := func() uint64 {
		seed += defaultSeed
		z := seed
		z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
		z = (z ^ z>>27) * 0x94d049bb133111eb
		return z ^ z>>31
	}
	return seeds{next(), next()}
}

// hash multiplies the two halves of the key and folds the product; the last
// multiplication makes the top bits, from which the bucket is taken, depend
// on all of it.
func (s seeds) hash(e Envelope) uint64 {
	hi, lo := bits.Mul64(e.Tag^s.tag, (uint64(e.Context)<<32|uint64(e.Source))^s.peer)
	return (hi ^ lo) * defaultSeed
}

// bin is the list of entries with one key. Bins, not entries, are chained in a bucket: ten
// thousand entries with one key are one step for the others.
type bin struct {
	key  Envelope
	list list
	next int32 // next entry in the bucket, or in the free list
}

// table finds the bin of a key. Empty bins are freed at once, so its size follows what is
// live and not all keys ever used.
type table struct {
	buckets []int32 // length is a power of two
	bins    []bin   // same length as buckets: on average one bin a bucket at most
	free    int32
	shift   uint8 // 64 - log2(len(buckets))
}

func (t *table) bucket(s seeds, key Envelope) *int32 {
	return &t.buckets[s.hash(key)>>(t.shift&63)]
}

// find returns the bin of key, or none.
func (t *table) find(s seeds, key Envelope) int32 {
	if len(t.buckets) == 0 {
		return none
	}
	b := *t.bucket(s, key)
	for b != none && t.bins[b].key != key {
		b = t.bins[b].next
	}
	return b
}

// obtain returns the bin of key, made empty if there was none.
func (t *table) obtain(s seeds, key Envelope) int32 {
	if b := t.find(s, key); b != none {
		return b
	}
	if len(t.bins) == 0 || t.free == none {
		t.grow(s)
	}
	b := t.free
	t.free = t.bins[b].next
	head := t.bucket(s, key)
	t.bins[b] = bin{key: key, list: emptyList, next: *head}
	*head = b
	return b
}

// drop frees bin b, which is empty.
func (t *table) drop(s seeds, b int32) {
	at := t.bucket(s, t.bins[b].key)
	for *at != b {
		at = &t.bins[*at].next
	}
	*at = t.bins[b].next
	t.bins[b].next = t.free
	t.free = b
}

// grow doubles the table. It runs only when every bin is in use, so each old
// bin is put into its new bucket and each new one into the free list.
func (t *table) grow(s seeds) {
	old := len(t.bins)
	n := max(minBuckets, 2*old)
	t.bins = grown(t.bins, n)
	t.buckets = make([]int32, n)
	t.shift = uint8(64 - bits.TrailingZeros(uint(n)))
	for i := range t.buckets {
		t.buckets[i] = none
	}
	for i := range old {
		head := t.bucket(s, t.bins[i].key)
		t.bins[i].next, *head = *head, int32(i)
	}
	t.free = none
	for i := n - 1; i >= old; i-- {
		t.bins[i].next, t.free = t.free, int32(i)
	}
}
