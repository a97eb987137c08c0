package kubelet

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"sync"

	"google.golang.org/grpc"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/outrigger-hpc/outrigger/api/names"
	"github.com/outrigger-hpc/outrigger/devplugin/internal/offer"
)

// server serves one kubelet process.
type server struct {
	api.UnimplementedDevicePluginServer
	plugin *Plugin
	grpc   *grpc.Server
	// own is the inode of the socket. The listener keeps the inode in use, so that no other
	// file can have it.
	own  uint64
	done chan struct{} // closed when Serve has returned

	once      sync.Once
	forgotten chan struct{} // closed when the kubelet has ended its watch
	begin     sync.Once
	watched   chan struct{} // closed when the kubelet has begun its watch
}

func serve(p *Plugin, l net.Listener, own uint64) *server {
	s := &server{plugin: p, grpc: grpc.NewServer(), own: own, done: make(chan struct{}), forgotten: make(chan struct{}), watched: make(chan struct{})}
	api.RegisterDevicePluginServer(s.grpc, s)
	go func() {
		defer close(s.done)
		if err := s.grpc.Serve(l); err != nil {
			p.config.Log.Error("serving the kubelet", "cause", err)
			s.forget()
		}
	}()
	return s
}

// stop ends all calls. It removes the socket file only if the file is still this server's.
func (s *server) stop() {
	if identify(s.plugin.socket()).inode == s.own {
		_ = os.Remove(s.plugin.socket()) // a starting kubelet may remove it at the same time
	}
	s.grpc.Stop()
	<-s.done
}

func (s *server) forget() { s.once.Do(func() { close(s.forgotten) }) }

func (s *server) isForgotten() bool {
	select {
	case <-s.forgotten:
		return true
	default:
		return false
	}
}

func (s *server) isWatched() bool {
	select {
	case <-s.watched:
		return true
	default:
		return false
	}
}

func options() *api.DevicePluginOptions {
	return &api.DevicePluginOptions{GetPreferredAllocationAvailable: true}
}

// GetDevicePluginOptions implements the device plugin API.
func (s *server) GetDevicePluginOptions(context.Context, *api.Empty) (*api.DevicePluginOptions, error) {
	return options(), nil
}

// ListAndWatch sends the devices, and sends them again at each change, until the kubelet
// disconnects.
func (s *server) ListAndWatch(_ *api.Empty, stream grpc.ServerStreamingServer[api.ListAndWatchResponse]) error {
	s.begin.Do(func() { close(s.watched) })
	defer s.forget()
	for {
		changed := s.plugin.nextChange() // requested before the list, so that no change between them is missed
		if err := stream.Send(&api.ListAndWatchResponse{Devices: list(s.plugin.ledger.Units(s.plugin.config.Resource))}); err != nil {
			return err
		}
		select {
		case <-changed:
		case <-stream.Context().Done():
			return nil
		}
	}
}

func list(units []offer.Unit) []*api.Device {
	all := make([]*api.Device, len(units))
	for i, u := range units {
		all[i] = &api.Device{ID: u.ID, Health: api.Unhealthy}
		if u.Healthy {
			all[i].Health = api.Healthy
		}
		// A device without a topology fits every NUMA node, which is right for a device whose
		// node is not known.
		if u.NUMA >= 0 {
			all[i].Topology = &api.TopologyInfo{Nodes: []*api.NUMANode{{ID: int64(u.NUMA)}}}
		}
	}
	return all
}

// GetPreferredAllocation returns the devices that fit best.
func (s *server) GetPreferredAllocation(_ context.Context, r *api.PreferredAllocationRequest) (*api.PreferredAllocationResponse, error) {
	out := &api.PreferredAllocationResponse{}
	for _, c := range r.ContainerRequests {
		ids := s.plugin.ledger.Prefer(s.plugin.config.Resource, c.AvailableDeviceIDs, c.MustIncludeDeviceIDs, int(c.AllocationSize))
		out.ContainerResponses = append(out.ContainerResponses, &api.ContainerPreferredAllocationResponse{DeviceIDs: ids})
	}
	return out, nil
}

// Allocate returns what a container gets with its devices: device files that it may read and
// write but not create, and one variable. The pod's status has the error.
func (s *server) Allocate(ctx context.Context, r *api.AllocateRequest) (*api.AllocateResponse, error) {
	out := &api.AllocateResponse{}
	if before := s.plugin.config.Before; before != nil {
		if err := before(ctx); err != nil {
			s.plugin.refusals.Add(1)
			s.plugin.config.Log.Warn("allocation refused", "cause", err)
			return nil, err
		}
	}
	for _, c := range r.ContainerRequests {
		h, err := s.plugin.ledger.Allocate(s.plugin.config.Resource, c.DevicesIds)
		if err != nil {
			s.plugin.refusals.Add(1)
			s.plugin.config.Log.Warn("allocation refused", "units", c.DevicesIds, "cause", err)
			return nil, err
		}
		s.plugin.allocations.Add(1)
		s.plugin.config.Log.Info("allocated", "units", c.DevicesIds, "files", h.Files)
		out.ContainerResponses = append(out.ContainerResponses, s.plugin.response(h))
	}
	return out, nil
}

func (p *Plugin) response(h *offer.Handout) *api.ContainerAllocateResponse {
	r := &api.ContainerAllocateResponse{Envs: h.Env}
	p.mountGrants(r)
	if len(h.Files) == 0 {
		return r // CDI has no description of a device without files
	}
	if p.config.CDI != nil {
		for _, id := range h.Devices {
			r.CdiDevices = append(r.CdiDevices, &api.CDIDevice{Name: p.config.CDI(p.config.Resource, id)})
		}
		return r
	}
	for _, f := range h.Files {
		r.Devices = append(r.Devices, &api.DeviceSpec{
			ContainerPath: filepath.Join("/dev", f), HostPath: filepath.Join(p.config.HostDev, f), Permissions: "rw",
		})
	}
	return r
}

// mountGrants mounts the directory of the agent's socket into a container. The socket itself
// is a new file after each start of the agent. The kubelet merges equal mounts of several
// resources.
func (p *Plugin) mountGrants(r *api.ContainerAllocateResponse) {
	if p.config.GrantSocket == "" {
		return
	}
	dir := filepath.Dir(p.config.GrantSocket)
	r.Mounts = []*api.Mount{{ContainerPath: dir, HostPath: dir, ReadOnly: true}}
	r.Envs[names.EnvGrantSocket] = p.config.GrantSocket
}
