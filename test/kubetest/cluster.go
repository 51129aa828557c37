// Package kubetest runs the Kubernetes API server of test/kube for tests: the real one, with the controllers that
// Deployments and Services need, and a kubelet that only reports that its containers run.
//
// A cluster takes some seconds to start and some hundred megabytes, so the tests of a package share one, each in
// separate namespaces:
//
//	func TestMain(m *testing.M) { goleak.VerifyTestMain(kubetest.Main(m)) }
//
//	func TestSomething(t *testing.T) {
//		c := kubetest.Shared(t)
//		ns := c.Namespace(t)
//		c.Apply(t, ns, "apiVersion: v1\nkind: Service\n...")
//	}
//
// A test that kills or stops its cluster, or inspects all of it, uses one that no other test uses (Alone). A test that
// configures its cluster starts one (Start).
package kubetest

import (
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/moonsail/moonsail/test/halt"
)

// Cluster is a running (or killed, or paused) API server and its state.
type Cluster struct {
	// Client and Dynamic are administrators without a rate limit.
	Client  kubernetes.Interface
	Dynamic dynamic.Interface

	dir     string
	args    []string
	process *process
	port    string // stays the same when the cluster is started again
	took    string
	http    *http.Client

	mu     sync.Mutex      // guards mapper
	mapper meta.RESTMapper // of the kinds that existed when it was made; nil before
}

// Start starts a cluster for one test, with further flags of the binary (see `kube --help`), for example --nodes=5 or
// --pod-cidr=127.20.0.0/16. The cluster ends with the test.
func Start(t testing.TB, args ...string) *Cluster {
	t.Helper()
	c, err := start(args)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("log of the Kubernetes API server:\n%s", c.Log())
		}
		c.Close()
	})
	t.Logf("Kubernetes API server %s started in %s, pid %d", c.Server(), c.took, c.Pid())
	return c
}

func start(args []string) (*Cluster, error) {
	dir, err := os.MkdirTemp("", "kubetest-")
	if err != nil {
		return nil, err
	}
	c := &Cluster{dir: dir, args: args, port: keptPort()}
	if err = c.run(); err == nil {
		err = c.connect()
	}
	if err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// keptPort returns a free port that the kernel does not assign to processes that request any port, so that a killed
// cluster can use its port again. Such ports are below 32768.
func keptPort() string {
	for range 100 {
		port := strconv.Itoa(21_000 + rand.IntN(11_000))
		if l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", port)); err == nil {
			_ = l.Close() // no client has connected
			return port
		}
	}
	return "0"
}

// run starts the process and waits until it is ready.
func (c *Cluster) run() (err error) {
	c.process, err = startProcess(append([]string{"--dir", c.dir, "--port", c.port}, c.args...)...)
	if err != nil {
		return err
	}
	said, err := c.process.waitReady()
	if err != nil {
		return err
	}
	u, err := url.Parse(said["server"])
	if err != nil {
		return err
	}
	c.took = said["took"]
	_, c.port, err = net.SplitHostPort(u.Host)
	return err
}

func (c *Cluster) connect() error {
	config, err := c.config()
	if err != nil {
		return err
	}
	if c.http, err = rest.HTTPClientFor(config); err != nil {
		return err
	}
	if c.Client, err = kubernetes.NewForConfigAndClient(config, c.http); err != nil {
		return err
	}
	c.Dynamic, err = dynamic.NewForConfigAndClient(config, c.http)
	return err
}

func (c *Cluster) config() (*rest.Config, error) {
	config, err := clientcmd.BuildConfigFromFlags("", c.Kubeconfig())
	if err == nil {
		config.QPS = -1
	}
	return config, err
}

// Kubeconfig returns the file with an administrator's access. It stays valid when the cluster is started again.
func (c *Cluster) Kubeconfig() string { return filepath.Join(c.dir, "kubeconfig") }

// KubeconfigAs writes a file with the access of a service account, and returns it. It stays for the test.
func (c *Cluster) KubeconfigAs(t testing.TB, namespace, account string) string {
	t.Helper()
	config, err := clientcmd.LoadFromFile(c.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	for _, user := range config.AuthInfos {
		user.Impersonate = "system:serviceaccount:" + namespace + ":" + account
	}
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, file); err != nil {
		t.Fatal(err)
	}
	return file
}

// Server returns the API server's URL. It stays the same when the cluster is started again.
func (c *Cluster) Server() string { return "https://" + net.JoinHostPort("127.0.0.1", c.port) }

// REST returns the configuration of an administrator's client.
func (c *Cluster) REST(t testing.TB) *rest.Config {
	t.Helper()
	config, err := c.config()
	if err != nil {
		t.Fatal(err)
	}
	return config
}

// Pid returns the process that runs now, or ran last.
func (c *Cluster) Pid() int { return c.process.cmd.Process.Pid }

// Log returns the end of the cluster's log.
func (c *Cluster) Log() string {
	b, err := os.ReadFile(filepath.Join(c.dir, "kube.log"))
	if err != nil {
		return err.Error()
	}
	return string(b[max(0, len(b)-8<<10):])
}

// Kill ends the process as a crash does. The state stays.
func (c *Cluster) Kill() { c.process.kill() }

// Restart starts the cluster again with its state, on its port. It kills the process first if it still runs.
func (c *Cluster) Restart(t testing.TB) {
	t.Helper()
	c.Kill()
	if err := c.run(); err != nil {
		t.Fatal(err)
	}
	t.Logf("Kubernetes API server %s started again in %s, pid %d", c.Server(), c.took, c.Pid())
}

// Pause stops the process where it is: connections stay, and nothing answers.
func (c *Cluster) Pause(t testing.TB) {
	t.Helper()
	paused := c.process.cmd.Process
	t.Cleanup(func() { _ = paused.Signal(syscall.SIGCONT) }) // otherwise cleanups would wait forever if the test fails before Resume
	halt.Process(t, c.Pid())
}

// Resume continues a paused process.
func (c *Cluster) Resume(t testing.TB) {
	t.Helper()
	if err := c.process.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
}

// Close ends the cluster and removes its state. After Start the test does this itself.
func (c *Cluster) Close() {
	if c.process != nil {
		c.process.kill()
	}
	if c.http != nil {
		utilnet.CloseIdleConnectionsFor(c.http.Transport)
	}
	_ = os.RemoveAll(c.dir) // a temporary folder: nothing depends on it
}

// shared is the cluster of the package's tests.
var shared struct {
	once    sync.Once
	cluster *Cluster
	err     error
}

// Shared returns the cluster that all tests of a package use. Main ends it.
func Shared(t testing.TB) *Cluster {
	t.Helper()
	shared.once.Do(func() {
		shared.cluster, shared.err = start(nil)
		if shared.err == nil {
			t.Logf("Kubernetes API server started in %s", shared.cluster.took)
		}
	})
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return shared.cluster
}

// Main runs a package's tests and ends the clusters that they shared.
func Main(m *testing.M) interface{ Run() int } { return tests{m} }

type tests struct{ m *testing.M }

func (r tests) Run() int {
	defer func() {
		if shared.cluster != nil {
			shared.cluster.Close()
		}
		for c := takeIdle(); c != nil; c = takeIdle() {
			c.Close()
		}
	}()
	return r.m.Run()
}
