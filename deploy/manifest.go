// Package deploy holds the Kubernetes manifests of the control plane, and adapts them to an image and a revision.
package deploy

import (
	"bytes"
	"embed"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/moonsail/moonsail/internal/model"
)

//go:embed rbac.yaml webhook.yaml injector.yaml control-plane.yaml
var files embed.FS

// order is the order in which the files must be applied.
var order = []string{"rbac.yaml", "webhook.yaml", "injector.yaml", "control-plane.yaml"}

// Options are the differences from the files.
type Options struct {
	Image    string // of the control plane and of sidecars
	Replicas int    // of the control plane
	Revision string // model.DefaultRevision, or another one, which can run beside other control planes and istiod
}

// namespace is the part of rbac.yaml that Manifest leaves out: deleting the manifest must not delete the namespace, with
// objects of others and the mesh's certificate authority.
const namespace = "apiVersion: v1\nkind: Namespace\nmetadata:\n  name: istio-system\n---\n"

// Manifest returns the objects of a control plane, except the namespace istio-system. It fails only for invalid options.
func Manifest(o Options) ([]byte, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	var all [][]byte
	for _, name := range order {
		text, err := files.ReadFile(name)
		if err != nil {
			return nil, err
		}
		all = append(all, text)
	}
	text := o.set(bytes.Replace(bytes.Join(all, []byte("---\n")), []byte(namespace), nil, 1))
	if o.Revision == model.DefaultRevision {
		return text, nil
	}
	return forRevision(text, o.Revision)
}

func (o Options) check() error {
	if o.Image == "" || strings.ContainsAny(o.Image, " \t\n\"'{}[]#,&*") {
		return fmt.Errorf("invalid image %q: use a name like registry.example.com/moonsail:1.0", o.Image)
	}
	if o.Replicas < 1 {
		return fmt.Errorf("invalid number of replicas %d: use 1 or more", o.Replicas)
	}
	if wrong := validation.IsDNS1035Label(named("moonsail", o.Revision)); wrong != nil {
		return fmt.Errorf("invalid revision %q: the name %s of objects is invalid: %s", o.Revision, named("moonsail", o.Revision), wrong[0])
	}
	return nil
}

var (
	imageLine    = regexp.MustCompile(`(?m)^( *image: ).*$`)
	replicasLine = regexp.MustCompile(`(?m)^( *replicas: ).*$`)
)

// set replaces image and replicas.
func (o Options) set(text []byte) []byte {
	text = imageLine.ReplaceAll(text, []byte("${1}"+o.Image))
	return replicasLine.ReplaceAll(text, []byte("${1}"+strconv.Itoa(o.Replicas)))
}
