// Package memory runs sidecars in real control groups, with the limit that the
// operator gives them. It needs root.
package memory
