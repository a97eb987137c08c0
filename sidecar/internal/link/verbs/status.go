package verbs

import "fmt"

// statusNames are the texts of completion statuses, by the numbers of ibv_wc_status.
var statusNames = [...]string{
	"success", "local length error", "local QP operation error", "local EE context operation error", "local protection error",
	"request was flushed", "memory window bind error", "bad response", "local access error", "remote invalid request",
	"remote access error", "remote operation error", "the peer's device does not answer", "the peer posted no receive", "local RDD violation",
	"remote invalid RD request", "remote aborted", "invalid EE context number", "invalid EE context state", "fatal error",
	"response timeout", "general error",
}

func statusText(raw uint32) string {
	if int(raw) < len(statusNames) {
		return statusNames[raw]
	}
	return fmt.Sprintf("status %d", raw)
}

// The statuses that the link distinguishes.
const (
	rawFlushed = 5
	rawAccess  = 10
)
