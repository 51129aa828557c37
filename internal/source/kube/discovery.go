package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"time"

	apidiscovery "k8s.io/api/apidiscovery/v2"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/moonsail/moonsail/internal/config"
)

// Since Kubernetes 1.27 one answer contains all groups with all kinds.
const (
	discoveryPath = "/apis"
	discoveryType = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList," +
		"application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList"
	discoveryKind    = "APIGroupDiscoveryList"
	discoveryTimeout = 10 * time.Second
	readyPath        = "/readyz"
)

// served are the versions of kinds in an API server, best first.
type served map[schema.GroupKind][]servedVersion

type servedVersion struct{ version, plural string }

// discover requests the installed kinds. If the answer has not changed since tag, changed is false and the rest is
// empty, which costs little.
func (c *Client) discover(ctx context.Context, tag string) (have served, newTag string, changed bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, discoveryTimeout)
	defer cancel()
	header := http.Header{"Accept": {discoveryType}}
	if tag != "" {
		header.Set("If-None-Match", tag)
	}
	resp, err := c.get(ctx, discoveryPath, header)
	if err != nil {
		return nil, "", false, err
	}
	defer resp.Body.Close()
	switch resp.StatusCode {
	case http.StatusNotModified:
		return nil, tag, false, nil
	case http.StatusOK:
		have, err = readDiscovery(resp)
		return have, resp.Header.Get("Etag"), true, err
	}
	return nil, "", false, fmt.Errorf("GET %s: %s", discoveryPath, resp.Status)
}

// get requests a page of the API server.
func (c *Client) get(ctx context.Context, path string, header http.Header) (*http.Response, error) {
	base, _, err := rest.DefaultServerUrlFor(c.config)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, base.JoinPath(path).String(), nil)
	if err != nil {
		return nil, err
	}
	req.Header = header
	return c.http.Do(req)
}

// ready returns an error if the API server says that it is not ready: it answers requests before it knows all custom kinds
// that are installed. A server that does not let this client ask counts as ready.
func (c *Client) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, discoveryTimeout)
	defer cancel()
	resp, err := c.get(ctx, readyPath, http.Header{})
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	switch resp.StatusCode {
	case http.StatusOK, http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound:
		return nil
	}
	return fmt.Errorf("GET %s: %s: the API server is not ready", readyPath, resp.Status)
}

func readDiscovery(resp *http.Response) (served, error) {
	var list apidiscovery.APIGroupDiscoveryList
	if err := json.NewDecoder(resp.Body).Decode(&list); err != nil {
		return nil, fmt.Errorf("GET %s: %w", discoveryPath, err)
	}
	if list.Kind != discoveryKind {
		return nil, fmt.Errorf("GET %s: the API server answers with %s instead of %s; Kubernetes 1.27 or newer is needed",
			discoveryPath, list.Kind, discoveryKind)
	}
	have, ours := served{}, customGroups()
	for _, group := range list.Items {
		for _, v := range group.Versions {
			if v.Freshness == apidiscovery.DiscoveryFreshnessStale && ours[group.Name] {
				return nil, fmt.Errorf("GET %s: the API server does not know the kinds of %s/%s yet", discoveryPath, group.Name, v.Version)
			}
			for _, r := range v.Resources {
				if r.ResponseKind == nil || !slices.Contains(r.Verbs, "watch") {
					continue
				}
				kind := schema.GroupKind{Group: group.Name, Kind: r.ResponseKind.Kind}
				have[kind] = append(have[kind], servedVersion{v.Version, r.Resource})
			}
		}
	}
	return have, nil
}

// find returns the first version that can be decoded; nil: none.
func (h served) find(k config.Resource) *resource {
	versions := h[schema.GroupKind{Group: k.Group, Kind: k.Kind}]
	if len(k.Versions) == 0 && len(versions) > 0 {
		return custom(k, versions[0].version, versions[0].plural)
	}
	for _, want := range k.Versions {
		for _, v := range versions {
			if v.version == want {
				return custom(k, v.version, v.plural)
			}
		}
	}
	return nil
}

// customGroups returns the groups of customKinds.
func customGroups() map[string]bool {
	out := map[string]bool{}
	for _, k := range customKinds() {
		out[k.Group] = true
	}
	return out
}

// customKinds returns the kinds that may be installed.
func customKinds() []config.Resource {
	return slices.DeleteFunc(config.Resources(), func(r config.Resource) bool { return !r.Custom })
}
