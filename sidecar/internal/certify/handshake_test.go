package certify

import (
	"crypto/tls"
	"encoding/pem"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/outrigger-hpc/outrigger/api/bootstrap"
)

// TestRefusedHandshake checks that the error of a handshake that the issuer refuses, for
// a certificate and for addresses, names the possible causes, and that other errors do
// not.
func TestRefusedHandshake(t *testing.T) {
	refuses := true
	s := httptest.NewUnstartedServer(http.NotFoundHandler())
	s.TLS = &tls.Config{MinVersion: tls.VersionTLS13, GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
		if refuses {
			return nil, errors.New("too often")
		}
		return nil, nil
	}}
	s.StartTLS()
	defer s.Close()
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("t"), 0o600); err != nil {
		t.Fatal(err)
	}
	issuer := &bootstrap.Issuer{
		URL: s.URL, AddressesURL: s.URL, TokenFile: token,
		CA: string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})),
	}
	client, err := connect(issuer)
	if err != nil {
		t.Fatal(err)
	}
	for _, refuses = range []bool{true, false} {
		_, err := ask(t.Context(), client, issuer, nil)
		_, more := (&Addresses{issuer: issuer, client: client}).ask(t.Context(), 0)
		for _, err := range []error{err, more} {
			if err == nil || strings.Contains(err.Error(), "has connected too often") != refuses {
				t.Errorf("the issuer refuses handshakes: %v; %v", refuses, err)
			}
		}
	}
}
