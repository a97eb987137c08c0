package main

import (
	"errors"
	"os"

	"github.com/outrigger-hpc/outrigger/api/devices"
	"github.com/outrigger-hpc/outrigger/api/shm/wake"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/copyeng"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/copyeng/dsa"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/copyeng/ioat"
)

// threads returns the number of threads that copy for the engine. tuning is
// bootstrap.Tuning.Helpers. A thread pays only on a processor that no rank and no sidecar
// needs: of two busy processes on one processor, each waits for the other. So by default
// there is one if each process of the job on this machine (sharers) has a processor, and so
// has one thread of each of its pods here. This is decided once, at the start.
func threads(tuning, processors, sharers, pods int) int {
	switch {
	case tuning < 0:
		return 0
	case tuning > 0:
		return tuning
	case processors >= sharers+pods:
		return 1
	}
	return 0
}

// helpers returns the number of threads of this sidecar that copy.
func (d *daemon) helpers() int {
	return threads(d.doc.Tuning.Helpers, wake.Processors(), d.sharers(), d.neighbours()+1)
}

// newCopies returns what large copies are offloaded to: the DSA queues that the device plugin
// has allocated to this container, or else its I/OAT channels, or else threads, if there are
// processors for them.
func (d *daemon) newCopies() *copyeng.Copies {
	queues, err := grantedQueues(os.Environ())
	if err != nil {
		d.log.Warn("DSA queues are not used", "cause", err)
	}
	channels, err := grantedChannels(os.Environ())
	if err != nil {
		d.log.Warn("I/OAT channels are not used", "cause", err)
	}
	n := d.helpers()
	switch {
	case len(queues) > 0:
		d.log.Info("DSA queues may copy large messages", "queues", queues)
		return copyeng.New(copyeng.Config{Kind: "dsa", Open: func(int) ([]*copyeng.Lane, error) { return openQueues(queues) }})
	case len(channels) > 0:
		d.log.Info("I/OAT channels may copy large messages", "devices", deviceNames(channels))
		return copyeng.New(copyeng.Config{Kind: "ioat", Open: func(int) ([]*copyeng.Lane, error) { return openChannels(channels) }})
	case n > 0:
		d.log.Info("threads may copy large messages", "threads", n)
		return copyeng.New(copyeng.Config{Kind: "helper", Open: func(bell int) (lanes []*copyeng.Lane, _ error) {
			for range n {
				h := copyeng.NewHelper(bell)
				lanes = append(lanes, &copyeng.Lane{Channel: h, Alert: h.Alert})
			}
			return lanes, nil
		}})
	}
	return copyeng.New(copyeng.Config{})
}

// grantedQueues returns the device files of the DSA queues that the device plugin has
// allocated to this container.
func grantedQueues(environ []string) (files []string, err error) {
	list, err := devices.FromEnv(environ)
	if err != nil {
		return nil, err
	}
	for _, x := range list {
		if x.Kind == "dsa" {
			files = append(files, x.Files...)
		}
	}
	return files, nil
}

// grantedChannels returns the I/OAT devices that the device plugin has allocated to this
// container.
func grantedChannels(environ []string) (found []devices.Device, err error) {
	list, err := devices.FromEnv(environ)
	for _, x := range list {
		if x.Kind == "ioat" {
			found = append(found, x)
		}
	}
	return found, err
}

// openChannels opens a channel of each device. Nothing wakes an engine when their copies end.
func openChannels(list []devices.Device) (lanes []*copyeng.Lane, err error) {
	for _, x := range list {
		c, err := openChannel(&x)
		if err != nil {
			for _, l := range lanes {
				err = errors.Join(err, l.Channel.Close())
			}
			return nil, err
		}
		lanes = append(lanes, &copyeng.Lane{Channel: c})
	}
	return lanes, nil
}

func openChannel(x *devices.Device) (*ioat.Channel, error) {
	v, err := ioat.OpenVFIO(x.Name, x.Files)
	if err != nil {
		return nil, err
	}
	c, err := ioat.Open(v, ioat.Options{})
	if err != nil {
		return nil, errors.Join(err, v.Close())
	}
	return c, nil
}

// openQueues opens DSA queues. Nothing wakes an engine when their copies end: it polls while
// some are pending.
func openQueues(files []string) (lanes []*copyeng.Lane, err error) {
	for _, file := range files {
		q, err := dsa.Open(dsa.Config{File: file})
		if err != nil {
			for _, l := range lanes {
				err = errors.Join(err, l.Channel.Close())
			}
			return nil, err
		}
		lanes = append(lanes, &copyeng.Lane{Channel: q})
	}
	return lanes, nil
}
