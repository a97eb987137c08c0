// Package admission bounds the connections of those who have not shown yet who they
// are. Nobody waits for a place. When there is none, somebody has to go: the guest
// that has been there longest without a word; if all have said something, the one
// that has been there longest; and if all of them have only just come, who comes
// now, and tries again. So strangers who hold connections open, however many, take
// places from each other, and a guest that says at once who it is keeps its place
// for as long as that takes.
package admission

import (
	"container/list"
	"sync"
	"time"
)

// How long a guest keeps its place whoever comes. A handshake takes some
// milliseconds; when many arrive at once, sending away those that are half way
// would make all of them begin again.
const (
	silentHold  = 20 * time.Millisecond // from its coming, without a word (Silent)
	talkingHold = 250 * time.Millisecond
)

// Lobby is one listener's.
type Lobby struct {
	places, share int
	silent        time.Duration

	mu      sync.Mutex // guards what follows
	waiting list.List  // *Guest, those that have said nothing, oldest first
	talking list.List  // *Guest, the others, oldest first
	by      map[string]int

	now func() time.Time
}

// Guest is one connection.
type Guest struct {
	lobby *Lobby
	from  string
	since time.Time
	close func()
	in    *list.List // nil: it has left
	at    *list.Element
}

// New makes a lobby with so many places, of which those who come from one address
// get at most share.
func New(places, share int) *Lobby {
	return &Lobby{places: max(places, 1), share: max(share, 1), silent: silentHold, by: map[string]int{}, now: time.Now}
}

// Silent has a guest keep its place for hold without a word, where a guest that is sent away
// does not come again. The more places there are, the sooner newcomers have theirs
// nevertheless. It is called before anybody enters.
func (l *Lobby) Silent(hold time.Duration) *Lobby {
	l.silent = hold
	return l
}

// Enter gives a connection a place; nil: there is none. When the lobby calls
// sendAway, which must not block, the connection has to be closed: it has lost its
// place.
func (l *Lobby) Enter(from string, sendAway func()) *Guest {
	l.mu.Lock()
	now := l.now()
	g, goes := &Guest{lobby: l, from: from, since: now, close: sendAway}, (*Guest)(nil)
	crowded := l.by[from] >= l.share
	if crowded || l.waiting.Len()+l.talking.Len() >= l.places {
		goes = l.oldest(now, func(o *Guest) bool { return !crowded || o.from == from })
		if goes == nil {
			l.mu.Unlock()
			return nil
		}
		goes.leave()
	}
	l.by[from]++
	g.in = &l.waiting
	g.at = l.waiting.PushBack(g)
	l.mu.Unlock()
	if goes != nil {
		goes.close()
	}
	return g
}

// oldest finds who has to go, if anybody.
func (l *Lobby) oldest(now time.Time, may func(*Guest) bool) *Guest {
	for _, row := range []struct {
		guests *list.List
		hold   time.Duration
	}{{&l.waiting, l.silent}, {&l.talking, talkingHold}} {
		for e := row.guests.Front(); e != nil; e = e.Next() {
			if g := e.Value.(*Guest); may(g) && now.Sub(g.since) >= row.hold {
				return g
			}
		}
	}
	return nil
}

// Spoke says that the guest has begun to say who it is.
func (g *Guest) Spoke() {
	g.lobby.mu.Lock()
	defer g.lobby.mu.Unlock()
	if g.in == &g.lobby.waiting {
		g.in.Remove(g.at)
		g.in = &g.lobby.talking
		g.at = g.in.PushBack(g)
	}
}

// Leave gives the place back: it is known who the guest is, or it is gone. It
// reports whether the guest still had it; if not, it is being sent away.
func (g *Guest) Leave() bool {
	g.lobby.mu.Lock()
	defer g.lobby.mu.Unlock()
	if g.in == nil {
		return false
	}
	g.leave()
	return true
}

func (g *Guest) leave() {
	g.in.Remove(g.at)
	g.in = nil
	if g.lobby.by[g.from]--; g.lobby.by[g.from] == 0 {
		delete(g.lobby.by, g.from)
	}
}

// Guests counts those that are there.
func (l *Lobby) Guests() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.waiting.Len() + l.talking.Len()
}
