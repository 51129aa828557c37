// Package deploy holds the Kubernetes manifests of the control plane, and adapts them to revisions.
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

// order is that in which the files are to be applied.
var order = []string{"rbac.yaml", "webhook.yaml", "injector.yaml", "control-plane.yaml"}

// Options say what differs from the files.
type Options struct {
	Image    string // of the control plane and of sidecars
	Replicas int    // of the control plane
	Revision string // model.DefaultRevision, or one that can be beside another control plane, Istio's too
}

// namespace is a part of rbac.yaml that Manifest leaves out: deleting what was applied must not take away others'
// objects, and the mesh's authority with them.
const namespace = "apiVersion: v1\nkind: Namespace\nmetadata:\n  name: istio-system\n---\n"

// Manifest is all that a control plane takes in a cluster, but for the namespace istio-system. Errors are in the options alone.
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
		return fmt.Errorf("%q is not the name of an image", o.Image)
	}
	if o.Replicas < 1 {
		return fmt.Errorf("invalid number of replicas %d: use 1 or more", o.Replicas)
	}
	if wrong := validation.IsDNS1035Label(named("moonsail", o.Revision)); wrong != nil {
		return fmt.Errorf("revision %q: objects would be called %s, and %s", o.Revision, named("moonsail", o.Revision), wrong[0])
	}
	return nil
}

var (
	imageLine    = regexp.MustCompile(`(?m)^( *image: ).*$`)
	replicasLine = regexp.MustCompile(`(?m)^( *replicas: ).*$`)
)

// set puts image and replicas into the files.
func (o Options) set(text []byte) []byte {
	text = imageLine.ReplaceAll(text, []byte("${1}"+o.Image))
	return replicasLine.ReplaceAll(text, []byte("${1}"+strconv.Itoa(o.Replicas)))
}
