package dns

import (
	"context"
	"errors"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// directory is the cluster's Services and their endpoints as last heard from
// the API server.
type directory struct {
	services cache.Indexer // by namespace/name
	slices   cache.Indexer // also by the Service that they belong to
}

const byService = "service"

// watch watches the API server until ctx ends, and returns when it has read all existing
// objects.
func watch(ctx context.Context, config *rest.Config) (*directory, error) {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	d := &directory{}
	var informers []cache.Controller
	follow := func(getter cache.Getter, resource string, kind runtime.Object, indexers cache.Indexers) cache.Indexer {
		store, informer := cache.NewInformerWithOptions(cache.InformerOptions{
			ListerWatcher: cache.NewListWatchFromClient(getter, resource, "", fields.Everything()),
			ObjectType:    kind, Indexers: indexers, Handler: cache.ResourceEventHandlerFuncs{},
		})
		informers = append(informers, informer)
		go informer.RunWithContext(ctx)
		return store.(cache.Indexer)
	}
	d.services = follow(client.CoreV1().RESTClient(), "services", &corev1.Service{}, cache.Indexers{})
	d.slices = follow(client.DiscoveryV1().RESTClient(), "endpointslices", &discoveryv1.EndpointSlice{},
		cache.Indexers{byService: serviceOf})
	for _, i := range informers {
		if !cache.WaitForCacheSync(ctx.Done(), i.HasSynced) {
			return nil, errors.New("stopped before the cluster's Services were known")
		}
	}
	return d, nil
}

// serviceOf returns the Service, namespace/name, that a slice's label names.
func serviceOf(object any) ([]string, error) {
	slice := object.(*discoveryv1.EndpointSlice)
	return []string{slice.Namespace + "/" + slice.Labels[discoveryv1.LabelServiceName]}, nil
}

// resolve returns the addresses of a question's name.
func (d *directory) resolve(question string) []netip.Addr {
	n, ok := parseName(question)
	if !ok {
		return nil
	}
	key := n.namespace + "/" + n.service
	object, exists, err := d.services.GetByKey(key)
	if err != nil || !exists {
		return nil
	}
	found, err := d.slices.ByIndex(byService, key)
	if err != nil {
		return nil
	}
	var slices []*discoveryv1.EndpointSlice
	for _, f := range found {
		slices = append(slices, f.(*discoveryv1.EndpointSlice))
	}
	return addresses(n, object.(*corev1.Service), slices)
}
