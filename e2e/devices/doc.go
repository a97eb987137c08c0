// Package devices tests the device plugin against a real kubelet, container
// runtime and scheduler: `make test-cluster` runs it on the test cluster. The
// devices are fake ones of devplugin/sysfstest; their files are harmless
// character devices, so that what reaches a pod can be opened.
package devices
