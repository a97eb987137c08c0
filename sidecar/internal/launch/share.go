package launch

import "fmt"

// Share returns the ranks of a pod if a world of ranks fills the pods in order, perPod in
// each; the last pod may have fewer.
func Share(pod, perPod, world int) (first, last int, err error) {
	switch {
	case perPod < 1 || world < 1:
		return 0, 0, fmt.Errorf("--ranks-per-pod %d and --world %d: want at least one rank", perPod, world)
	case pod < 0 || pod > (world-1)/perPod:
		return 0, 0, fmt.Errorf("--pod %d: %d ranks, %d in a pod, fill the pods 0 to %d", pod, world, perPod, (world-1)/perPod)
	}
	first = pod * perPod
	return first, min(first+perPod, world) - 1, nil
}
