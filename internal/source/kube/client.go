package kube

import (
	"errors"
	"fmt"
	"net/http"
	"os"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Cluster is the access to an API server.
type Cluster struct {
	Kubeconfig string // path; empty: the access of a Pod in the cluster
	Context    string // in the file; empty: the current one
	UserAgent  string
}

// ErrNotInCluster means that there is no file, and that this process is not in a Pod.
var ErrNotInCluster = rest.ErrNotInCluster

// Limits of requests. Lists and watches are few; the API server's priority and fairness delay excessive requests.
const (
	clientQPS   = 50
	clientBurst = 100
)

// Client calls one API server. It is safe for concurrent use.
type Client struct {
	config *rest.Config
	http   *http.Client
}

// Connect returns a client. It sends no request yet.
func Connect(c Cluster) (*Client, error) {
	config, err := c.config()
	if err != nil {
		return nil, err
	}
	config.UserAgent, config.QPS, config.Burst = c.UserAgent, clientQPS, clientBurst
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, err
	}
	return &Client{config: config, http: client}, nil
}

func (c Cluster) config() (*rest.Config, error) {
	if c.Kubeconfig == "" {
		return rest.InClusterConfig()
	}
	if _, err := os.Stat(c.Kubeconfig); err != nil {
		return nil, err
	}
	rules := &clientcmd.ClientConfigLoadingRules{ExplicitPath: c.Kubeconfig}
	loader := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: c.Context})
	config, err := loader.ClientConfig()
	if clientcmd.IsEmptyConfig(err) {
		return nil, errors.New("the file names no cluster")
	}
	if err != nil {
		return nil, fmt.Errorf("kubeconfig: %w", err)
	}
	return config, nil
}

// InCluster reports whether this process runs in a Pod of a cluster.
func InCluster() bool {
	_, err := rest.InClusterConfig()
	return !errors.Is(err, rest.ErrNotInCluster)
}

// Address returns the API server's address.
func (c *Client) Address() string { return c.config.Host }

// Close closes idle connections.
func (c *Client) Close() { utilnet.CloseIdleConnectionsFor(c.http.Transport) }
