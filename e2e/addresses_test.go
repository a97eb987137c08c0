package e2e

import (
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/outrigger-hpc/outrigger/api/bootstrap"
	"github.com/outrigger-hpc/outrigger/api/bootstrap/pki"
)

// TestAddressesByIssuer checks that sidecars find each other by the addresses that the issuer
// returns, of which the first is wrong, if the job document has no DNS names.
func TestAddressesByIssuer(t *testing.T) {
	h := prepareHand(t, 2, 2)
	a, err := pki.New(h.doc.Job.ID, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	var questions atomic.Int64
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var pod int
		if _, err := fmt.Sscanf(r.Header.Get("Authorization"), "Bearer pod%d", &pod); err != nil {
			http.Error(w, "want a token", http.StatusUnauthorized)
			return
		}
		if r.URL.Path == "/v1/addresses" {
			at := "127.0.0.1"
			if questions.Add(1) <= 2 {
				at = "127.0.7.66" // where nothing listens: the pod has moved since
			}
			_, _ = fmt.Fprintf(w, `{"pods":{"0":[%[1]q],"1":[%[1]q]}}`, at)
			return
		}
		raw, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		key, err := pki.ReadRequest(raw)
		if err != nil {
			t.Error(err)
			return
		}
		cert, err := a.Certify(key, pod)
		if err != nil {
			t.Error(err)
		}
		_, _ = w.Write(cert)
	}))
	defer s.Close()
	for i := range h.doc.Pods {
		_, port, err := net.SplitHostPort(h.doc.Pods[i].Address)
		if err != nil {
			t.Fatal(err)
		}
		h.doc.Pods[i].Address = fmt.Sprintf("cg-0-%d:%s", i, port)
	}
	for i := range h.doc.Pods {
		token := fmt.Sprint("token", i)
		h.write(token, []byte(fmt.Sprint("pod", i)))
		h.doc.TLS = bootstrap.TLS{CA: string(a.CA()), Issuer: &bootstrap.Issuer{
			URL: s.URL + "/v1/certificate", AddressesURL: s.URL + "/v1/addresses", TokenFile: h.dir + "/" + token,
			CA: string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})),
		}}
		raw, err := json.Marshal(h.doc)
		if err != nil {
			t.Fatal(err)
		}
		document := fmt.Sprint("document", i)
		h.write(document, raw)
		cmd := h.command(t.Context(), "outrigger-sidecar", "--bootstrap", h.dir+"/"+document, "--pod", fmt.Sprint(i), "--socket", h.socket(i), "--listen", h.listen[i])
		cmd.Cancel = func() error { return cmd.Process.Signal(unix.SIGTERM) }
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = cmd.Wait() }) // the ranks' end says how it went
	}
	h.launch(ring("-rounds", "100")...)
	if out := h.out.String(); !strings.Contains(out, "every byte right") || questions.Load() < 3 {
		t.Errorf("%d questions\n%s", questions.Load(), out)
	}
}
