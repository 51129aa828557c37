package kube

import (
	"bytes"
	"encoding/json"
	"slices"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/moonsail/moonsail/internal/config"
	"github.com/moonsail/moonsail/internal/config/gatewayapi"
	"github.com/moonsail/moonsail/internal/config/problem"
	"github.com/moonsail/moonsail/internal/config/salvage"
	"github.com/moonsail/moonsail/internal/model"
)

// entry is a decoded object, which client-go's temporary stores hold.
type entry struct {
	name      types.NamespacedName
	version   string
	committed time.Time // zero: unknown
	object    model.Object
	partial   *salvage.Result // applies if object is nil and no version was valid
	problems  problem.List

	// For the observer alone.
	elsewhere   bool // another revision's object
	generation  int64
	status      json.RawMessage
	gatewayRefs *gatewayapi.Refs
}

// GetObjectMeta identifies the entry for client-go.
func (e *entry) GetObjectMeta() metav1.Object {
	return &metav1.ObjectMeta{Namespace: e.name.Namespace, Name: e.name.Name, ResourceVersion: e.version}
}

// complete marks a decoder for an API server: all Pods are listed, although not always before the slices that refer to
// them.
func complete(d config.Decoder) config.Decoder {
	d.PodsListed = true
	return d
}

// Transformer implements cache.TransformingStore. The objects of a streamed list are decoded as they arrive, so that
// the whole list is never in memory.
func (k *sink) Transformer() cache.TransformFunc {
	return func(o any) (any, error) { return k.decode(o) }
}

// decode decodes an object. It returns an entry unchanged.
func (k *sink) decode(o any) (*entry, error) {
	if e, ok := o.(*entry); ok {
		return e, nil
	}
	m, err := meta.Accessor(o)
	if err != nil {
		return nil, err
	}
	e := &entry{name: nameOf(m), version: m.GetResourceVersion(), committed: committed(m)}
	out := k.model(o)
	e.object, e.partial, e.problems, e.elsewhere = out.Object, out.Salvaged, out.Problems, out.OtherRevision
	k.pool.trim(e.object)
	if e.partial != nil {
		k.pool.trim(e.partial.Object)
	}
	if raw, ok := o.(*rawObject); ok && k.observer != nil {
		e.generation, e.status = raw.Generation, statusOf(raw.document)
		if gatewayapi.HasRefs(k.resource.Model) {
			e.gatewayRefs = gatewayapi.RefsOf(k.resource.Model, raw.document)
		}
	}
	return e, nil
}

func nameOf(m metav1.Object) types.NamespacedName {
	return types.NamespacedName{Namespace: m.GetNamespace(), Name: m.GetName()}
}

// model decodes an object.
func (k *sink) model(o any) (out config.Decoded) {
	switch o := o.(type) {
	case *rawObject:
		return k.decoder.FromRaw(k.resource.Resource, o.document)
	case *metav1.PartialObjectMetadata:
		document, err := json.Marshal(map[string]any{
			"apiVersion": k.resource.gv().String(), "kind": k.resource.Kind,
			"metadata": map[string]string{"namespace": o.Namespace, "name": o.Name},
		})
		if err != nil {
			return out // strings can always be written
		}
		out.Problems = k.decoder.FromRaw(k.resource.Resource, document).Problems
	case *discoveryv1.EndpointSlice:
		if o.Labels[discoveryv1.LabelServiceName] == "" {
			return out // of no Service, for another use
		}
		out.Object, out.Problems = k.decoder.FromTyped(o)
	case metav1.Object:
		out.Object, out.Problems = k.decoder.FromTyped(o)
	}
	return out
}

// inPart returns an entry with its partial object in force.
func (e *entry) inPart() *entry {
	out := *e
	out.object, out.problems = e.partial.Object, append(slices.Clip(e.problems), e.partial.Note)
	return &out
}

// rawObject is an undecoded custom resource. Each is decoded separately, so that an object of a wrong type affects only
// itself, not its list.
type rawObject struct {
	metav1.TypeMeta
	metav1.ObjectMeta
	document []byte
}

// UnmarshalJSON decodes the metadata and keeps the document.
func (o *rawObject) UnmarshalJSON(b []byte) error {
	var head metav1.PartialObjectMetadata
	if err := json.Unmarshal(b, &head); err != nil {
		return err
	}
	o.TypeMeta, o.ObjectMeta, o.document = head.TypeMeta, head.ObjectMeta, bytes.Clone(b)
	return nil
}

// GetObjectKind implements runtime.Object.
func (o *rawObject) GetObjectKind() schema.ObjectKind { return &o.TypeMeta }

// DeepCopyObject implements runtime.Object. The document is never changed.
func (o *rawObject) DeepCopyObject() runtime.Object {
	c := *o
	o.ObjectMeta.DeepCopyInto(&c.ObjectMeta)
	return &c
}

// rawList is a list of rawObjects.
type rawList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`
	Items           []rawObject `json:"items"`
}

// DeepCopyObject implements runtime.Object.
func (l *rawList) DeepCopyObject() runtime.Object {
	c := *l
	c.Items = make([]rawObject, len(l.Items))
	for i := range l.Items {
		c.Items[i] = *l.Items[i].DeepCopyObject().(*rawObject)
	}
	return &c
}
