// Package refusal is an admission webhook of another vendor that refuses: the
// API server then answers each client that makes an object with the webhook's status code,
// which need not be 403.
package refusal

import (
	"encoding/json"
	"net/http"
)

// reviewBytes bounds the bytes that are read of a request.
const reviewBytes = 8 << 20

// review has the fields of an AdmissionReview that are used (admission.k8s.io/v1).
type review struct {
	APIVersion string   `json:"apiVersion"`
	Kind       string   `json:"kind"`
	Request    *request `json:"request,omitempty"`
	Response   *answer  `json:"response,omitempty"`
}

type request struct {
	UID string `json:"uid"`
}

type answer struct {
	UID     string `json:"uid"`
	Allowed bool   `json:"allowed"`
	Status  status `json:"status"`
}

type status struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
}

// Handler refuses everything with a status code and a message.
func Handler(code int, message string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var asked review
		if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, reviewBytes)).Decode(&asked); err != nil || asked.Request == nil {
			http.Error(w, "want an AdmissionReview with a request", http.StatusBadRequest)
			return
		}
		asked.Response, asked.Request = &answer{UID: asked.Request.UID, Status: status{code, message}}, nil
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(&asked) // who asks may have left
	})
}
