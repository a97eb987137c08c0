package lu

import "github.com/outrigger-hpc/outrigger/clientlib/examples/npb/bench"

// problem is one class: the points along each edge of the cube, the time steps
// and their size, and the values that NPB publishes.
type problem struct {
	edge, steps int
	dt          float64
	residual    vector // root mean squares of the residual after the last step
	solution    vector // the same of the difference to the exact solution
	surface     float64
}

const (
	omega     = 1.2  // over-relaxation
	tolerance = 1e-8 // relative error of each value that NPB accepts
)

var problems = map[bench.Class]problem{
	bench.S: {
		edge: 12, steps: 50, dt: 0.5,
		residual: vector{1.6196343210976702e-02, 2.1976745164821318e-03, 1.5179927653399185e-03, 1.5029584435994323e-03, 3.4264073155896461e-02},
		solution: vector{6.4223319957960924e-04, 8.4144342047347926e-05, 5.8588269616485186e-05, 5.8474222595157350e-05, 1.3103347914111294e-03},
		surface:  7.8418928865937083,
	},
	bench.W: {
		edge: 33, steps: 300, dt: 1.5e-3,
		residual: vector{0.1236511638192e+02, 0.1317228477799e+01, 0.2550120713095e+01, 0.2326187750252e+01, 0.2826799444189e+02},
		solution: vector{0.4867877144216, 0.5064652880982e-01, 0.9281818101960e-01, 0.8570126542733e-01, 0.1084277417792e+01},
		surface:  0.1161399311023e+02,
	},
	bench.A: {
		edge: 64, steps: 250, dt: 2,
		residual: vector{7.7902107606689367e+02, 6.3402765259692870e+01, 1.9499249727292479e+02, 1.7845301160418537e+02, 1.8384760349464247e+03},
		solution: vector{2.9964085685471943e+01, 2.8194576365003349, 7.3473412698774742, 6.7139225687777051, 7.0715315688392578e+01},
		surface:  2.6030925604886277e+01,
	},
	bench.B: {
		edge: 102, steps: 250, dt: 2,
		residual: vector{3.5532672969982736e+03, 2.6214750795310692e+02, 8.8333721850952190e+02, 7.7812774739425265e+02, 7.3087969592545314e+03},
		solution: vector{1.1401176380212709e+02, 8.1098963655421574, 2.8480597317698308e+01, 2.5905394567832939e+01, 2.6054907504857413e+02},
		surface:  4.7887162703308227e+01,
	},
}

// operations returns NPB's nominal count.
func (p problem) operations() float64 {
	n := float64(p.edge)
	return float64(p.steps) * (((1984.77*n-10923.3)*n+27770.9)*n - 144010)
}
