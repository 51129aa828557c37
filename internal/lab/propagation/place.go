package propagation

import (
	"context"
	"path/filepath"

	"github.com/moonsail/moonsail/internal/lab/meshfiles"
	"github.com/moonsail/moonsail/internal/lab/meshkube"
)

// Source is where control planes read the mesh from.
type Source string

// The sources.
const (
	SourceFile Source = "file"
	SourceKube Source = "kube"
)

// place is where a session's mesh is.
type place struct {
	meshfiles.Place
	name    string   // for people
	argv    []string // of serve
	writers int      // that may change it at the same time; 0: it is changed in one go after the other
	cluster *meshkube.Cluster
}

// echo is what a reader of an API server waits for a change like this one; nil where there is none.
func (p *place) echo(ctx context.Context, twin meshfiles.Twin) (*meshkube.Echo, error) {
	if p.cluster == nil {
		return nil, nil //nolint:nilnil // files are there when they are written
	}
	return p.cluster.NewEcho(ctx, twin)
}

// apiWriters are clients of an API server in a storm.
const apiWriters = 32

// newPlace makes an empty place. A control plane that is there already reads a directory
// of its own; ours reads a temporary one, or an API server.
func newPlace(ctx context.Context, o *Options, dir string) (place, error) {
	switch {
	case o.Source == SourceKube:
		c, err := meshkube.Connect(ctx, o.Kubeconfig)
		if err != nil {
			return place{}, err
		}
		return place{c, "the API server of " + o.Kubeconfig, []string{"--kubeconfig", o.Kubeconfig}, apiWriters, c}, nil
	case o.Target != "":
		d, err := meshfiles.NewDirectory(o.Dir, filepath.Clean(o.Dir)+".staging")
		if err != nil {
			return place{}, err
		}
		return place{Place: d, name: o.Dir}, nil
	}
	d, err := meshfiles.NewDirectory(filepath.Join(dir, "mesh"), filepath.Join(dir, "staging"))
	if err != nil {
		return place{}, err
	}
	return place{d, d.String(), []string{"--config", d.String()}, 0, nil}, nil
}
