package inject

import (
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/outrigger-hpc/outrigger/api/names"
)

// UserDefault is the sidecar's user where nothing else is said; it needs no rights and owns
// nothing.
const UserDefault = 65532

// UIDs are the users that a namespace has for its pods, and no others, where it has some: on
// OpenShift each has a range (SecurityContextConstraints restricted-v2). Count 0: any.
type UIDs struct{ First, Count int64 }

// annotationUIDs has the range of a namespace: FIRST/COUNT or FIRST-LAST.
const annotationUIDs = "openshift.io/sa.scc.uid-range"

// uidMax is the last user that Kubernetes takes.
const uidMax = 1<<31 - 1

// UIDsOf reads the range that the annotations of a namespace have. What is no range counts
// as none: the platform admits no pod by it either.
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

// has reports whether a user is one of the range; root is none.
func (u UIDs) has(user int64) bool {
	return user > 0 && user >= u.First && user < u.First+u.Count
}

// user is the sidecar's in a pod: one of the namespace's range, the last that no other
// container of the pod has, so that what belongs to the sidecar's user belongs to no other
// program. Where the range has no such user, it is the last one, which then is another
// container's, too (docs/security.md). Without a range it is that of the settings; 0: the
// platform chooses.
func (s *Settings) user(spec *corev1.PodSpec) int64 {
	if s.UIDs.Count == 0 {
		if s.User != nil {
			return *s.User
		}
		return UserDefault
	}
	taken := s.otherUsers(spec)
	last := s.UIDs.First + s.UIDs.Count - 1
	for user := last; user >= s.UIDs.First; user-- { // as many steps as containers, at most
		if s.UIDs.has(user) && !slices.Contains(taken, user) {
			return user
		}
	}
	return last
}

// otherUsers are the users of the containers of a pod that are not ours. One that names no user
// has the pod's, or gets the first one of the range.
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

// assigned takes out of a container's security context what restricted-v2 gives containers
// that do not say it themselves: a user of the namespace's range, which is no other
// container's if ours is not, and the SELinux level of the namespace. It changes both.
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
