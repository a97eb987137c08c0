package lu

// The equation is that of compressible flow in three dimensions, ∂u/∂t = R(u),
// with terms of convection, viscosity and two artificial diffusions (RNR-94-007
// chapter 3, "A Methodology for Benchmarking Some CFD Kernels", section 3.2).
//
// A vector has the density ρ, the three momenta and the energy E of a point.
type vector [5]float64

// The equation's constants c1 to c5: c1 is the ratio of specific heats and
// c2 = c1 − 1, c3·c4 the viscosity, c3·c4·c1·c5 the conduction of heat.
const (
	c1    = 1.4
	c2    = 0.4
	c5    = 1.4
	c34   = 0.1 * 1.0
	c1345 = c1 * c34 * c5
)

// diffusion is the second-order artificial diffusion along each axis, and
// dissipation the fourth-order one along all of them.
var diffusion = [3]float64{0.75, 0.75, 1}

const dissipation = 1.0 / 4

// state is a point's vector in the variables in which fluxes have few terms.
type state struct {
	inverse float64    // 1/ρ
	w       [3]float64 // velocity
	q       float64    // kinetic energy of a unit of mass, |w|²/2
	e       float64    // energy of a unit of mass, E/ρ
}

func (s *state) set(u *vector) {
	s.inverse = 1 / u[0]
	s.w = [3]float64{u[1] * s.inverse, u[2] * s.inverse, u[3] * s.inverse}
	s.q = 0.5 * (s.w[0]*s.w[0] + s.w[1]*s.w[1] + s.w[2]*s.w[2])
	s.e = u[4] * s.inverse
}

// pressure returns the pressure divided by ρ, which is c2 times the internal energy.
func (s *state) pressure() float64 { return c2 * (s.e - s.q) }

// convection returns the flux of u along an axis.
func (s *state) convection(axis int, u *vector) vector {
	w := s.w[axis]
	f := vector{u[1+axis], u[1] * w, u[2] * w, u[3] * w, (c1*s.e - c2*s.q) * u[1+axis]}
	f[1+axis] += s.pressure() * u[0]
	return f
}

// viscosity returns the difference of two neighbouring points that makes the viscous
// flux between them, without factors of the mesh. No mass takes part.
func viscosity(axis int, a, b *state) vector {
	var f vector
	for i := range 3 {
		f[1+i] = b.w[i] - a.w[i]
	}
	f[1+axis] *= 4.0 / 3
	f[4] = (1-c1*c5)*(b.q-a.q) + (b.w[axis]*b.w[axis]-a.w[axis]*a.w[axis])/6 + c1*c5*(b.e-a.e)
	return f
}

// convect adds factor·A·v to sum, where A is the Jacobian of the convection
// along an axis at s.
func (s *state) convect(axis int, factor float64, v, sum *vector) {
	w := s.w[axis]
	// The changes by v of the kinetic energy, and of the velocity times ρ.
	kinetic := s.w[0]*v[1] + s.w[1]*v[2] + s.w[2]*v[3] - s.q*v[0]
	slip := v[1+axis] - w*v[0]
	sum[0] += factor * v[1+axis]
	sum[1] += factor * (w*v[1] + s.w[0]*slip)
	sum[2] += factor * (w*v[2] + s.w[1]*slip)
	sum[3] += factor * (w*v[3] + s.w[2]*slip)
	sum[1+axis] += factor * c2 * (v[4] - kinetic)
	sum[4] += factor * (w*(c1*v[4]-c2*kinetic) + (c1*s.e-c2*s.q)*slip)
}

// diffuse adds factor·(N + d·1)·v to sum, where N is the Jacobian of the
// viscosity along an axis at s, and d its artificial diffusion.
func (s *state) diffuse(axis int, factor float64, v, sum *vector) {
	d := diffusion[axis]
	x, y, z := v[1]-s.w[0]*v[0], v[2]-s.w[1]*v[0], v[3]-s.w[2]*v[0]
	friction := [3]float64{x, y, z}
	work := s.w[0]*x + s.w[1]*y + s.w[2]*z
	along := friction[axis] / 3 // the axis itself counts 4/3
	f, viscous := factor*d, factor*s.inverse
	sum[0] += f * v[0]
	sum[1] += f*v[1] + viscous*c34*x
	sum[2] += f*v[2] + viscous*c34*y
	sum[3] += f*v[3] + viscous*c34*z
	sum[1+axis] += viscous * c34 * along
	sum[4] += f*v[4] + viscous*(c34*(work+s.w[axis]*along)+c1345*(v[4]-s.e*v[0]-work))
}

// diagonal is the block of the implicit scheme at a point itself, which is
// 1 + Σ factor·(N + d·1) over the axes. It is lower triangular, so that it is solved
// from the first row to the last.
type diagonal struct {
	constant float64    // 1 + Σ factor·d
	friction [3]float64 // Σ factor·k, where k is 4/3 along the axis itself
	heat     float64    // Σ factor
}

func newDiagonal(factors [3]float64) diagonal {
	g := diagonal{constant: 1}
	for axis, f := range factors {
		g.constant += f * diffusion[axis]
		g.heat += f
	}
	for axis, f := range factors {
		g.friction[axis] = g.heat + f/3
	}
	return g
}

// solve replaces b by the x of D·x = b at s.
func (g *diagonal) solve(s *state, b *vector) {
	b[0] /= g.constant
	energy := c1345 * g.heat * s.e * b[0]
	for i := range 3 {
		viscous := g.friction[i] * c34 * s.inverse
		b[1+i] = (b[1+i] + viscous*s.w[i]*b[0]) / (g.constant + viscous)
		energy -= (g.friction[i]*c34 - g.heat*c1345) * s.w[i] * (b[1+i] - s.w[i]*b[0])
	}
	b[4] = (b[4] + s.inverse*energy) / (g.constant + s.inverse*g.heat*c1345)
}
