package session

import (
	"context"
	"path/filepath"

	"github.com/moonsail/moonsail/internal/lab/meshfiles"
	"github.com/moonsail/moonsail/internal/lab/meshkube"
)

// Source names where control planes read the mesh.
type Source string

// Sources of a mesh.
const (
	SourceFile Source = "file"
	SourceKube Source = "kube"
)

// Location stores the mesh of a session.
type Location struct {
	meshfiles.Place
	Name    string   // for messages
	argv    []string // flags of serve
	Writers int      // that may change it at the same time; 0: changes are sequential
	Cluster *meshkube.Cluster
}

// Echo returns a watch for the shadow of a change in an API server, or nil with a directory.
func (p *Location) Echo(ctx context.Context, shadow meshfiles.Shadow) (*meshkube.Echo, error) {
	if p.Cluster == nil {
		return nil, nil //nolint:nilnil // a written file can be read at once
	}
	return p.Cluster.NewEcho(ctx, shadow)
}

// apiWriters is the number of concurrent writers to an API server in a storm.
const apiWriters = 32

// NewLocation returns an empty place: the directory of --config for a control plane that runs already, else a
// temporary directory, or an API server.
func NewLocation(ctx context.Context, o *Config, dir string) (Location, error) {
	switch {
	case o.Source == SourceKube:
		c, err := meshkube.Connect(ctx, o.Kubeconfig)
		if err != nil {
			return Location{}, err
		}
		return Location{c, "the API server of " + o.Kubeconfig, []string{"--kubeconfig", o.Kubeconfig}, apiWriters, c}, nil
	case o.External != "":
		d, err := meshfiles.NewDirectory(o.Dir, filepath.Clean(o.Dir)+".staging")
		if err != nil {
			return Location{}, err
		}
		return Location{Place: d, Name: o.Dir}, nil
	}
	d, err := meshfiles.NewDirectory(filepath.Join(dir, "mesh"), filepath.Join(dir, "staging"))
	if err != nil {
		return Location{}, err
	}
	return Location{d, d.String(), []string{"--config", d.String()}, 0, nil}, nil
}
