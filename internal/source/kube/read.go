package kube

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/pager"

	"github.com/moonsail/moonsail/internal/config"
	"github.com/moonsail/moonsail/internal/config/problem"
	"github.com/moonsail/moonsail/internal/model"
)

// Content is a cluster's content at one moment.
type Content struct {
	Objects  []model.Object // the usable ones, in key order
	Problems problem.List   // sorted
}

// Read lists all kinds of Source once, without watching them.
func (c *Client) Read(ctx context.Context, d config.Decoder, rootNamespace string) (*Content, error) {
	return c.readKinds(ctx, d, rootNamespace, func(model.Kind) bool { return true })
}

// ReadProxySettings lists the MeshConfig and the ProxyConfigs.
func (c *Client) ReadProxySettings(ctx context.Context, d config.Decoder, rootNamespace string) (*Content, error) {
	return c.readKinds(ctx, d, rootNamespace, func(k model.Kind) bool { return k == model.KindMeshConfig || k == model.KindProxyConfig })
}

// readKinds lists the wanted kinds of Source.
func (c *Client) readKinds(ctx context.Context, d config.Decoder, rootNamespace string, wanted func(model.Kind) bool) (*Content, error) {
	kinds, err := c.kinds(ctx, rootNamespace, d.MeshConfigName())
	if err != nil {
		return nil, err
	}
	out := &Content{}
	for _, r := range kinds {
		if !wanted(model.Kind(r.Kind)) {
			continue
		}
		if err := out.read(ctx, c, r, d); err != nil {
			return nil, fmt.Errorf("%s: %w", r.Kind, err)
		}
	}
	slices.SortFunc(out.Objects, func(a, b model.Object) int { return a.Metadata().Key.Compare(b.Metadata().Key) })
	out.Problems.Sort()
	return out, nil
}

// kinds returns the kinds that a Source would watch: custom ones if installed.
func (c *Client) kinds(ctx context.Context, rootNamespace, meshConfig string) ([]*resource, error) {
	have, _, _, err := c.discover(ctx, "")
	if err != nil {
		return nil, err
	}
	kinds := builtin(rootNamespace, meshConfig)
	for _, k := range customKinds() {
		if r := have.find(k); r != nil {
			kinds = append(kinds, r)
		}
	}
	return kinds, nil
}

// read lists one kind in pages.
func (o *Content) read(ctx context.Context, c *Client, r *resource, d config.Decoder) error {
	lw, err := c.listWatch(r, func(error) {})
	if err != nil {
		return err
	}
	decoder := &sink{resource: r, decoder: complete(d), pool: newPool()}
	page := pager.New(pager.ListPageFunc(lw.ListWithContextFunc))
	return page.EachListItem(ctx, metav1.ListOptions{}, func(item runtime.Object) error {
		e, err := decoder.decode(item)
		if err != nil {
			return err
		}
		if e.partial != nil {
			e = e.inPart()
		}
		o.Problems = append(o.Problems, e.problems...)
		if e.object != nil {
			o.Objects = append(o.Objects, e.object)
		}
		return nil
	})
}

// Listing lists the objects of one kind in the API server.
type Listing struct {
	Group, Kind string
	Read        func(ctx context.Context) ([]byte, error) // JSON
}

// Bounds of a Listing.
const (
	MaxListed      = 5000 // objects; metadata.remainingItemCount of the list counts the others
	maxListedBytes = 64 << 20
)

// Listings returns the lists of all kinds that a control plane reads, without Secrets. meshConfig is the name of the
// ConfigMap in rootNamespace that is read; empty: all ConfigMaps there, which a control plane may not list.
func (c *Client) Listings(ctx context.Context, rootNamespace, meshConfig string) ([]Listing, error) {
	kinds, err := c.kinds(ctx, rootNamespace, meshConfig)
	if err != nil {
		return nil, err
	}
	var out []Listing
	for _, r := range kinds {
		if r.Kind == string(model.KindConfigMap) && meshConfig == "" {
			r.field = ""
		}
		if r.Kind != string(model.KindSecret) {
			out = append(out, c.listing(r))
		}
	}
	return out, nil
}

// MeshConfig returns the list of one ConfigMap, that with the mesh's configuration.
func (c *Client) MeshConfig(rootNamespace, meshConfig string) Listing {
	kinds := builtin(rootNamespace, meshConfig)
	return c.listing(kinds[slices.IndexFunc(kinds, func(r *resource) bool { return r.Kind == string(model.KindMeshConfig) })])
}

func (c *Client) listing(r *resource) Listing {
	return Listing{Group: r.gv().Group, Kind: r.Kind, Read: func(ctx context.Context) ([]byte, error) { return c.list(ctx, r) }}
}

func (c *Client) list(ctx context.Context, r *resource) ([]byte, error) {
	at, _, err := rest.DefaultServerUrlFor(c.config)
	if err != nil {
		return nil, err
	}
	if r.gv().Group == "" {
		at = at.JoinPath("api", r.gv().Version)
	} else {
		at = at.JoinPath("apis", r.gv().Group, r.gv().Version)
	}
	if r.namespace != "" {
		at = at.JoinPath("namespaces", r.namespace)
	}
	at = at.JoinPath(r.plural)
	query := url.Values{"limit": {strconv.Itoa(MaxListed)}}
	if r.field != "" {
		query.Set("fieldSelector", r.field)
	}
	at.RawQuery = query.Encode()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, at.String(), http.NoBody)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "application/json")
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("the API server answered %s for %s", resp.Status, r.plural)
	}
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxListedBytes+1))
	if len(text) > maxListedBytes { // half a list cannot be parsed, nor searched for secrets
		return nil, fmt.Errorf("%s: the list has more than %d MB", r.plural, maxListedBytes>>20)
	}
	return text, err
}
