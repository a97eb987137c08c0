package main

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/outrigger-hpc/outrigger/e2e/harness/refusal"
)

// refuse is an admission webhook that refuses with a status code: ADDRESS
// CERTIFICATE KEY CODE MESSAGE, the certificate and its key as files.
func refuse(ctx context.Context, args []string) error {
	if len(args) != 5 {
		return errors.New("refuse ADDRESS CERTIFICATE KEY CODE MESSAGE")
	}
	code, err := strconv.Atoi(args[3])
	if err != nil {
		return err
	}
	server := &http.Server{Addr: args[0], Handler: refusal.Handler(code, args[4]), ReadHeaderTimeout: 10 * time.Second}
	context.AfterFunc(ctx, func() { _ = server.Close() })
	if err := server.ListenAndServeTLS(args[1], args[2]); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
