package kubetest

import (
	"errors"
	"net/http"

	"k8s.io/client-go/discovery"
	admissionregistration "k8s.io/client-go/kubernetes/typed/admissionregistration/v1"
	apps "k8s.io/client-go/kubernetes/typed/apps/v1"
	authentication "k8s.io/client-go/kubernetes/typed/authentication/v1"
	coordination "k8s.io/client-go/kubernetes/typed/coordination/v1"
	core "k8s.io/client-go/kubernetes/typed/core/v1"
	discoveryclient "k8s.io/client-go/kubernetes/typed/discovery/v1"
	"k8s.io/client-go/rest"
)

// Client has the API groups that tests use, called as kubernetes.Interface of client-go calls them; that one
// is all groups of all versions, some 200 packages to be compiled.
type Client struct {
	admissionregistration *admissionregistration.AdmissionregistrationV1Client
	apps                  *apps.AppsV1Client
	authentication        *authentication.AuthenticationV1Client
	coordination          *coordination.CoordinationV1Client
	core                  *core.CoreV1Client
	slices                *discoveryclient.DiscoveryV1Client
	discovery             *discovery.DiscoveryClient
}

// NewClient makes clients of an API server that share their connections.
func NewClient(config *rest.Config, over *http.Client) (*Client, error) {
	c := &Client{}
	var errs [7]error
	c.admissionregistration, errs[0] = admissionregistration.NewForConfigAndClient(config, over)
	c.apps, errs[1] = apps.NewForConfigAndClient(config, over)
	c.authentication, errs[2] = authentication.NewForConfigAndClient(config, over)
	c.coordination, errs[3] = coordination.NewForConfigAndClient(config, over)
	c.core, errs[4] = core.NewForConfigAndClient(config, over)
	c.slices, errs[5] = discoveryclient.NewForConfigAndClient(config, over)
	c.discovery, errs[6] = discovery.NewDiscoveryClientForConfigAndClient(config, over)
	return c, errors.Join(errs[:]...)
}

// AdmissionregistrationV1 has webhooks' configurations.
func (c *Client) AdmissionregistrationV1() admissionregistration.AdmissionregistrationV1Interface {
	return c.admissionregistration
}

// AppsV1 has Deployments.
func (c *Client) AppsV1() apps.AppsV1Interface { return c.apps }

// AuthenticationV1 has reviews of tokens.
func (c *Client) AuthenticationV1() authentication.AuthenticationV1Interface { return c.authentication }

// CoordinationV1 has Leases.
func (c *Client) CoordinationV1() coordination.CoordinationV1Interface { return c.coordination }

// CoreV1 has Pods, Services, namespaces and the like.
func (c *Client) CoreV1() core.CoreV1Interface { return c.core }

// DiscoveryV1 has EndpointSlices.
func (c *Client) DiscoveryV1() discoveryclient.DiscoveryV1Interface { return c.slices }

// Discovery tells which kinds there are.
func (c *Client) Discovery() discovery.DiscoveryInterface { return c.discovery }
