package kube

import (
	"encoding/json"
	"net/http"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/moonsail/moonsail/internal/config/gatewayapi"
	"github.com/moonsail/moonsail/internal/config/problem"
	"github.com/moonsail/moonsail/internal/model"
)

// Observer is told what the API server has of objects of Istio's kinds and the Gateway API's that are
// read: what the model leaves out, for statuses. It is called by one goroutine a kind, in the order of
// the kind's events; it must not block.
type Observer interface {
	Seen(*Seen)
	Gone(model.Key)
}

// Seen is an object as the API server has it now.
type Seen struct {
	Key        model.Key
	Resource   schema.GroupVersionResource
	Version    string // the resource version
	Generation int64
	Status     json.RawMessage  // nil: it has none
	Problems   problem.List     // with errors among them, the object is not used
	InForce    bool             // an earlier version is used in its place
	Partial    bool             // what is good of it, or of an earlier version, is used: none ever was good
	Outline    *gatewayapi.Refs // of the Gateway API's objects that the mesh has a part in
}

// REST is what other clients of the same API server are made of.
func (c *Client) REST() (*rest.Config, *http.Client) { return rest.CopyConfig(c.config), c.http }

// observed reports whether somebody may write the objects' statuses.
func (r *resource) observed() bool {
	return r.Custom && r.Read && (strings.HasSuffix(r.Group, "istio.io") || gatewayapi.HasRefs(r.Model))
}

// statusOf takes the status out of a document; nil where there is none.
func statusOf(document []byte) json.RawMessage {
	var o struct {
		Status json.RawMessage `json:"status"`
	}
	if json.Unmarshal(document, &o) != nil || string(o.Status) == "{}" || string(o.Status) == "null" {
		return nil
	}
	return o.Status
}

// observe tells the observer of an object.
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
		InForce: e.object == nil && held.object != nil && !held.partial, Partial: held.partial, Outline: e.outline,
	})
}

// lost tells the observer of objects that are gone.
func (k *sink) lost(names ...name) {
	if k.observer == nil {
		return
	}
	for _, n := range names {
		k.observer.Gone(k.key(n))
	}
}

func (k *sink) key(n name) model.Key {
	return model.Key{Kind: k.resource.Model, Namespace: n.namespace, Name: n.name}
}
