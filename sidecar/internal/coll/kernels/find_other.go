//go:build !amd64

package kernels

// Find returns nil: there are no kernels for this processor.
func Find(string, string) Func { return nil }
