// Package bootstrap defines the job document: the ranks of a job, the addresses at which their
// sidecars listen, and their tuning. The operator or the local runner writes it, and every
// sidecar of the job reads the same document.
package bootstrap

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"strconv"
	"strings"
)

// Version is the version of the document's format.
const Version = 1

// SizeMax bounds a document, in bytes.
const SizeMax = 16 << 20

// RanksMax bounds the ranks of a job.
const RanksMax = 1 << 20

// ErrInvalid is wrapped by every error about a document's contents.
var ErrInvalid = errors.New("bootstrap document")

// Document describes one job.
type Document struct {
	Version int      `json:"version"`
	Job     Job      `json:"job"`
	Ranks   int      `json:"ranks"`
	Pods    []Pod    `json:"pods,omitempty"`
	Pattern *Pattern `json:"pattern,omitempty"` // Pattern describes the pods; a document with it has no list of pods
	TLS     TLS      `json:"tls,omitzero"`
	Memory  Memory   `json:"memory,omitzero"`
	Tuning  Tuning   `json:"tuning,omitzero"`
}

// Job names a job. ID is unique and not guessable.
type Job struct {
	Name string `json:"name"`
	ID   string `json:"id"`
}

// Pod is one sidecar with the ranks of its pod, which have consecutive numbers.
type Pod struct {
	Name      string `json:"name"`
	Address   string `json:"address"` // host:port that the sidecar listens on
	FirstRank int    `json:"firstRank"`
	Ranks     int    `json:"ranks"`
}

// TLS describes how a sidecar gets its credentials. Either they are in files: the certificate
// of the job's own authority, and this sidecar's certificate and key, in whose paths %d stands
// for the pod's number. Or the sidecar makes its key itself and requests the certificate from
// an issuer. The document never contains keys.
type TLS struct {
	CAFile   string  `json:"caFile,omitempty"`
	CertFile string  `json:"certFile,omitempty"`
	KeyFile  string  `json:"keyFile,omitempty"`
	CA       string  `json:"ca,omitempty"` // certificate of the job's authority, PEM; only in a document with an issuer
	Issuer   *Issuer `json:"issuer,omitempty"`
}

// Issuer signs the certificates of a job's sidecars.
type Issuer struct {
	URL       string `json:"url"`       // https URL to which a request is sent
	CA        string `json:"ca"`        // authority that signs the issuer's own certificate, PEM
	TokenFile string `json:"tokenFile"` // file of the token by which the issuer identifies a sidecar
	// AddressesURL, if it is not empty, is the https URL at which the addresses of pods are
	// requested. In that case the hosts of the pods' addresses are names only within this
	// document, and not DNS names.
	AddressesURL string `json:"addressesURL,omitempty"`
}

// secure reports whether text is a valid https URL of an issuer.
func secure(text string) bool {
	u, err := url.Parse(text)
	return err == nil && u.Scheme == "https" && u.Hostname() != ""
}

// validate returns an error if a field of an issuer is missing.
func (t *TLS) validate(bad func(format string, a ...any) error) error {
	if t.Issuer == nil {
		return nil
	}
	switch {
	case !secure(t.Issuer.URL):
		return bad("tls.issuer.url is %q, want https://HOST/PATH", t.Issuer.URL)
	case t.Issuer.AddressesURL != "" && !secure(t.Issuer.AddressesURL):
		return bad("tls.issuer.addressesURL is %q, want https://HOST/PATH", t.Issuer.AddressesURL)
	case t.Issuer.CA == "":
		return bad("tls.issuer.ca is empty")
	case t.Issuer.TokenFile == "":
		return bad("tls.issuer.tokenFile is empty")
	case t.CA == "":
		return bad("tls.ca is empty")
	}
	return nil
}

// Memory sizes the memory that the sidecar reserves; 0 means the default.
type Memory struct {
	ArenaBytes int64 `json:"arenaBytes,omitempty"` // size of the arena of each rank; default 256 MiB
	SlabBytes  int64 `json:"slabBytes,omitempty"`  // size of the slab of each rank; default 4 MiB
	// PinnedBytes is the maximum of the ranks' memory that a sidecar keeps registered as the
	// source of sends, and again the maximum for access by its peers; default 512 MiB.
	PinnedBytes int64 `json:"pinnedBytes,omitempty"`
}

// Load reads and checks the document in a file.
func Load(path string) (*Document, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("bootstrap: %w", err)
	}
	defer func() { _ = f.Close() }() // only read
	raw, err := io.ReadAll(io.LimitReader(f, SizeMax+1))
	if err != nil {
		return nil, fmt.Errorf("bootstrap: reading %s: %w", path, err)
	}
	d, err := Parse(raw)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return d, nil
}

// Parse reads and checks a document. Unknown fields are errors: they are misspelled, or belong
// to a later release, and this program would ignore them.
func Parse(raw []byte) (*Document, error) { return parse(raw, true) }

// Look reads and checks a document of any release, and ignores unknown fields. It is for
// programs that do not have to follow the whole document.
func Look(raw []byte) (*Document, error) { return parse(raw, false) }

func parse(raw []byte, whole bool) (*Document, error) {
	if len(raw) > SizeMax {
		return nil, fmt.Errorf("%w: over %d bytes", ErrInvalid, SizeMax)
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	if whole {
		dec.DisallowUnknownFields()
	}
	d := new(Document)
	if err := dec.Decode(d); err != nil {
		return nil, foreign(raw, err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%w: something follows the document", ErrInvalid)
	}
	if err := d.expand(); err != nil {
		return nil, err
	}
	return d, d.Validate()
}

// foreign returns an error that names the release of a document that cannot be read, if the
// document has its release: it has another version, or fields that a later release has added.
func foreign(raw []byte, cause error) error {
	var d struct {
		Version int `json:"version"`
	}
	switch err := json.Unmarshal(raw, &d); {
	case err == nil && d.Version != Version:
		return fmt.Errorf("%w: version is %d, want %d: use images of one release (%w)", ErrInvalid, d.Version, Version, cause)
	case err == nil && strings.Contains(cause.Error(), "unknown field"):
		return fmt.Errorf("%w: %w: it is misspelt, or the document, of version %d, is of a later release than this program, which reads version %d as it was then: use images of one release", ErrInvalid, cause, d.Version, Version)
	}
	return fmt.Errorf("%w: %w", ErrInvalid, cause)
}

// Validate checks the document for contradictions. The error names the field.
func (d *Document) Validate() error {
	bad := func(format string, a ...any) error {
		return fmt.Errorf("%w: %s", ErrInvalid, fmt.Sprintf(format, a...))
	}
	switch {
	case d.Version != Version:
		return bad("version is %d, want %d", d.Version, Version)
	case d.Job.ID == "" || len(d.Job.ID) > 128:
		return bad("job.id has %d characters, want 1 to 128", len(d.Job.ID))
	case d.Ranks < 1 || d.Ranks > RanksMax:
		return bad("ranks is %d, want 1 to %d", d.Ranks, RanksMax)
	case len(d.Pods) < 1 || len(d.Pods) > d.Ranks:
		return bad("pods has %d entries for %d ranks", len(d.Pods), d.Ranks)
	}
	seen := make(map[string]int, len(d.Pods))
	next := 0
	for i, p := range d.Pods {
		switch other, twice := seen[p.Address]; {
		case twice:
			return bad("pods[%d].address %s is that of pods[%d] too", i, p.Address, other)
		case !goodAddress(p.Address):
			return bad("pods[%d].address %q is not host:port", i, p.Address)
		case p.FirstRank != next || p.Ranks < 1 || p.Ranks > d.Ranks-next:
			return bad("pods[%d] has %d ranks from %d, but rank %d of %d is next", i, p.Ranks, p.FirstRank, next, d.Ranks)
		}
		seen[p.Address] = i
		next += p.Ranks
	}
	if next != d.Ranks {
		return bad("pods have %d ranks, ranks is %d", next, d.Ranks)
	}
	if err := d.TLS.validate(bad); err != nil {
		return err
	}
	return d.validateTuning(bad)
}

func goodAddress(a string) bool {
	host, port, err := net.SplitHostPort(a)
	n, err2 := strconv.ParseUint(port, 10, 16)
	return err == nil && err2 == nil && host != "" && n != 0
}

// PodOf returns the pod of each rank.
func (d *Document) PodOf() []int32 {
	pods := make([]int32, d.Ranks)
	for i, p := range d.Pods {
		for r := range p.Ranks {
			pods[p.FirstRank+r] = int32(i)
		}
	}
	return pods
}
