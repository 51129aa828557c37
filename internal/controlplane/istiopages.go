package controlplane

import (
	"context"
	"encoding/json"
	"strings"

	"github.com/moonsail/moonsail/internal/base/peeraddr"
	"github.com/moonsail/moonsail/internal/controlplane/istiodebug"
	"github.com/moonsail/moonsail/internal/source/kube"
	"github.com/moonsail/moonsail/internal/xds/server"
)

// newIstioPages returns istiod's debug pages.
func (p *parts) newIstioPages() *istiodebug.Pages {
	return &istiodebug.Pages{Source: istiodebug.Source{
		Proxies: p.xds.Proxies, Resources: p.xds, Snapshot: p.pipeline.Snapshot, Objects: p.source.raw, ConfigMaps: p.source.rawMesh,
		MeshConfig: decoderOf(&p.opts).MeshConfigName(), Instance: instance(), Revision: p.opts.Revision,
	}}
}

// instance names this control plane as istioctl does: its Pod.
func instance() string {
	name, _, _ := strings.Cut(identity(), "_")
	return name
}

// questions returns the answers to istioctl by xDS. As on the debug pages, peers on loopback addresses need no credentials:
// a port-forward to the Pod has such an address, and the API server has checked its user. may checks the credentials of other
// peers; nil: other peers are refused.
func (p *parts) questions(may func(context.Context, *server.Peer) error) server.Questions {
	return func(ctx context.Context, q *server.Question) (*server.Answer, error) {
		peer := server.PeerOf(ctx)
		if !peeraddr.IP(peer.Address).IsLoopback() {
			if may == nil {
				return nil, server.Denied("%s is answered only on the port with TLS, and to this host", q.TypeURL)
			}
			if err := may(ctx, peer); err != nil {
				return nil, err
			}
		}
		return p.istiod.Answer(ctx, q)
	}
}

// maySeeAll admits callers of the mesh's root namespace, as istiod does.
func (s *secure) maySeeAll(ctx context.Context, peer *server.Peer) error {
	caller, err := s.callers.Authenticate(ctx, peer)
	if err != nil {
		return err
	}
	if root := s.opts.Mesh.RootNamespace; caller.Identity.Namespace != root {
		return server.Denied("%s may not read the configuration of all proxies: use a service account of namespace %s", caller.Identity, root)
	}
	return nil
}

// rawObjects lists the objects of Istio's and the Gateway API's kinds. istiod has the others in other pages.
func rawObjects(ctx context.Context, client *kube.Client, rootNamespace, meshConfig string) (out []json.RawMessage, err error) {
	lists, err := client.Listings(ctx, rootNamespace, meshConfig)
	if err != nil {
		return nil, err
	}
	for _, l := range lists {
		if !istiodebug.IsConfig(l.Group) {
			continue
		}
		items, err := rawList(ctx, l)
		if err != nil {
			return nil, err
		}
		out = append(out, items...)
	}
	return out, nil
}

func rawList(ctx context.Context, l kube.Listing) ([]json.RawMessage, error) {
	text, err := l.Read(ctx)
	if err != nil {
		return nil, err
	}
	return itemsOf(text)
}

// itemsOf returns the objects of a list. Those of Kubernetes' own kinds get the kind and version of the list.
func itemsOf(text []byte) ([]json.RawMessage, error) {
	var list struct {
		APIVersion string                       `json:"apiVersion"`
		Kind       string                       `json:"kind"`
		Items      []map[string]json.RawMessage `json:"items"`
	}
	if err := json.Unmarshal(text, &list); err != nil {
		return nil, err
	}
	var out []json.RawMessage
	for _, item := range list.Items {
		for field, value := range map[string]string{"apiVersion": list.APIVersion, "kind": strings.TrimSuffix(list.Kind, "List")} {
			if _, ok := item[field]; !ok {
				item[field], _ = json.Marshal(value) // a text
			}
		}
		item["metadata"] = withoutManagers(item["metadata"])
		b, err := json.Marshal(item)
		if err != nil {
			return nil, err
		}
		out = append(out, b)
	}
	return out, nil
}

// withoutManagers removes from metadata who wrote which field, which is longer than many objects.
func withoutManagers(metadata json.RawMessage) json.RawMessage {
	var fields map[string]json.RawMessage
	if json.Unmarshal(metadata, &fields) != nil {
		return metadata
	}
	delete(fields, "managedFields")
	out, err := json.Marshal(fields)
	if err != nil {
		return metadata
	}
	return out
}
