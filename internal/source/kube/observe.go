package kube

import (
	"encoding/json"
	"net/http"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/moonsail/moonsail/internal/config/gatewayapi"
	"github.com/moonsail/moonsail/internal/config/problem"
	"github.com/moonsail/moonsail/internal/model"
)

// Observer gets the parts of objects that statuses need and the model does not have, for the kinds of Istio and the
// Gateway API, and Ingresses. One goroutine for each kind calls it, in the order of the kind's events. It must not block.
type Observer interface {
	Seen(*Seen)
	Gone(model.Key)
}

// Seen is the present state of an object in the API server.
type Seen struct {
	Key         model.Key
	Resource    schema.GroupVersionResource
	Version     string // the resource version
	Generation  int64
	Status      json.RawMessage  // nil: it has none
	Problems    problem.List     // if they include errors, the object is not used
	InForce     bool             // an earlier version is in force
	Salvaged    bool             // the valid part of it, or of an earlier version, is in force; no version was valid
	GatewayRefs *gatewayapi.Refs // of the mesh's Gateway API objects
}

// REST returns the configuration for other clients of the same API server.
func (c *Client) REST() (*rest.Config, *http.Client) { return rest.CopyConfig(c.config), c.http }

// observed reports whether a status may be written for the objects.
func (r *resource) observed() bool {
	return r.Custom && r.Read && (strings.HasSuffix(r.Group, "istio.io") || gatewayapi.HasRefs(r.Model) || r.Model == model.KindIngress)
}

// statusOf returns the status in a document; nil: none.
func statusOf(document []byte) json.RawMessage {
	var o struct {
		Status json.RawMessage `json:"status"`
	}
	if json.Unmarshal(document, &o) != nil || string(o.Status) == "{}" || string(o.Status) == "null" {
		return nil
	}
	return o.Status
}

// observe reports an object to the observer.
func (k *sink) observe(e *entry) {
	switch {
	case k.observer == nil:
		return
	case e.elsewhere:
		k.lost(e.name)
		return
	}
	k.mu.Lock()
	held, problems := k.held[e.name], k.problems[e.name]
	k.mu.Unlock()
	k.observer.Seen(&Seen{
		Key: k.key(e.name), Resource: k.resource.gv().WithResource(k.resource.plural),
		Version: e.version, Generation: e.generation, Status: e.status, Problems: problems,
		InForce: e.object == nil && held.object != nil && !held.partial, Salvaged: held.partial, GatewayRefs: e.gatewayRefs,
	})
}

// lost reports removed objects to the observer.
func (k *sink) lost(names ...types.NamespacedName) {
	if k.observer == nil {
		return
	}
	for _, n := range names {
		k.observer.Gone(k.key(n))
	}
}

func (k *sink) key(n types.NamespacedName) model.Key {
	return model.Key{Kind: k.resource.Model, Namespace: n.Namespace, Name: n.Name}
}
