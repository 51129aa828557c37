package kube

import (
	"context"
	"fmt"
	"io"
	"net/http"
)

// Listing lists the objects of one kind in the API server.
type Listing struct {
	Kind string
	Read func(ctx context.Context) ([]byte, error) // JSON
}

// Bounds of a Listing.
const (
	maxListed      = 5000 // objects
	maxListedBytes = 64 << 20
)

// Listings returns the lists of all kinds that a control plane reads, without Secrets.
func (c *Client) Listings(ctx context.Context, rootNamespace string) ([]Listing, error) {
	kinds, err := c.kinds(ctx, rootNamespace)
	if err != nil {
		return nil, err
	}
	var out []Listing
	for _, r := range kinds {
		if r.Kind != "Secret" {
			out = append(out, Listing{Kind: r.Kind, Read: func(ctx context.Context) ([]byte, error) { return c.list(ctx, r) }})
		}
	}
	return out, nil
}

func (c *Client) list(ctx context.Context, r *resource) ([]byte, error) {
	prefix := "/apis/" + r.gv().String()
	if r.gv().Group == "" {
		prefix = "/api/" + r.gv().Version
	}
	if r.namespace != "" {
		prefix += "/namespaces/" + r.namespace
	}
	url := fmt.Sprintf("%s%s/%s?limit=%d", c.config.Host, prefix, r.plural, maxListed)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
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
	return io.ReadAll(io.LimitReader(resp.Body, maxListedBytes))
}
