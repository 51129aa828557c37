//go:build linux

package hosts

import (
	"bytes"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/moonsail/moonsail/internal/sidecar/envoy"
	"github.com/moonsail/moonsail/test/await"
	"github.com/moonsail/moonsail/test/labtest"
	"github.com/moonsail/moonsail/test/netns"
)

// kubelet runs moonsail's containers of one injected Pod on a host, with the arguments, environment and users of the
// Pod. Files are in a separate folder.
type kubelet struct {
	t    *testing.T
	host *netns.Host
	pod  *corev1.Pod
	ip   netip.Addr // the Pod's
	dir  string
}

// inject runs "moonsail inject" on a Pod that will run on a host.
func inject(t *testing.T, h *netns.Host, pod, config string) *kubelet {
	t.Helper()
	file := filepath.Join(t.TempDir(), "injection.yaml")
	require.NoError(t, os.WriteFile(file, []byte(config), 0o600))
	cmd := exec.Command(os.Args[0], "inject", "-f", "-", "--config", file)
	cmd.Env = append(os.Environ(), labtest.AsMoonsail)
	cmd.Stdin, cmd.Stderr = strings.NewReader(pod), os.Stderr
	out, err := cmd.Output()
	require.NoError(t, err)
	k := &kubelet{t: t, host: h, pod: &corev1.Pod{}, ip: h.IP, dir: readableDir(t)}
	require.NoError(t, yaml.UnmarshalStrict(out, k.pod))
	k.place(os.Args[0], "moonsail")
	binary, err := envoy.Find("")
	require.NoError(t, err)
	k.place(binary.Path, "envoy")
	k.writeInfo("labels", k.pod.Labels)
	k.writeInfo("annotations", k.pod.Annotations)
	return k
}

// readableDir returns a folder that every user can read: containers run as different users.
func readableDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "moonsail-pod")
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	require.NoError(t, os.Chmod(dir, 0o755)) //nolint:gosec // required, as the comment above explains
	return dir
}

// place copies a program to where every user can run it.
func (k *kubelet) place(from, name string) {
	k.t.Helper()
	src, err := os.Open(from)
	require.NoError(k.t, err)
	defer func() { _ = src.Close() }()
	dst, err := os.OpenFile(filepath.Join(k.dir, name), os.O_CREATE|os.O_WRONLY, 0o755) //nolint:gosec // as above
	require.NoError(k.t, err)
	_, err = io.Copy(dst, src)
	require.NoError(k.t, err)
	require.NoError(k.t, dst.Close())
}

// writeInfo writes the files of a downwardAPI volume.
func (k *kubelet) writeInfo(name string, values map[string]string) {
	k.t.Helper()
	var text bytes.Buffer
	for n, v := range values {
		fmt.Fprintf(&text, "%s=%q\n", n, v)
	}
	require.NoError(k.t, os.WriteFile(filepath.Join(k.dir, name), text.Bytes(), 0o644)) //nolint:gosec // as above
}

// container returns a container of the Pod.
func (k *kubelet) container(name string) *corev1.Container {
	k.t.Helper()
	for _, c := range append(k.pod.Spec.InitContainers, k.pod.Spec.Containers...) {
		if c.Name == name {
			return &c
		}
	}
	k.t.Fatalf("the Pod has no container %s", name)
	return nil
}

// start runs a container. flags are added to its arguments, for paths in images and volumes.
func (k *kubelet) start(name string, flags ...string) *process {
	k.t.Helper()
	c := k.container(name)
	cmd := exec.Command(filepath.Join(k.dir, "moonsail"), append(c.Args, flags...)...)
	cmd.Dir = k.dir
	cmd.Env = []string{labtest.AsMoonsail, envoy.PathVariable + "=" + filepath.Join(k.dir, "envoy"), "PATH=" + os.Getenv("PATH")}
	for _, e := range c.Env {
		cmd.Env = append(cmd.Env, e.Name+"="+k.valueOf(&e))
	}
	s := c.SecurityContext
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(*s.RunAsUser), Gid: uint32(*s.RunAsGroup)}}
	return start(k.t, k.host, cmd)
}

// valueOf resolves a reference of an environment variable.
func (k *kubelet) valueOf(e *corev1.EnvVar) string {
	k.t.Helper()
	switch {
	case e.ValueFrom == nil:
		return e.Value
	case e.ValueFrom.ResourceFieldRef != nil:
		return map[string]string{"limits.cpu": "1", "limits.memory": "268435456"}[e.ValueFrom.ResourceFieldRef.Resource]
	}
	v, ok := map[string]string{
		"metadata.name": k.pod.Name, "metadata.namespace": k.pod.Namespace, "status.podIPs": k.ip.String(),
		"spec.serviceAccountName": "default", "status.hostIP": "192.0.2.1", "spec.nodeName": "node-1",
	}[e.ValueFrom.FieldRef.FieldPath]
	require.True(k.t, ok, "unknown field %s", e.ValueFrom.FieldRef.FieldPath)
	return v
}

// startPod runs moonsail's containers of a Pod. When it returns, the rules are set and the sidecar is ready. flags are
// for both containers.
func (m *mesh) startPod(k *kubelet, flags ...string) *workload {
	m.t.Helper()
	rules := k.start("istio-init", flags...)
	await.From(m.t, rules.done)
	require.NoError(m.t, rules.err, "%s", rules.log)
	work := filepath.Join(k.dir, "work")
	require.NoError(m.t, os.Mkdir(work, 0o755))
	require.NoError(m.t, os.Chown(work, 1337, 1337))
	w := &workload{Host: k.host, name: k.pod.Name}
	w.agent = k.start("istio-proxy", append([]string{"--work-dir=" + work, "--wasm-cache-dir=" + filepath.Join(work, "wasm"), "--pod-info=" + k.dir}, flags...)...)
	m.awaitReady(w)
	return w
}
