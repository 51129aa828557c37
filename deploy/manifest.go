// Package deploy holds the Helm charts of Moonsail, and renders them.
//
// Commands, tests and Helm use the same charts. Helm's engine renders them here, as a library. The files
// rbac.yaml, webhook.yaml, injector.yaml and control-plane.yaml are what the chart moonsail renders with its defaults.
package deploy

import (
	"bytes"
	"errors"
	"fmt"
	"strings"

	"helm.sh/helm/v3/pkg/chartutil"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/moonsail/moonsail/internal/model"
)

// Options choose a control plane. They take precedence over Values.
type Options struct {
	Image     string         // of the control plane and of sidecars; empty: that of Values
	Replicas  int            // of the control plane; 0: that of Values
	Revision  string         // model.DefaultRevision, or another one, which can run beside other control planes and istiod
	Namespace string         // default: DefaultNamespace
	Values    map[string]any // of the chart moonsail
}

// Manifest returns the objects of a control plane as YAML, except its namespace: deleting the manifest must not delete
// objects of others and the mesh's certificate authority. It fails only for invalid options.
func Manifest(o Options) ([]byte, error) {
	if o.Image == "" {
		return nil, errors.New("no image: give --image, or set the value image")
	}
	if o.Replicas < 1 {
		return nil, fmt.Errorf("invalid number of replicas %d: use 1 or more", o.Replicas)
	}
	release, err := o.Release()
	if err != nil {
		return nil, err
	}
	return release.Manifest()
}

// Manifest returns the chart's objects as YAML, with comments.
func (r Release) Manifest() ([]byte, error) {
	files, err := r.Render()
	if err != nil {
		return nil, err
	}
	texts := map[string][]byte{}
	for _, f := range files {
		texts[f.Name] = f.Text
	}
	var out [][]byte
	for _, name := range manifestOrder {
		if text := texts[name]; text != nil {
			out = append(out, text)
			delete(texts, name)
		}
	}
	for _, f := range files {
		if text := texts[f.Name]; text != nil {
			out = append(out, text)
		}
	}
	return bytes.Join(out, []byte("---\n")), nil
}

// manifestOrder is the order of files in a manifest. Others follow.
var manifestOrder = []string{"rbac.yaml", "webhook.yaml", "injector.yaml", "control-plane.yaml"}

// Release returns the release of a control plane.
func (o Options) Release() (Release, error) {
	if err := o.check(); err != nil {
		return Release{}, err
	}
	own := map[string]any{"revision": o.Revision}
	if o.Image != "" {
		own["image"] = o.Image
	}
	if o.Replicas != 0 {
		own["replicaCount"] = o.Replicas
	}
	r := Release{Chart: ControlPlaneChart, Name: Named(ControlPlaneChart, o.Revision), Namespace: o.Namespace}
	if r.Namespace == "" {
		r.Namespace = DefaultNamespace
	}
	r.Values = chartutil.CoalesceTables(own, o.Values)
	return r, nil
}

func (o Options) check() error {
	if strings.ContainsAny(o.Image, " \t\n\"'{}[]#,&*") {
		return fmt.Errorf("invalid image %q: use a name like registry.example.com/moonsail:1.0", o.Image)
	}
	if o.Replicas < 0 {
		return fmt.Errorf("invalid number of replicas %d: use 1 or more", o.Replicas)
	}
	if wrong := validation.IsDNS1035Label(Named("moonsail", o.Revision)); wrong != nil {
		return fmt.Errorf("invalid revision %q: the name %s of objects is invalid: %s", o.Revision, Named("moonsail", o.Revision), wrong[0])
	}
	return nil
}

// Named returns the name of an object in a revision.
func Named(name, revision string) string {
	if revision == model.DefaultRevision {
		return name
	}
	return name + "-" + revision
}
