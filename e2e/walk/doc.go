// Package walk runs the commands of the documents for administrators and job authors on a real
// cluster. `make test-e2e` runs it.
package walk
