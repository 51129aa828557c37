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

// Cluster tells how to reach an API server.
type Cluster struct {
	Kubeconfig string // a file; empty: as a Pod of the cluster
	Context    string // of the file; empty: its current one
	UserAgent  string
}

// ErrNotInCluster says that no file was named and that this is no Pod of a cluster.
var ErrNotInCluster = rest.ErrNotInCluster

// Limits on requests to the API server. Lists and watches are few; its own priority and
// fairness hold back what is too much.
const (
	clientQPS   = 50
	clientBurst = 100
)

// Client talks to one API server. It is safe for use by many goroutines.
type Client struct {
	config *rest.Config
	http   *http.Client
}

// Connect prepares a client. It does not talk to the API server yet.
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

// Address is the API server's.
func (c *Client) Address() string { return c.config.Host }

// Close lets go of connections that nobody uses.
func (c *Client) Close() { utilnet.CloseIdleConnectionsFor(c.http.Transport) }
