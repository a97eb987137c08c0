package dns

import (
	"fmt"
	"net/netip"

	"golang.org/x/net/dns/dnsmessage"
)

const (
	// plainBytes is the most that a datagram may have unless the question says
	// more (RFC 1035, 2.3.4; RFC 6891, 6.2.3).
	plainBytes = 512
	// lifeSeconds is how long an answer may be cached: short, because tests move pods.
	lifeSeconds = 1
)

// resolve is what a name stands for; nothing means that there is no such name.
type resolve func(question string) []netip.Addr

// answer returns the reply to a query, at most limit bytes (0: any number). A reply
// that does not fit is sent without its addresses and says so; the client asks
// again over TCP (RFC 2181, 9).
func answer(query []byte, find resolve, limit int) ([]byte, error) {
	var parser dnsmessage.Parser
	header, err := parser.Start(query)
	if err != nil {
		return nil, fmt.Errorf("query: %w", err)
	}
	question, err := parser.Question()
	if err != nil {
		return nil, fmt.Errorf("query: %w", err)
	}
	if limit > 0 {
		limit = max(limit, offered(&parser))
	}
	reply := dnsmessage.Message{
		Header: dnsmessage.Header{
			ID: header.ID, Response: true, Authoritative: true,
			OpCode: header.OpCode, RecursionDesired: header.RecursionDesired,
		},
		Questions: []dnsmessage.Question{question},
	}
	found := find(question.Name.String())
	switch {
	case header.OpCode != 0 || header.Response:
		reply.RCode = dnsmessage.RCodeNotImplemented
	case len(found) == 0:
		reply.RCode = dnsmessage.RCodeNameError
	case question.Type == dnsmessage.TypeA || question.Type == dnsmessage.TypeALL:
		reply.Answers = records(question.Name, found)
	}
	packed, err := reply.Pack()
	if err == nil && limit > 0 && len(packed) > limit {
		reply.Answers, reply.Truncated = nil, true
		packed, err = reply.Pack()
	}
	if err != nil {
		return nil, fmt.Errorf("reply: %w", err)
	}
	return packed, nil
}

func records(owner dnsmessage.Name, found []netip.Addr) []dnsmessage.Resource {
	all := make([]dnsmessage.Resource, len(found))
	for i, a := range found {
		all[i] = dnsmessage.Resource{
			Header: dnsmessage.ResourceHeader{Name: owner, Type: dnsmessage.TypeA, Class: dnsmessage.ClassINET, TTL: lifeSeconds},
			Body:   &dnsmessage.AResource{A: a.As4()},
		}
	}
	return all
}

// offered returns the size of datagram that the client says it takes (RFC 6891, 6.2.3:
// the class of its OPT record). A query without one, or with records that cannot
// be read, offers none.
func offered(parser *dnsmessage.Parser) int {
	if parser.SkipAllQuestions() != nil || parser.SkipAllAnswers() != nil || parser.SkipAllAuthorities() != nil {
		return 0
	}
	for {
		h, err := parser.AdditionalHeader()
		if err != nil {
			return 0
		}
		if h.Type == dnsmessage.TypeOPT {
			return int(h.Class)
		}
		if parser.SkipAdditional() != nil {
			return 0
		}
	}
}
