//go:build cluster

package apitest

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/go-logr/logr"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/outrigger-hpc/outrigger/operator/internal/guard"
)

// TestMetricsByToken: the API server decides which clients may read the operator's metrics.
func TestMetricsByToken(t *testing.T) {
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	filter, err := guard.Provider(config, client)
	if err != nil {
		t.Fatal(err)
	}
	guarded, err := filter(logr.Discard(), http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	if err != nil {
		t.Fatal(err)
	}
	ns := namespace(t)
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "metrics-of-" + ns}, Rules: []rbacv1.PolicyRule{{NonResourceURLs: []string{"/metrics"}, Verbs: []string{"get"}}}}
	bound := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: role.Name}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: ns, Name: "scraper"}},
	}
	scraper := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "scraper"}}
	for _, err := range []error{api.Create(t.Context(), role), api.Create(t.Context(), bound), api.Create(t.Context(), scraper)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	of := func(account string, audiences ...string) string {
		r := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: audiences}}
		if err := api.SubResource("token").Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: account}}, r); err != nil {
			t.Fatal(err)
		}
		return r.Status.Token
	}
	good := of("scraper")
	see := func(token string) int {
		r := httptest.NewRequest(http.MethodGet, "/metrics", nil)
		r.Header.Set("Authorization", "Bearer "+token)
		w := httptest.NewRecorder()
		guarded.ServeHTTP(w, r)
		return w.Code
	}
	// The API server's authorizer sees the binding a moment later. Each try has its own token,
	// because decisions are cached.
	eventually(t, func() error {
		good = of("scraper")
		if status := see(good); status != http.StatusOK {
			return fmt.Errorf("the scraper: %d", status)
		}
		return nil
	})
	for what, c := range map[string]struct {
		token string
		want  int
	}{
		"the scraper again":         {good, http.StatusOK},
		"another account":           {of("default"), http.StatusForbidden},
		"a token for others":        {of("scraper", "example.com"), http.StatusUnauthorized},
		"no token of the cluster's": {"junk", http.StatusUnauthorized},
	} {
		if status := see(c.token); status != c.want {
			t.Errorf("%s: %d, want %d", what, status, c.want)
		}
	}
}
