package jobdoc

import (
	"strings"
	"time"
	"unicode"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/outrigger-hpc/outrigger/api/bootstrap"
	"github.com/outrigger-hpc/outrigger/api/memory"
	"github.com/outrigger-hpc/outrigger/api/v1alpha1"
)

// Words of the job document for the values of a profile.
var (
	wait       = map[v1alpha1.WaitPolicy]string{"Poll": "poll", "Yield": "yield", "Block": "block"}
	rendezvous = map[v1alpha1.Rendezvous]string{
		"GetCQE": "getcqe", "Get": "get", "Put": "put", "PutNR": "putnr", "RPut": "rput", "Stream": "stream",
	}
	// TCP is the default of sidecars, and those of earlier releases do not know the field.
	largePath  = map[v1alpha1.LargePath]string{v1alpha1.LargePathAuto: bootstrap.LargeAuto, v1alpha1.LargePathPull: bootstrap.LargePull}
	channel    = map[v1alpha1.EagerChannel]string{"Basic": "basic", "Pipeline": "pipeline", "ZeroCopy": "zerocopy"}
	encryption = map[v1alpha1.Encryption]string{v1alpha1.EncryptionTLS: bootstrap.EncryptTLS}
	exposure   = map[v1alpha1.Exposure]string{v1alpha1.ExposureAllowed: bootstrap.ExposureAllowed}
	transport  = map[v1alpha1.TransportType]string{v1alpha1.TransportTCP: bootstrap.TransportTCP, v1alpha1.TransportRDMA: bootstrap.TransportRDMA, v1alpha1.TransportEther: bootstrap.TransportEther}
	required   = map[v1alpha1.TransportType]bootstrap.Names{
		v1alpha1.TransportTCP: {bootstrap.TransportTCP}, v1alpha1.TransportRDMA: {bootstrap.TransportRDMA}, v1alpha1.TransportEther: {bootstrap.TransportEther},
	}
)

// startWithin is how long sidecars wait for each other. Pods of one job may be
// scheduled at very different times, and a pod that waits for a node must not fail the
// others.
const startWithin = 7 * 24 * time.Hour

func (a *Attempt) tuning() bootstrap.Tuning {
	p, t := &a.Profile, &a.Job.Spec.Transport
	var require bootstrap.Names
	if t.Policy == v1alpha1.TransportRequired {
		require = required[t.Type]
	}
	return bootstrap.Tuning{
		EagerBytes: bytes(p.EagerLimit), FragmentBytes: bytes(p.Fragment), CreditBytes: a.credit(),
		Heartbeat: milliseconds(p.HeartbeatMilliseconds), DeadAfter: milliseconds(p.DeadAfterMilliseconds),
		StartWithin: bootstrap.Duration(startWithin), Transport: transport[t.Type], Require: require, Rendezvous: rendezvous[p.Rendezvous], LargePath: largePath[p.LargePath], Channel: channel[p.EagerChannel],
		Wait: Wait(p), Encrypt: encryption[p.Encryption], Exposure: exposure[p.Exposure],
		Collectives: Collectives(p),
	}
}

// credit returns the credit of the profile, or the default for the job's size; 0: the
// general default. All sidecars must have the same, whatever their release.
func (a *Attempt) credit() int64 {
	if c := memory.CreditOf(int(Pods(&a.Job.Spec))); a.Profile.Credit == nil && c != memory.CreditDefault {
		return c
	}
	return bytes(a.Profile.Credit)
}

// Collectives returns the rules of a profile in the words of the job document.
func Collectives(p *v1alpha1.FabricProfileSpec) (rules []bootstrap.CollectiveRule) {
	for _, r := range p.Collectives {
		rules = append(rules, bootstrap.CollectiveRule{
			Collective: hyphened(string(r.Collective)), Ranks: int(r.Ranks), Pods: int(r.Pods), MaxBytes: r.MaxBytes, Algorithm: hyphened(string(r.Algorithm)),
		})
	}
	return rules
}

// CollectiveRules is the inverse of Collectives.
func CollectiveRules(rules []bootstrap.CollectiveRule) (list []v1alpha1.CollectiveRule) {
	for _, r := range rules {
		list = append(list, v1alpha1.CollectiveRule{
			Collective: v1alpha1.Collective(ProfileWord(r.Collective)), Ranks: int32(r.Ranks), Pods: int32(r.Pods), MaxBytes: r.MaxBytes,
			Algorithm: v1alpha1.CollectiveAlgorithm(ProfileWord(r.Algorithm)),
		})
	}
	return list
}

// hyphened returns the document's word for a value of a profile: "two-level" for "TwoLevel".
func hyphened(value string) string {
	var word strings.Builder
	for i, c := range value {
		if unicode.IsUpper(c) && i > 0 {
			word.WriteByte('-')
		}
		word.WriteRune(unicode.ToLower(c))
	}
	return word.String()
}

// ProfileWord is the inverse of hyphened.
func ProfileWord(word string) string {
	var value strings.Builder
	for part := range strings.SplitSeq(word, "-") {
		if part != "" {
			value.WriteString(strings.ToUpper(part[:1]) + part[1:])
		}
	}
	return value.String()
}

// Wait returns the profile's wait policy in the form for sidecars and ranks
// (names.EnvWait); empty: their own default.
func Wait(p *v1alpha1.FabricProfileSpec) string { return wait[p.WaitPolicy] }

func bytes(q *resource.Quantity) int64 {
	if q == nil {
		return 0
	}
	return q.Value()
}

func milliseconds(n *int32) bootstrap.Duration {
	if n == nil {
		return 0
	}
	return bootstrap.Duration(time.Duration(*n) * time.Millisecond)
}
