package controlplane

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/moonsail/moonsail/internal/config"
	"github.com/moonsail/moonsail/internal/config/problem"
	"github.com/moonsail/moonsail/internal/controlplane/status"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/changelog"
	"github.com/moonsail/moonsail/internal/pipeline/store"
	"github.com/moonsail/moonsail/internal/source/file"
	"github.com/moonsail/moonsail/internal/source/kube"
)

// source is the source of objects, with the intake that it feeds.
type source struct {
	name     string
	intake   *store.Intake
	run      func(context.Context) error
	problems func() []problem.Problem
	// problemsOf returns those of one object. An error means that the object's newest version is not in force.
	problemsOf func(model.Key) problem.List
	place      func(m *model.Meta, field string) string // file and line of a field of an object in force; nil: not known
	waiting    func() error                             // why it has not loaded yet, as far as it knows

	// Users' objects as they wrote them: those of Istio's kinds, and the ConfigMap with the mesh's configuration. Both may
	// return other objects too.
	raw, rawMesh func(context.Context) ([]json.RawMessage, error)

	health   func() kube.Health // health of the API server; nil: the source is not Kubernetes
	client   *kube.Client       // nil: the source is not Kubernetes
	statuses *status.Tracker    // nil: statuses are not written
}

// addSource makes the source. It does not wait for it.
func (p *parts) addSource(context.Context) (err error) {
	p.source, err = newSource(&p.opts, p.metrics)
	return err
}

func newSource(o *Options, m *changelog.Metrics) (*source, error) {
	decoder := decoderOf(o)
	if o.Kubernetes == nil {
		intake := store.NewIntake(file.SourceName)
		s := &file.Source{Dir: o.ConfigDir, Decoder: decoder, Intake: intake, Log: o.Log}
		raw := func(context.Context) ([]json.RawMessage, error) { return file.Raw(o.ConfigDir), nil }
		return &source{name: "file source", intake: intake, run: s.Run, problems: s.Problems, problemsOf: s.ProblemsOf, place: s.Place, waiting: s.Waiting, raw: raw, rawMesh: raw}, nil
	}
	client, err := kube.Connect(*o.Kubernetes)
	if err != nil {
		return nil, err
	}
	o.Log.Info("reading objects from a Kubernetes API server", "url", client.Address())
	intake := store.NewIntake(kube.SourceName)
	s := &kube.Source{
		Client: client, Decoder: decoder, RootNamespace: o.Mesh.RootNamespace, Intake: intake, Meter: kubeMeter{m}, Log: o.Log,
		Identity: identity(), Heartbeat: o.Heartbeat,
	}
	run := func(ctx context.Context) error {
		defer client.Close()
		return s.Run(ctx)
	}
	out := &source{name: "Kubernetes source", intake: intake, run: run, problems: s.Problems, problemsOf: s.ProblemsOf, waiting: s.Waiting, client: client}
	out.health = s.Health
	out.raw = func(ctx context.Context) ([]json.RawMessage, error) {
		return rawObjects(ctx, client, o.Mesh.RootNamespace, decoder.MeshConfigName())
	}
	out.rawMesh = func(ctx context.Context) ([]json.RawMessage, error) {
		return rawList(ctx, client.MeshConfig(o.Mesh.RootNamespace, decoder.MeshConfigName()))
	}
	m.WatchAPIServer(func() changelog.APIServer { return apiServerMetrics(s.Health(), time.Now()) })
	if o.Status {
		out.statuses = status.NewTracker()
		s.Observer = out.statuses
	}
	return out, nil
}

// decoderOf returns the decoder of a control plane.
func decoderOf(o *Options) config.Decoder {
	return config.Decoder{
		Domain: o.Mesh.Domain, NoAutoAddresses: o.Mesh.AutoAddresses.Off, Revision: o.Revision, MeshConfigMap: o.MeshConfigMap, Getenv: os.Getenv,
	}
}

// apiServerMetrics returns what the metrics show of the API server.
func apiServerMetrics(h kube.Health, now time.Time) changelog.APIServer {
	out := changelog.APIServer{Failing: map[string]time.Duration{}, Beats: !h.Heartbeat.IsZero()}
	for i := range h.Kinds {
		out.Failing[h.Kinds[i].Kind] = h.Kinds[i].FailingFor(now)
	}
	if out.Beats {
		out.Quiet = now.Sub(h.Heartbeat)
	}
	return out
}

// identity identifies this process among control planes.
func identity() string {
	host, err := os.Hostname() // in a cluster, the Pod's name
	if err != nil {
		host = "unknown"
	}
	return fmt.Sprintf("%s_%d", host, os.Getpid())
}

// kubeMeter counts for the Kubernetes source.
type kubeMeter struct{ metrics *changelog.Metrics }

// Event implements kube.Meter.
func (k kubeMeter) Event(kind string, custom bool, event string) {
	k.metrics.KubernetesEvent(kind, custom, event)
}

// APIDelay implements kube.Meter.
func (k kubeMeter) APIDelay(of kube.Delay, d time.Duration) {
	k.metrics.APIServerDelay(string(of), d)
}
