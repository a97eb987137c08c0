package refusal

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestHandler(t *testing.T) {
	for body, want := range map[string]string{
		`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"7","object":{"kind":"Job"}}}`: `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{"uid":"7","allowed":false,"status":{"code":400,"message":"no cost centre"}}}`,
		`{}`:    "want an AdmissionReview",
		`words`: "want an AdmissionReview",
	} {
		w := httptest.NewRecorder()
		Handler(http.StatusBadRequest, "no cost centre").ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/", strings.NewReader(body)))
		if got := strings.TrimSpace(w.Body.String()); !strings.HasPrefix(got, want) {
			t.Errorf("%s\n%s\nwant %s", body, got, want)
		}
	}
}
