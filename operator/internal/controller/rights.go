package controller

import (
	"context"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

// withheld are the kinds of objects for which a missing right has been logged.
var withheld sync.Map

// logUnreadable logs that objects which would make a status clearer, or adapt pods to
// their namespace, cannot be read, and that jobs continue without them. A missing right
// is logged once per kind at level info; later errors and errors of other causes are
// logged at level debug.
func logUnreadable(ctx context.Context, kind, without, name string, err error) {
	l := log.FromContext(ctx)
	if apierrors.IsForbidden(err) {
		if _, said := withheld.LoadOrStore(kind, true); !said {
			l.Info("the operator may not read "+kind+", and goes on without: "+without, "name", name, "cause", err.Error())
			return
		}
	}
	l.V(1).Info(kind+" cannot be read", "name", name, "cause", err.Error())
}
