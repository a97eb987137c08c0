package verdict

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/outrigger-hpc/outrigger/api/podlife"
	"github.com/outrigger-hpc/outrigger/api/v1alpha1"
)

// A kubelet ends a container whose postStart hook has failed. The launcher in it may
// report that it was terminated, or nothing if it had not started. Only an event has
// the cause.

// Hook is a postStart hook that has failed.
type Hook struct {
	Pod  string
	Text string // text of the event; empty: no event reports one
}

// Hooked returns the pod of the failure of a plan if its postStart hook may be the
// cause; nil otherwise.
func Hooked(o *Observation, p *Plan) *corev1.Pod {
	f := p.Status.FirstFailure
	if f == nil || f.Pod == "" {
		return nil
	}
	for _, q := range o.Pods {
		if q.Name != f.Pod || q.UID == "" {
			continue
		}
		t := ended(o.application(q))
		untold := t == nil || message(t.Message, podlife.KindRanks) == nil
		switch f.Reason {
		case string(podlife.Terminated):
			return q
		case string(podlife.RankExited), string(podlife.RankKilled):
			if untold {
				return q
			}
		}
	}
	return nil
}

// hooked reports whether a pod's container was ended because of its hook.
func (o *Observation) hooked(p *corev1.Pod) bool { return o.Hook.Text != "" && o.Hook.Pod == p.Name }

// ofHook marks a failure as that of a hook.
func (o *Observation) ofHook(f *v1alpha1.Failure, p *corev1.Pod) {
	f.Reason = string(podlife.Terminated)
	f.Message = fmt.Sprintf("the lifecycle.postStart hook of container %s failed, for which its kubelet ended the container: %s", o.ApplicationName(p), o.Hook.Text)
}
