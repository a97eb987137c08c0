package linktest

import "testing"

// testAbilities checks that a link has the abilities that belong together.
func testAbilities(t *testing.T, p *Pair) {
	a := p.A.Link.Abilities()
	for _, x := range []struct {
		has, needs bool
		text       string
	}{
		{a.Arm != nil, a.FD != nil, "Arm prepares a sleep on FD"},
		{a.Expose != nil || a.Release != nil || a.Withdraw != nil || a.Caster != nil || a.Lender != nil, a.Remote != nil, "keys and remote writes need Remote"},
		{a.AddRegion != nil || a.ShareRegion != nil || a.Lender != nil, a.DropRegion != nil, "a link that knows regions drops them"},
		{a.Lent != nil, a.Lender != nil, "Lent counts what Lender does"},
		{a.Buffers != nil, a.EndSession != nil, "counts of a session have an end"},
		{a.EndSession != nil, a.Buffers != nil, "EndSession ends counts"},
	} {
		if x.has && !x.needs {
			t.Errorf("%s link: %s", p.A.Link.Caps().Name, x.text)
		}
	}
}
