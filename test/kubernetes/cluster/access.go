package cluster

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"embed"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

//go:embed manifests/*.yaml
var manifests embed.FS

// kubeadmConfig is the configuration from which kubeadm makes certificates and kubeconfigs. %[1]s is the node, %[2]s the
// cluster, %[3]s the folder of certificates, %[4]s the version of Kubernetes.
const kubeadmConfig = `apiVersion: kubeadm.k8s.io/v1beta4
kind: InitConfiguration
localAPIEndpoint: {advertiseAddress: 172.30.0.1, bindPort: 6443}
nodeRegistration: {name: %[1]s, criSocket: "unix:///run/containerd/containerd.sock"}
---
apiVersion: kubeadm.k8s.io/v1beta4
kind: ClusterConfiguration
clusterName: %[2]s
certificatesDir: %[3]s
kubernetesVersion: %[4]s
encryptionAlgorithm: ECDSA-P256
controlPlaneEndpoint: 172.30.0.1:6443
networking: {serviceSubnet: 10.96.0.0/16, podSubnet: 10.244.0.0/16, dnsDomain: cluster.local}
apiServer: {certSANs: [127.0.0.1, localhost]}
`

// credentials writes certificates, and kubeconfigs of the control plane, of nodes, and of admin.
func (c *Cluster) credentials(ctx context.Context, nodes int) error {
	if err := os.MkdirAll(c.run, 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(c.file("kubeconfig"), []byte(c.Kubeconfig), 0o644); err != nil {
		return err
	}
	kubeadm := func(args ...string) (string, error) {
		return output(exec.CommandContext(ctx, c.tools.path("bin", "kubeadm"), args...))
	}
	version, err := kubeadm("version", "-o", "short")
	if err != nil {
		return err
	}
	config := func(path, node string) error {
		text := fmt.Sprintf(kubeadmConfig, node, c.Name, c.file("pki"), strings.TrimSpace(version))
		return os.WriteFile(path, []byte(text), 0o600)
	}
	all := c.file("kubeadm.yaml")
	if err := config(all, "node1"); err != nil {
		return err
	}
	if _, err := kubeadm("init", "phase", "certs", "all", "--config", all); err != nil {
		return err
	}
	if _, err := kubeadm("init", "phase", "kubeconfig", "all", "--config", all, "--kubeconfig-dir", c.run); err != nil {
		return err
	}
	proxy, err := kubeadm("kubeconfig", "user", "--config", all, "--client-name", "system:kube-proxy")
	if err != nil {
		return err
	}
	if err := os.WriteFile(c.file("kube-proxy.conf"), []byte(proxy), 0o600); err != nil {
		return err
	}
	// The API server lets a kubelet see only what is on the node of its certificate.
	for i := range nodes {
		name := fmt.Sprintf("node%d", i+1)
		if err := os.MkdirAll(c.file(name), 0o755); err != nil {
			return err
		}
		own := c.file(name, "kubeadm.yaml")
		if err := config(own, name); err != nil {
			return err
		}
		if _, err := kubeadm("init", "phase", "kubeconfig", "kubelet", "--config", own, "--kubeconfig-dir", c.file(name)); err != nil {
			return err
		}
	}
	return nil
}

// writeKubeconfig writes the kubeconfig with the forwarder's address.
func (c *Cluster) writeKubeconfig() error {
	admin, err := os.ReadFile(c.file("super-admin.conf"))
	if err != nil {
		return err
	}
	admin = bytes.ReplaceAll(admin, []byte("https://"+apiServer), []byte(c.forward.url()))
	if err := os.MkdirAll(filepath.Dir(c.Kubeconfig), 0o755); err != nil {
		return err
	}
	return os.WriteFile(c.Kubeconfig, admin, 0o600)
}

// awaitAPIServer waits until the API server answers that it is ready. Anonymous requests may ask this.
func (c *Cluster) awaitAPIServer(ctx context.Context) error {
	ca, err := os.ReadFile(c.file("pki", "ca.crt"))
	if err != nil {
		return err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(ca) {
		return errors.New("kubeadm wrote no certificate")
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}, DisableKeepAlives: true}
	client := &http.Client{Transport: transport}
	return c.await(ctx, func() error {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, c.forward.url()+"/readyz", nil)
		if err != nil {
			return err
		}
		response, err := client.Do(request)
		if err != nil {
			return fmt.Errorf("the API server does not answer: %w", err)
		}
		_ = response.Body.Close() // only the status counts
		if response.StatusCode != http.StatusOK {
			return fmt.Errorf("the API server is not ready: %s", response.Status)
		}
		return nil
	})
}

func (c *Cluster) applyManifests(ctx context.Context) error {
	files, err := manifests.ReadDir("manifests")
	if err != nil {
		return err
	}
	var all [][]byte
	for _, f := range files {
		text, err := manifests.ReadFile("manifests/" + f.Name())
		if err != nil {
			return err
		}
		all = append(all, text)
	}
	// The API server is ready a moment before the namespaces exist that these objects are in.
	return c.await(ctx, func() error {
		cmd := c.Kubectl(ctx, "apply", "--server-side", "-f", "-")
		cmd.Stdin = bytes.NewReader(bytes.Join(all, []byte("---\n")))
		_, err := output(cmd)
		return err
	})
}

// Kubectl returns a command of kubectl.
func (c *Cluster) Kubectl(ctx context.Context, args ...string) *exec.Cmd {
	return c.Tool(ctx, "kubectl", args...)
}

// Tool returns a command of a program that was built, such as helm, with access to the cluster.
func (c *Cluster) Tool(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, c.tools.path("bin", name), args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+c.Kubeconfig)
	return cmd
}
