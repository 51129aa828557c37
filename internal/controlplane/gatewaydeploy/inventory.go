package gatewaydeploy

import (
	"crypto/sha256"
	"encoding/json"
	"maps"
	"slices"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/moonsail/moonsail/internal/config/gatewayapi"
)

func nameOf(o metav1.Object) types.NamespacedName {
	return types.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetName()}
}

// childKey identifies an object that belongs to a Gateway.
type childKey struct {
	resource        schema.GroupVersionResource
	namespace, name string
}

// in reports whether a list has the object.
func (k childKey) in(list []object) bool {
	return slices.ContainsFunc(list, func(o object) bool { return k == childKey{o.resource, o.GetNamespace(), o.GetName()} })
}

// child is the state of such an object.
type child struct {
	uid     types.UID
	version string // resource version
	owner   types.UID
	gateway types.NamespacedName
	ours    bool // this controller has created or applied it
	content contentHash
}

// contentHash is of the content of an object without its status and what the API server counts.
type contentHash [sha256.Size]byte

// inventory has the Gateways and their objects, as the watches saw them.
type inventory struct {
	mu       sync.Mutex // guards the fields below
	gateways map[types.NamespacedName]seenGateway
	children map[childKey]child
	written  map[childKey]written
}

// seenGateway is what watches need of a Gateway.
type seenGateway struct {
	uid        types.UID
	content    contentHash
	class      string
	parameters string // ConfigMap of its namespace; empty: none
}

// written is the content that this controller wrote last. An event with this content causes no reconciliation.
type written struct {
	owner   types.UID
	content contentHash
}

func newInventory() *inventory {
	return &inventory{gateways: map[types.NamespacedName]seenGateway{}, children: map[childKey]child{}, written: map[childKey]written{}}
}

func hashOf(o *unstructured.Unstructured) contentHash {
	fields := maps.Clone(o.Object)
	delete(fields, "status")
	if m, ok := fields["metadata"].(map[string]any); ok {
		m = maps.Clone(m)
		for _, f := range []string{"managedFields", "resourceVersion", "generation"} {
			delete(m, f)
		}
		fields["metadata"] = m
	}
	text, _ := json.Marshal(fields) // cannot fail: it was decoded from JSON
	return sha256.Sum256(text)
}

// seeGateway takes a version of a Gateway. It returns false if nothing changed that matters here.
func (i *inventory) seeGateway(o *unstructured.Unstructured) bool {
	now := seenGateway{uid: o.GetUID(), content: hashOf(o)}
	if g, err := readGateway(o); err == nil {
		now.class = g.Spec.GatewayClassName
		now.parameters, _ = g.parameters() // the reconciliation reports the error
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	changed := i.gateways[nameOf(o)] != now
	i.gateways[nameOf(o)] = now
	return changed
}

func (i *inventory) forgetGateway(n types.NamespacedName) {
	i.mu.Lock()
	defer i.mu.Unlock()
	uid := i.gateways[n].uid
	delete(i.gateways, n)
	maps.DeleteFunc(i.written, func(_ childKey, w written) bool { return w.owner == uid })
}

// gatewaysWith returns the Gateways for which a function returns true.
func (i *inventory) gatewaysWith(want func(types.NamespacedName, seenGateway) bool) []types.NamespacedName {
	i.mu.Lock()
	defer i.mu.Unlock()
	var out []types.NamespacedName
	for n, g := range i.gateways {
		if want(n, g) {
			out = append(out, n)
		}
	}
	return out
}

// parametersOf returns the ConfigMap that a Gateway names, in its namespace; empty: none, or the Gateway is gone.
func (i *inventory) parametersOf(n types.NamespacedName) string {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.gateways[n].parameters
}

// ownerOf returns the Gateway that owns an object; nil: none owns it.
func ownerOf(o metav1.Object) *metav1.OwnerReference {
	refs := o.GetOwnerReferences()
	at := slices.IndexFunc(refs, func(r metav1.OwnerReference) bool {
		gv, err := schema.ParseGroupVersion(r.APIVersion)
		return err == nil && gv.Group == gatewayapi.Group && r.Kind == "Gateway"
	})
	if at < 0 {
		return nil
	}
	return &refs[at]
}

// seeChild takes a version of a managed object. It returns the Gateway to reconcile, unless this controller wrote the content.
func (i *inventory) seeChild(r schema.GroupVersionResource, o *unstructured.Unstructured) (of types.NamespacedName, changed bool) {
	owner := ownerOf(o)
	k := childKey{r, o.GetNamespace(), o.GetName()}
	if owner == nil {
		old, known := i.forgetChild(k)
		return old.gateway, known
	}
	now := child{
		uid: o.GetUID(), version: o.GetResourceVersion(), owner: owner.UID, gateway: types.NamespacedName{Namespace: o.GetNamespace(), Name: owner.Name},
		ours: writtenByUs(o), content: hashOf(o),
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	old := i.children[k]
	i.children[k] = now
	changed = old.uid != now.uid || old.owner != now.owner || old.content != now.content
	return now.gateway, changed && i.written[k] != written{now.owner, now.content}
}

// forgetChild removes an object. It returns its last state.
func (i *inventory) forgetChild(k childKey) (old child, known bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	old, known = i.children[k]
	delete(i.children, k)
	return old, known
}

// wrote records the result of a write.
func (i *inventory) wrote(k childKey, owner types.UID, o *unstructured.Unstructured) {
	content := hashOf(o) // not under the lock
	i.mu.Lock()
	defer i.mu.Unlock()
	i.written[k] = written{owner, content}
}

// dropWritten forgets what was written for Gateways that do not exist: one may have been deleted during its reconciliation.
func (i *inventory) dropWritten() {
	i.mu.Lock()
	defer i.mu.Unlock()
	live := map[types.UID]bool{}
	for _, g := range i.gateways {
		live[g.uid] = true
	}
	maps.DeleteFunc(i.written, func(_ childKey, w written) bool { return !live[w.owner] })
}

// keepWritten forgets what was written for a Gateway, except for some objects. Later events of the others lead to a
// reconciliation, which deletes them.
func (i *inventory) keepWritten(owner types.UID, want []object) {
	i.mu.Lock()
	defer i.mu.Unlock()
	maps.DeleteFunc(i.written, func(k childKey, w written) bool {
		return w.owner == owner && !k.in(want)
	})
}

// of returns the objects that a Gateway owns.
func (i *inventory) of(owner types.UID) map[childKey]child {
	i.mu.Lock()
	defer i.mu.Unlock()
	out := map[childKey]child{}
	for k, c := range i.children {
		if c.owner == owner {
			out[k] = c
		}
	}
	return out
}
