package controller

import (
	"context"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

// withheld are the kinds of objects of which it has been said that this operator may not read
// them.
var withheld sync.Map

// unread notes that what would make a status clearer, or pods fit their namespace, cannot be
// read, and that jobs go on without. An administrator who has withheld the right is told so
// once for each kind.
func unread(ctx context.Context, kind, without, name string, err error) {
	l := log.FromContext(ctx)
	if apierrors.IsForbidden(err) {
		if _, said := withheld.LoadOrStore(kind, true); !said {
			l.Info("the operator may not read "+kind+", and goes on without: "+without, "name", name, "cause", err.Error())
			return
		}
	}
	l.V(1).Info(kind+" cannot be read", "name", name, "cause", err.Error())
}
