package install

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/moonsail/moonsail/deploy"
	"github.com/moonsail/moonsail/internal/version"
)

// Labels of each object that these commands install. They are the inventory: what has them and is not in a new render is
// removed, and an uninstallation removes what has them.
const (
	labelChart    = "install.moonsail.dev/chart"
	labelRevision = "install.moonsail.dev/revision" // not of objects of the chart base
	labelManaged  = "app.kubernetes.io/managed-by"
	labelName     = "app.kubernetes.io/name"
	ourName       = "moonsail" // as the name of an application, in labelName
	managedByUs   = "moonsail"
	managedByHelm = "Helm"
)

// mark adds the labels to objects of a release.
func mark(list []*unstructured.Unstructured, chart, revision string) {
	for _, o := range list {
		labels := o.GetLabels()
		if labels == nil {
			labels = map[string]string{}
		}
		labels[labelManaged], labels[labelChart] = managedByUs, chart
		if revision != "" {
			labels[labelRevision] = revision
		}
		o.SetLabels(labels)
	}
}

// selects returns the selector of a release's objects. Without a revision it selects those of all.
func selects(chart, revision string) string {
	out := labelChart + "=" + chart
	if revision != "" {
		out += "," + labelRevision + "=" + revision
	}
	return out
}

// inventory lists the objects of a release in the order in which they are deleted.
func inventory(ctx context.Context, c objects, chart, revision string) ([]*unstructured.Unstructured, error) {
	var out []*unstructured.Unstructured
	for _, k := range kinds {
		list, err := c.List(ctx, k.GroupVersionResource, "", selects(chart, revision))
		if k.optional && apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("list %s: %w", k.Resource, err)
		}
		for i := range list {
			list[i].SetGroupVersionKind(k.GroupVersion().WithKind(k.name))
			out = append(out, &list[i])
		}
	}
	return out, nil
}

// state is an installed version of a control plane.
type state struct {
	Version string                       `json:"version"` // of the command that installed it
	Time    time.Time                    `json:"time"`
	Values  map[string]any               `json:"values,omitempty"` // of the chart moonsail
	Base    map[string]any               `json:"base,omitempty"`   // values of the chart base
	Objects []*unstructured.Unstructured `json:"objects"`          // of the chart moonsail
}

// is reports whether two states are of the same installation. Both may be nil.
func (s *state) is(other *state) bool {
	return s != nil && other != nil && s.Time.Equal(other.Time)
}

// record is what is known of a control plane between commands. It is in a Secret, since values may have secrets.
type record struct {
	Current  *state `json:"current,omitempty"`  // the last version that became ready
	Previous *state `json:"previous,omitempty"` // the one before, for a rollback
	// Pending is a version that is being applied. If no command runs, it is one that failed: some of its objects may be in
	// the cluster.
	Pending *state `json:"pending,omitempty"`
}

// latest returns the version whose values a command continues with: the last one that became ready, or else the first one,
// which failed. r may be nil.
func (r *record) latest() *state {
	switch {
	case r == nil:
		return nil
	case r.Current != nil:
		return r.Current
	}
	return r.Pending
}

// rollbackTarget returns the version before the one that was applied last; nil if none is known.
func (r *record) rollbackTarget() *state {
	if r.Pending != nil && !r.Pending.is(r.Previous) { // else that rollback itself failed
		return r.Current
	}
	return r.Previous
}

// begin returns the record while a version is applied. r may be nil.
func (r *record) begin(to *state) *record {
	if r == nil {
		return &record{Pending: to}
	}
	return &record{Current: r.Current, Previous: r.Previous, Pending: to}
}

// finish returns the record after the pending version became ready.
func (r *record) finish() *record {
	// A rollback of a failed version applies the current one again, which does not become the one before itself.
	if r.Pending.is(r.Current) {
		return &record{Current: r.Pending, Previous: r.Previous}
	}
	return &record{Current: r.Pending, Previous: r.Current}
}

const (
	recordType = "moonsail.dev/installation"
	recordKey  = "record"
)

func recordName(revision string) string { return deploy.Named("moonsail-installation", revision) }

// readRecord reads the record of a revision. It returns nil if none exists, and an error also if its content is invalid.
func readRecord(ctx context.Context, c objects, namespace, revision string) (*record, error) {
	secret, err := c.Get(ctx, secrets.GroupVersionResource, namespace, recordName(revision))
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	text, _, _ := unstructured.NestedString(secret.Object, "data", recordKey)
	r := &record{}
	if err := r.decode(text); err != nil {
		return nil, fmt.Errorf("record of the installation: Secret %s/%s: %w", namespace, secret.GetName(), err)
	}
	return r, nil
}

// write stores the record. It becomes part of the inventory.
func (r *record) write(ctx context.Context, c objects, namespace, revision string) error {
	text, err := r.encode()
	if err != nil {
		return err
	}
	secret := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Secret", "type": recordType,
		"metadata": map[string]any{"name": recordName(revision), "namespace": namespace},
		"data":     map[string]any{recordKey: text},
	}}
	mark([]*unstructured.Unstructured{secret}, deploy.ControlPlaneChart, revision)
	if _, err := c.Apply(ctx, secrets.GroupVersionResource, secret, false); err != nil {
		return refused("write", secret, err)
	}
	return nil
}

func (r *record) encode() (string, error) {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if err := json.NewEncoder(z).Encode(r); err != nil {
		return "", err
	}
	if err := z.Close(); err != nil {
		return "", err
	}
	return base64.StdEncoding.EncodeToString(b.Bytes()), nil
}

func (r *record) decode(text string) error {
	b, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return err
	}
	z, err := gzip.NewReader(bytes.NewReader(b))
	if err != nil {
		return err
	}
	all, err := io.ReadAll(z)
	if err != nil {
		return err
	}
	return json.Unmarshal(all, r)
}

// newState renders the charts of a control plane.
func newState(base, controlPlane deploy.Release, revision string) (*state, error) {
	list, err := controlPlane.Objects()
	if err != nil {
		return nil, err
	}
	mark(list, deploy.ControlPlaneChart, revision)
	return &state{Version: version.Get().Version, Time: time.Now().UTC(), Values: controlPlane.Values, Base: base.Values, Objects: list}, nil
}
