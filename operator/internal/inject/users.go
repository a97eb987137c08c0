package inject

import (
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/outrigger-hpc/outrigger/api/names"
)

// UserDefault is the default user id of the sidecar. It needs no rights and owns no
// files.
const UserDefault = 65532

// UIDs is the range of user ids that a namespace allows for its pods. On OpenShift each
// namespace has a range (SecurityContextConstraints restricted-v2). Count 0: any user
// id is allowed.
type UIDs struct{ First, Count int64 }

// annotationUIDs is the annotation with the range of a namespace: FIRST/COUNT or
// FIRST-LAST.
const annotationUIDs = "openshift.io/sa.scc.uid-range"

// uidMax is the largest user id that Kubernetes accepts.
const uidMax = 1<<31 - 1

// UIDsOf parses the range in the annotations of a namespace. An invalid range counts as
// none: the platform does not admit pods by it either.
func UIDsOf(annotations map[string]string) UIDs {
	text := strings.TrimSpace(annotations[annotationUIDs])
	from, size, counted := strings.Cut(text, "/")
	if !counted {
		from, size, counted = strings.Cut(text, "-")
		if !counted {
			return UIDs{}
		}
		first, err := strconv.ParseInt(from, 10, 64)
		last, err2 := strconv.ParseInt(size, 10, 64)
		if err != nil || err2 != nil {
			return UIDs{}
		}
		return rangeOf(first, last)
	}
	first, err := strconv.ParseInt(from, 10, 64)
	count, err2 := strconv.ParseInt(size, 10, 64)
	if err != nil || err2 != nil || count < 1 || count > uidMax {
		return UIDs{}
	}
	return rangeOf(first, first+count-1)
}

func rangeOf(first, last int64) UIDs {
	if first < 0 || first > uidMax || last < first || last > uidMax {
		return UIDs{}
	}
	return UIDs{first, last - first + 1}
}

// has reports whether a user id is in the range. Root is not.
func (u UIDs) has(user int64) bool {
	return user > 0 && user >= u.First && user < u.First+u.Count
}

// user returns the sidecar's user id in a pod. If the namespace has a range, it is the
// last id of the range that no other container of the pod has, so that no other program
// has access to what belongs to the sidecar's user. If all ids are taken, it is the
// last one, which another container has too (docs/security.md). Without a range, it is
// the user of the settings; 0: the platform chooses.
func (s *Settings) user(spec *corev1.PodSpec) int64 {
	if s.UIDs.Count == 0 {
		if s.User != nil {
			return *s.User
		}
		return UserDefault
	}
	taken := s.otherUsers(spec)
	last := s.UIDs.First + s.UIDs.Count - 1
	for user := last; user >= s.UIDs.First; user-- { // at most as many steps as there are containers
		if s.UIDs.has(user) && !slices.Contains(taken, user) {
			return user
		}
	}
	return last
}

// otherUsers returns the user ids of the containers of a pod that are not ours. A
// container without a user id has the pod's, or gets the first one of the range.
func (s *Settings) otherUsers(spec *corev1.PodSpec) (users []int64) {
	general := s.UIDs.First
	if c := spec.SecurityContext; c != nil && c.RunAsUser != nil {
		general = *c.RunAsUser
	}
	for _, c := range slices.Concat(spec.InitContainers, spec.Containers) {
		switch {
		case c.Name == names.ContainerSidecar || c.Name == names.ContainerInstall:
		case c.SecurityContext != nil && c.SecurityContext.RunAsUser != nil:
			users = append(users, *c.SecurityContext.RunAsUser)
		default:
			users = append(users, general)
		}
	}
	return users
}

// assigned removes from a container's security context what restricted-v2 assigns to
// containers that do not set it: a user id of the namespace's range, which no other
// container has if ours has none in common with them, and the SELinux level of the
// namespace. It changes both.
func (s *Settings) assigned(is, ours *corev1.SecurityContext, spec *corev1.PodSpec) {
	if is == nil || ours == nil {
		return
	}
	if l := is.SELinuxOptions; ours.SELinuxOptions == nil && l != nil && *l == (corev1.SELinuxOptions{Level: l.Level}) {
		is.SELinuxOptions = nil
	}
	if is.RunAsUser == nil {
		return
	}
	user, taken := *is.RunAsUser, s.otherUsers(spec)
	switch {
	case s.UIDs.Count > 0 && !s.UIDs.has(user):
	case ours.RunAsUser == nil && user > 0,
		ours.RunAsUser != nil && s.UIDs.Count > 0 && (!slices.Contains(taken, user) || slices.Contains(taken, *ours.RunAsUser)):
		is.RunAsUser = ours.RunAsUser
	}
}
