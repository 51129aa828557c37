package controlplane

import (
	"context"
	"slices"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/store"
	"github.com/moonsail/moonsail/internal/xds/server"
)

// authorize decides whether a peer may connect as a proxy. If the mesh has a Pod with the proxy's name, the
// peer must have the Pod's service account.
func (s *secure) authorize(ctx context.Context, peer *server.Peer, p *model.Proxy) error {
	if err := s.callers.Authorize(ctx, peer, p); err != nil {
		return err
	}
	byID, err := server.ParseID(p.ID)
	if err != nil {
		return err
	}
	snapshot := s.snapshot()
	for _, name := range []string{byID.Name, p.Name} {
		pod, ok := snapshot.Get(model.Key{Kind: model.KindPod, Namespace: p.Namespace, Name: name}).(*model.Workload)
		if ok && pod.Account() != p.ServiceAccount {
			return server.Denied("%s/%s may not be the proxy %q: the service account of %s is %s/%s",
				p.Namespace, p.ServiceAccount, server.ShortID(p.ID), pod.Key, pod.Namespace, pod.Account())
		}
	}
	return nil
}

// mayDeregister decides whether a caller may deregister a workload. The workload must be of the caller's
// namespace and service account, and so must every object with one of its addresses.
func (s *secure) mayDeregister(ctx context.Context, p *model.Proxy) error {
	if err := s.authorize(ctx, server.PeerOf(ctx), p); err != nil {
		return err
	}
	own := model.Identity{TrustDomain: s.trustDomains()[0], Namespace: p.Namespace, ServiceAccount: p.ServiceAccount}
	snapshot := s.snapshot()
	owned, err := ownedBy(snapshot, own, p)
	if err != nil {
		return err
	}
	return listedBy(snapshot, own, slices.DeleteFunc(slices.Clone(p.IPs), func(a string) bool { return owned[a] }))
}

// ownedBy returns the addresses of an identity's workloads. It returns an error if a workload of another
// identity has one of the addresses or the proxy's name.
func ownedBy(snapshot *store.Snapshot, own model.Identity, p *model.Proxy) (owned map[string]bool, err error) {
	owned = map[string]bool{}
	for _, kind := range []model.Kind{model.KindPod, model.KindWorkloadEntry} {
		for o := range snapshot.All(kind) {
			w, ok := o.(*model.Workload)
			if !ok {
				continue
			}
			named := kind == model.KindPod && w.Namespace == p.Namespace && w.Name == p.Name
			i := slices.IndexFunc(p.IPs, func(a string) bool { return slices.Contains(w.Addresses, a) })
			if !named && i < 0 {
				continue
			}
			if account := w.Account(); w.Namespace != own.Namespace || account != own.ServiceAccount {
				return nil, server.Denied("%s may not deregister %s: the service account of %s is %s/%s", own, p, w.Key, w.Namespace, account)
			}
			for _, a := range w.Addresses {
				owned[a] = true
			}
		}
	}
	return owned, nil
}

// listedBy returns an error for addresses that objects of another namespace list and no workload has.
func listedBy(snapshot *store.Snapshot, own model.Identity, addresses []string) error {
	refuse := func(k model.Key, address string) error {
		if k.Namespace == own.Namespace || !slices.Contains(addresses, address) {
			return nil
		}
		return server.Denied("%s may not deregister %s: it is an endpoint of %s", own, address, k)
	}
	for o := range snapshot.All(model.KindEndpointSlice) {
		e, _ := o.(*model.EndpointSlice)
		for i := range e.Members {
			for _, a := range e.Members[i].Addresses {
				if err := refuse(e.Key, a); err != nil {
					return err
				}
			}
		}
	}
	for o := range snapshot.All(model.KindServiceEntry) {
		e, _ := o.(*model.ServiceEntry)
		for i := range e.Template.Inline {
			if err := refuse(e.Key, e.Template.Inline[i].Address); err != nil {
				return err
			}
		}
	}
	return nil
}
