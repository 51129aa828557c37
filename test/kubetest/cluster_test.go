package kubetest_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/tools/cache"

	"github.com/moonsail/moonsail/test/await"
	"github.com/moonsail/moonsail/test/kubetest"
)

// seen has the names of ConfigMaps that an informer has reported.
type seen struct {
	mu    sync.Mutex // guards names
	names map[string]bool
}

// watchConfigMaps runs an informer until the test ends.
func watchConfigMaps(t *testing.T, c *kubetest.Cluster, ns string) *seen {
	t.Helper()
	s := &seen{names: map[string]bool{}}
	maps := cache.NewListWatchFromClient(c.Client.CoreV1().RESTClient(), "configmaps", ns, fields.Everything())
	informer := cache.NewSharedInformer(maps, &corev1.ConfigMap{}, 0)
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) { s.set(obj, true) },
		DeleteFunc: func(obj any) {
			if last, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				obj = last.Obj
			}
			s.set(obj, false)
		},
	})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { informer.RunWithContext(ctx) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	return s
}

func (s *seen) set(obj any, is bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.names[obj.(*corev1.ConfigMap).Name] = is
}

// has waits until a ConfigMap is seen, or no longer seen.
func (s *seen) has(t *testing.T, c *kubetest.Cluster, name string, is bool) {
	t.Helper()
	c.Eventually(t, "event of "+name, func(context.Context) error {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.names[name] != is {
			return fmt.Errorf("seen is %v", s.names)
		}
		return nil
	})
}

func makeConfigMap(t *testing.T, c *kubetest.Cluster, ns, name string) {
	t.Helper()
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}
	_, err := c.Client.CoreV1().ConfigMaps(ns).Create(t.Context(), cm, metav1.CreateOptions{})
	require.NoError(t, err)
}

func TestKilledClusterComesBack(t *testing.T) {
	pid, ns := 0, ""
	t.Run("killed and paused", func(t *testing.T) {
		c := kubetest.Alone(t)
		ns = c.Namespace(t)
		killAndRestart(t, c, ns)
		pauseAndResume(t, c, ns) // the same cluster, because a start takes seconds
		c.Apply(t, "istio-system", "{apiVersion: v1, kind: Secret, metadata: {name: left}}")
		pid = c.Pid()
	})
	t.Run("given to the next test", func(t *testing.T) {
		c := kubetest.Alone(t)
		require.Equal(t, pid, c.Pid())
		_, err := c.Client.CoreV1().Namespaces().Get(t.Context(), ns, metav1.GetOptions{})
		require.True(t, apierrors.IsNotFound(err), "%v", err)
		_, err = c.Client.CoreV1().Secrets("istio-system").Get(t.Context(), "left", metav1.GetOptions{})
		require.True(t, apierrors.IsNotFound(err), "%v", err)
	})
}

func killAndRestart(t *testing.T, c *kubetest.Cluster, ns string) {
	t.Helper()
	c.Apply(t, ns, fmt.Sprintf(web, 2))
	before := waitReady(t, c, ns, 2)
	maps := watchConfigMaps(t, c, ns)
	makeConfigMap(t, c, ns, "before")
	maps.has(t, c, "before", true)
	server := c.Server()

	c.Kill()
	_, err := c.Client.CoreV1().Pods(ns).List(t.Context(), metav1.ListOptions{})
	require.Error(t, err, "no answer")
	c.Restart(t)

	require.Equal(t, server, c.Server())
	require.Equal(t, before, waitReady(t, c, ns, 2), "the pods are the same")
	makeConfigMap(t, c, ns, "after")
	maps.has(t, c, "after", true)
	require.NoError(t, c.Client.CoreV1().ConfigMaps(ns).Delete(t.Context(), "before", metav1.DeleteOptions{}))
	maps.has(t, c, "before", false)

	c.Apply(t, ns, fmt.Sprintf(web, 4))
	waitReady(t, c, ns, 4)
}

func pauseAndResume(t *testing.T, c *kubetest.Cluster, ns string) {
	c.Pause(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	_, err := c.Client.CoreV1().Pods(ns).List(ctx, metav1.ListOptions{})
	require.ErrorIs(t, err, context.DeadlineExceeded, "no answer, and no broken connection")
	c.Resume(t)
	waitReady(t, c, ns, 4)
}

func TestPodsMayBeOnLoopback(t *testing.T) {
	c := kubetest.Start(t, "--nodes=1", "--pod-cidr=127.21.0.0/30", "--service-cidr=127.22.0.0/24", "--stop-after=0s", "--namespaces=")
	require.Empty(t, rootNamespace(t, c))
	ns := c.Namespace(t)
	c.Apply(t, ns, fmt.Sprintf(web, 2))
	require.Equal(t, []string{"127.21.0.1", "127.21.0.2"}, waitReady(t, c, ns, 2))
	svc, err := c.Client.CoreV1().Services(ns).Get(t.Context(), "web", metav1.GetOptions{})
	require.NoError(t, err)
	require.True(t, strings.HasPrefix(svc.Spec.ClusterIP, "127.22.0."), svc.Spec.ClusterIP)

	// One more pod takes the last address, and the next one waits until that is released.
	c.Apply(t, ns, fmt.Sprintf(webPod, ""))
	waitAddress(t, c, ns, "web-1", "127.21.0.3")
	c.Apply(t, ns, strings.Replace(fmt.Sprintf(webPod, ""), "web-1", "web-2", 1))
	require.NoError(t, c.Client.CoreV1().Pods(ns).Delete(t.Context(), "web-1", metav1.DeleteOptions{}))
	waitAddress(t, c, ns, "web-2", "127.21.0.3")
}

// TestRootNamespace checks that the root namespace exists as an installer of a mesh leaves it, and that Pods can be
// created in it.
func TestRootNamespace(t *testing.T) {
	require.Equal(t, "default", rootNamespace(t, kubetest.Shared(t)))
}

// rootNamespace returns the account of its Pods; "": the namespace does not exist.
func rootNamespace(t *testing.T, c *kubetest.Cluster) string {
	t.Helper()
	account, err := c.Client.CoreV1().ServiceAccounts("istio-system").Get(t.Context(), "default", metav1.GetOptions{})
	if !apierrors.IsNotFound(err) {
		require.NoError(t, err)
	}
	return account.Name
}

func waitAddress(t *testing.T, c *kubetest.Cluster, ns, name, want string) {
	t.Helper()
	c.Eventually(t, "the address of "+name, func(ctx context.Context) error {
		pod, err := c.Client.CoreV1().Pods(ns).Get(ctx, name, metav1.GetOptions{})
		if err == nil && pod.Status.PodIP != want {
			err = fmt.Errorf("it is %q", pod.Status.PodIP)
		}
		return err
	})
}

// TestInterruptedClusterCleansUp runs the binary as a user does, and interrupts it.
func TestInterruptedClusterCleansUp(t *testing.T) {
	tmp, kubeconfig := t.TempDir(), filepath.Join(t.TempDir(), "kubeconfig")
	cmd := exec.Command("../../.tools/kube/kube", "--kubeconfig", kubeconfig)
	cmd.Env = append(os.Environ(), "TMPDIR="+tmp)
	var said strings.Builder
	cmd.Stdout, cmd.Stderr = &said, &said
	require.NoError(t, cmd.Start())
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for !exists(kubeconfig) {
		select {
		case err := <-ended:
			t.Fatalf("it ended before it was ready: %v: %s", err, said.String())
		case <-time.After(20 * time.Millisecond):
		}
	}
	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	require.NoError(t, await.From(t, ended))
	left, err := os.ReadDir(tmp)
	require.NoError(t, err)
	require.Empty(t, left)
	require.NoFileExists(t, kubeconfig)
}

func exists(file string) bool {
	_, err := os.Stat(file)
	return err == nil
}
