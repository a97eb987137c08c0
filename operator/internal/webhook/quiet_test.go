package webhook

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
)

// TestQuiet: errors of the certificate's controller while the webhook is turned on are logged
// as information if they are transient. Other errors are logged as errors.
func TestQuiet(t *testing.T) {
	var out bytes.Buffer
	now := time.Unix(1000, 0)
	log := logr.FromSlogHandler(Quiet(slog.NewTextHandler(&out, nil), func() time.Time { return now }))
	rotator, failed := log.WithName("cert-rotation"), errors.New("the object has been modified")
	says := func(want string, say func()) {
		t.Helper()
		out.Reset()
		if say(); !strings.Contains(out.String(), "level="+want) {
			t.Errorf("%swant level %s", out.String(), want)
		}
	}
	says("INFO", func() { rotator.Error(failed, "secret is not well-formed, cannot update webhook configurations") })
	says("INFO", func() { rotator.WithValues("name", "outrigger").Error(failed, "Unable to inject cert to webhook.") })
	says("INFO", func() { log.WithValues("controller", "cert-rotator").Error(failed, "Reconciler error") })
	says("ERROR", func() { log.WithName("webhook").Error(failed, "it does not listen") })
	says("ERROR", func() { log.WithValues("controller", "mpijob").Error(failed, "Reconciler error") })
	says("ERROR", func() { log.Error(failed, "cert-rotation") })
	now = now.Add(errorsPass)
	says("ERROR", func() { rotator.Error(failed, "could not refresh CA and server certs") })
	now = now.Add(errorsPause / 2)
	says("ERROR", func() { rotator.Error(failed, "could not refresh CA and server certs") })
	now = now.Add(2 * errorsPause) // the next certificate
	says("INFO", func() { rotator.Error(failed, "could not refresh CA and server certs") })
	warned := logr.FromSlogHandler(Quiet(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelWarn}), func() time.Time { return now }))
	out.Reset()
	if warned.WithName("cert-rotation").Error(failed, "x"); out.Len() > 0 {
		t.Errorf("at level warn: %s", &out)
	}
}
