package harness

import (
	"context"
	"fmt"
	"time"
)

// Poll asks until there is no error. It gives up when ctx ends, or after some
// minutes: then its error is the last answer.
func Poll(ctx context.Context, ask func() error) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		err := ask()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waited in vain: %w", err)
		case <-time.After(100 * time.Millisecond):
		}
	}
}
