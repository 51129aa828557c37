package kube

import (
	"context"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
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
	kinds, err := c.kinds(ctx, rootNamespace)
	if err != nil {
		return nil, err
	}
	out := &Content{}
	for _, r := range kinds {
		if err := out.read(ctx, c, r, d); err != nil {
			return nil, fmt.Errorf("%s: %w", r.Kind, err)
		}
	}
	slices.SortFunc(out.Objects, func(a, b model.Object) int { return a.Metadata().Key.Compare(b.Metadata().Key) })
	out.Problems.Sort()
	return out, nil
}

// kinds returns the kinds that a Source would watch: custom ones if installed.
func (c *Client) kinds(ctx context.Context, rootNamespace string) ([]*resource, error) {
	have, _, _, err := c.discover(ctx, "")
	if err != nil {
		return nil, err
	}
	kinds := builtin(rootNamespace)
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
