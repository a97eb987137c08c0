// Package walk does on a real cluster what the documents tell an admin and a job
// author to do, with the documents' own commands: `make test-e2e` runs it.
package walk
