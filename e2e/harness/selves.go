package harness

import (
	"context"
	"fmt"

	"github.com/outrigger-hpc/outrigger/e2e/harness/keeper"
	"github.com/outrigger-hpc/outrigger/e2e/harness/node"
	"github.com/outrigger-hpc/outrigger/e2e/harness/pid1"
)

// Self is for the main function of a program that calls Up: the cluster's
// processes are that program, started again. It reports whether this process is
// one of them; then it returns only when that one's life ends, and main must
// exit with the code.
func Self(args []string) (mine bool, code int, err error) {
	if len(args) == 0 {
		return false, 0, nil
	}
	ctx := context.Background() // they end by SIGKILL of their first process
	switch word, rest := args[0], args[1:]; word {
	case pid1.Argument:
		code, err = pid1.Main(rest)
	case keeperCommand:
		err = asKeeper(ctx, rest)
	case keeper.NodeCommand:
		if len(rest) != 1 {
			return true, 2, fmt.Errorf("%s: the cluster starts this by itself", word)
		}
		err = node.Run(ctx, rest[0])
	default:
		return false, 0, nil
	}
	if err != nil && code == 0 {
		code = 1
	}
	return true, code, err
}
