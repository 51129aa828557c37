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
)

// served are the versions of kinds in an API server, best first.
type served map[schema.GroupKind][]servedVersion

type servedVersion struct{ version, plural string }

// discover requests the installed kinds. If the answer has not changed since tag, changed is false and the rest is
// empty, which costs little.
func (c *Client) discover(ctx context.Context, tag string) (have served, newTag string, changed bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, discoveryTimeout)
	defer cancel()
	base, _, err := rest.DefaultServerUrlFor(c.config)
	if err != nil {
		return nil, "", false, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, base.JoinPath(discoveryPath).String(), nil)
	if err != nil {
		return nil, "", false, err
	}
	req.Header.Set("Accept", discoveryType)
	if tag != "" {
		req.Header.Set("If-None-Match", tag)
	}
	resp, err := c.http.Do(req)
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

func readDiscovery(resp *http.Response) (served, error) {
	var list apidiscovery.APIGroupDiscoveryList
	if err := json.NewDecoder(resp.Body).Decode(&list); err != nil {
		return nil, fmt.Errorf("GET %s: %w", discoveryPath, err)
	}
	if list.Kind != discoveryKind {
		return nil, fmt.Errorf("GET %s: the API server answers with %s instead of %s; Kubernetes 1.27 or newer is needed",
			discoveryPath, list.Kind, discoveryKind)
	}
	have := served{}
	for _, group := range list.Items {
		for _, v := range group.Versions {
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

// customKinds returns the kinds that may be installed.
func customKinds() []config.Resource {
	return slices.DeleteFunc(config.Resources(), func(r config.Resource) bool { return !r.Custom })
}
