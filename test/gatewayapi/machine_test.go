package gatewayapi

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// machine runs the processes of Pods, and a router for each Gateway. Only the goroutine of its loop uses it.
type machine struct {
	*cluster
	t    *testing.T
	pods map[types.UID]*running
	logs *podLogs
	next int // number of the next Pod's link
}

// running is a Pod with its process; cmd is nil if the image is unknown.
type running struct {
	host string // the network namespace
	cmd  *exec.Cmd
	log  *podLog
}

// startMachine runs a machine until the test ends.
func startMachine(t *testing.T, c *cluster) {
	t.Helper()
	m := &machine{cluster: c, t: t, pods: map[types.UID]*running{}, logs: serveLogs(t, c)}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer m.stopAll()
		m.loop(ctx)
	}()
	t.Cleanup(func() { stop(); <-ended })
}

// loop compares several times a second what should run with what runs, until ctx ends.
func (m *machine) loop(ctx context.Context) {
	ticker := time.NewTicker(200 * time.Millisecond)
	defer ticker.Stop()
	for {
		if err := errors.Join(m.gateways(ctx), m.run(ctx)); err != nil && ctx.Err() == nil {
			fmt.Fprintln(os.Stderr, "machine:", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// run starts missing processes and ends unwanted ones.
func (m *machine) run(ctx context.Context) error {
	var list corev1.PodList
	if err := m.client.List(ctx, &list); err != nil {
		return err
	}
	var failed []error
	wanted := map[types.UID]bool{}
	for i := range list.Items {
		pod := &list.Items[i]
		if wanted[pod.UID] = pod.DeletionTimestamp == nil; !wanted[pod.UID] || m.pods[pod.UID] != nil || pod.Status.PodIP == "" {
			continue
		}
		if err := m.start(ctx, pod); err != nil {
			failed = append(failed, fmt.Errorf("%s/%s: %w", pod.Namespace, pod.Name, err))
		}
	}
	for uid, r := range m.pods {
		if !wanted[uid] {
			r.stop()
			delete(m.pods, uid)
		}
	}
	return errors.Join(failed...)
}

func (m *machine) start(ctx context.Context, pod *corev1.Pod) error {
	cmd, err := m.command(ctx, pod)
	if err != nil {
		return err
	}
	m.next++
	r := &running{host: fmt.Sprintf("pod%d", m.next)}
	if err := m.connect(r.host, pod.Status.PodIP); err != nil {
		return err
	}
	m.pods[pod.UID] = r
	if cmd == nil {
		return nil
	}
	if r.log, err = m.logs.open(filepath.Join(m.dir, pod.Namespace+"-"+pod.Name+".log"), pod.Namespace+"/"+pod.Name); err != nil {
		return err
	}
	r.cmd = exec.Command("ip", append([]string{"netns", "exec", r.host}, cmd.Args...)...)
	r.cmd.Env, r.cmd.Stdout, r.cmd.Stderr = cmd.Env, r.log, r.log
	if err := r.cmd.Start(); err != nil {
		r.cmd = nil
		return err
	}
	return m.setReady(ctx, pod)
}

// connect creates a network namespace with an address on the bridge.
func (m *machine) connect(host, address string) error {
	port := "p" + host
	for _, args := range [][]string{
		{"netns", "add", host},
		{"link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", host},
		{"link", "set", port, "master", "br0", "up"},
		{"-n", host, "link", "set", "lo", "up"},
		{"-n", host, "addr", "add", address + "/16", "dev", "eth0"},
		{"-n", host, "link", "set", "eth0", "up"},
		{"-n", host, "route", "add", "default", "via", nodeAddress},
	} {
		if err := tryIP(args...); err != nil {
			return err
		}
	}
	return nil
}

// annotationReady keeps a Pod from being ready while it is "false".
const annotationReady = "kubelet.moonsail.dev/ready"

// setReady makes a router ready whose process has been started.
func (m *machine) setReady(ctx context.Context, pod *corev1.Pod) error {
	if pod.Annotations[annotationReady] != "false" {
		return nil
	}
	patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"`+annotationReady+`":"true"}}}`))
	return m.client.Patch(ctx, pod, patch)
}

func (m *machine) stopAll() {
	for _, r := range m.pods {
		r.stop()
	}
}

func (r *running) stop() {
	if r.cmd != nil {
		end(r.cmd)
		_ = r.log.file.Close()
	}
	_ = tryIP("netns", "del", r.host)
}
