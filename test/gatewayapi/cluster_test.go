package gatewayapi

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
)

// The machine's address on the Pods' bridge, and the ranges of Pods and Services.
const (
	nodeAddress = "10.244.0.1"
	bridgeCIDR  = nodeAddress + "/16"
	podCIDR     = "10.244.128.0/17"
	serviceCIDR = "10.96.0.0/16"
)

// cluster is the API server and its clients.
type cluster struct {
	client     client.Client
	kube       kubernetes.Interface
	kubeconfig string
	dir        string // of logs, the report, and what stays after the test
	work       string // of what goes with the test
}

// startCluster starts the API server with the controllers of Deployments, and a kubelet that runs no containers.
func startCluster(t *testing.T) *cluster {
	t.Helper()
	c := &cluster{dir: os.Getenv("CONFORMANCE_DIR"), work: t.TempDir()}
	c.kubeconfig = filepath.Join(c.work, "kubeconfig")
	cmd := exec.Command(os.Getenv("MOONSAIL_KUBE"), "--dir", filepath.Join(c.work, "kube"), "--kubeconfig", c.kubeconfig,
		"--pod-cidr", podCIDR, "--service-cidr", serviceCIDR, "--namespaces", "istio-system", "--nodes", "1")
	said, err := cmd.StdoutPipe()
	require.NoError(t, err)
	start(t, c, "kube", cmd)
	line, err := bufio.NewReader(said).ReadString('\n')
	require.NoError(t, err)
	require.True(t, strings.HasPrefix(line, "ready "), line)
	config, err := clientcmd.BuildConfigFromFlags("", c.kubeconfig)
	require.NoError(t, err)
	config.QPS = -1
	c.kube, err = kubernetes.NewForConfig(config)
	require.NoError(t, err)
	c.client, err = client.New(config, client.Options{})
	require.NoError(t, err)
	require.NoError(t, gatewayv1.Install(c.client.Scheme()))
	return c
}

// start starts a process that ends with the test, and records its standard error.
func start(t *testing.T, c *cluster, name string, cmd *exec.Cmd) {
	t.Helper()
	log, err := os.Create(filepath.Join(c.dir, name+".log"))
	require.NoError(t, err)
	cmd.Stderr = log
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		end(cmd)
		_ = log.Close()
	})
}

// end sends a process SIGTERM, and kills it after 5 s.
func end(cmd *exec.Cmd) {
	_ = cmd.Process.Signal(syscall.SIGTERM)
	timer := time.AfterFunc(5*time.Second, func() { _ = cmd.Process.Kill() })
	_ = cmd.Wait()
	timer.Stop()
}

// startControlPlane starts `moonsail serve`, and creates the class.
func startControlPlane(t *testing.T, c *cluster) {
	t.Helper()
	ip(t, "link", "add", "br0", "type", "bridge")
	ip(t, "addr", "add", bridgeCIDR, "dev", "br0")
	ip(t, "link", "set", "br0", "up")
	start(t, c, "serve", exec.Command(os.Getenv("MOONSAIL_BIN"), "serve", "--kubeconfig", c.asDeployed(t), "--status",
		"--xds-addr", nodeAddress+":15012", "--xds-cert-names", nodeAddress))
	class := &gatewayv1.GatewayClass{Spec: gatewayv1.GatewayClassSpec{ControllerName: "moonsail.dev/gateway-controller"}}
	class.Name = className
	require.NoError(t, c.client.Create(t.Context(), class))
	require.Eventually(t, func() bool {
		return c.client.Get(t.Context(), client.ObjectKeyFromObject(class), class) == nil && len(class.Status.SupportedFeatures) > 0
	}, time.Minute, 100*time.Millisecond, "the control plane accepts no GatewayClass; see %s", filepath.Join(c.dir, "serve.log"))
	c.writeRoots(t)
}

func (c *cluster) rootsFile() string { return filepath.Join(c.work, "root-cert.pem") }

// writeRoots writes the roots that routers trust, from the control plane's ConfigMap in each namespace.
func (c *cluster) writeRoots(t *testing.T) {
	t.Helper()
	require.Eventually(t, func() bool {
		m, err := c.kube.CoreV1().ConfigMaps("istio-system").Get(t.Context(), "istio-ca-root-cert", metav1.GetOptions{})
		return err == nil && os.WriteFile(c.rootsFile(), []byte(m.Data["root-cert.pem"]), 0o600) == nil
	}, time.Minute, 100*time.Millisecond, "the control plane does not publish its roots; see %s", filepath.Join(c.dir, "serve.log"))
}

func moonsailVersion(t *testing.T) string {
	t.Helper()
	out, err := exec.Command(os.Getenv("MOONSAIL_BIN"), "version", "--client").Output()
	require.NoError(t, err)
	return strings.TrimSpace(string(out))
}

// ip runs a command of iproute2, which must succeed.
func ip(t *testing.T, args ...string) {
	t.Helper()
	require.NoError(t, tryIP(args...))
}

func tryIP(args ...string) error {
	if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("ip %s: %w: %s", strings.Join(args, " "), err, out)
	}
	return nil
}
