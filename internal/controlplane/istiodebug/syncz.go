package istiodebug

import (
	"cmp"
	"fmt"
	"net/http"
	"time"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/xds/server"
)

// syncStatus is istiod's SyncStatus. Programs compare sent with acked: a type is in sync if they are equal, and not in
// use if both are empty.
type syncStatus struct {
	ClusterID     string                    `json:"cluster_id,omitempty"`
	ProxyID       string                    `json:"proxy,omitempty"`
	ProxyType     model.ProxyType           `json:"proxy_type,omitempty"`
	ProxyVersion  string                    `json:"proxy_version,omitempty"`
	IstioVersion  string                    `json:"istio_version,omitempty"`
	ClusterSent   string                    `json:"cluster_sent,omitempty"`
	ClusterAcked  string                    `json:"cluster_acked,omitempty"`
	ListenerSent  string                    `json:"listener_sent,omitempty"`
	ListenerAcked string                    `json:"listener_acked,omitempty"`
	RouteSent     string                    `json:"route_sent,omitempty"`
	RouteAcked    string                    `json:"route_acked,omitempty"`
	EndpointSent  string                    `json:"endpoint_sent,omitempty"`
	EndpointAcked string                    `json:"endpoint_acked,omitempty"`
	ECDSSent      string                    `json:"extensionconfig_sent,omitempty"`
	ECDSAcked     string                    `json:"extensionconfig_acked,omitempty"`
	Resources     map[string]resourceStatus `json:"resources,omitempty"`
}

type resourceStatus struct {
	Sent      string    `json:"sent,omitempty"`
	Acked     string    `json:"acked,omitempty"`
	SentTime  time.Time `json:"sentTime,omitzero"`
	LastError string    `json:"lastError,omitempty"`
}

func (p *Pages) syncz(w http.ResponseWriter, r *http.Request) {
	namespace := r.URL.Query().Get("namespace")
	out := []syncStatus{}
	for _, proxy := range p.Proxies() {
		if namespace == "" || proxy.Namespace == namespace {
			out = append(out, statusOf(&proxy))
		}
	}
	reply(w, out)
}

func statusOf(p *server.ProxyState) syncStatus {
	out := syncStatus{
		ClusterID: cluster(p), ProxyID: p.Name + "." + p.Namespace, ProxyVersion: p.Version, IstioVersion: istioVersion(p),
		Resources: map[string]resourceStatus{},
	}
	if p.Proxy != nil {
		out.ProxyType = p.Proxy.Type
	}
	for i := range p.Types {
		t := &p.Types[i]
		if !t.InUse() {
			continue
		}
		s := of(t)
		out.Resources[typeURL(t.Type)] = s
		switch t.Type {
		case "CDS":
			out.ClusterSent, out.ClusterAcked = s.Sent, s.Acked
		case "LDS":
			out.ListenerSent, out.ListenerAcked = s.Sent, s.Acked
		case "RDS":
			out.RouteSent, out.RouteAcked = s.Sent, s.Acked
		case "VHDS": // routes, too: the worse of both
			if s.Sent != s.Acked || out.RouteSent == "" {
				out.RouteSent, out.RouteAcked = s.Sent, s.Acked
			}
		case "EDS":
			out.EndpointSent, out.EndpointAcked = s.Sent, s.Acked
		case "ECDS":
			out.ECDSSent, out.ECDSAcked = s.Sent, s.Acked
		}
	}
	return out
}

// of returns the state of a type in istiod's terms, with revisions in the place of nonces. What the proxy refused is
// sent and not ACKed.
func of(t *server.TypeState) resourceStatus {
	s := resourceStatus{Sent: fmt.Sprint(t.Sent), Acked: fmt.Sprint(t.ACKed), SentTime: t.InFlightSince}
	switch t.Progress() {
	case server.TypeRefused:
		s.Acked, s.LastError = "", t.Held[0].Message
	case server.TypeInFlight, server.TypeWaiting:
		s.Sent += "+" // more was sent, or is about to be
	default:
		s.Acked = s.Sent // a later revision that concerns the proxy in nothing is not ACKed
	}
	return s
}

// defaultCluster is the cluster ID that istiod has by default.
const defaultCluster = "Kubernetes"

func cluster(p *server.ProxyState) string {
	if p.Proxy == nil {
		return defaultCluster
	}
	return cmp.Or(p.Proxy.ClusterID, defaultCluster)
}

func istioVersion(p *server.ProxyState) string {
	if p.Proxy == nil {
		return ""
	}
	return p.Proxy.IstioVersion
}

// adsClients is istiod's AdsClients.
type adsClients struct {
	Total     int         `json:"totalClients"`
	Connected []adsClient `json:"clients,omitempty"`
}

type adsClient struct {
	ConnectionID string            `json:"connectionId"`
	ConnectedAt  time.Time         `json:"connectedAt"`
	PeerAddress  string            `json:"address"`
	Labels       map[string]string `json:"labels,omitempty"`
	Metadata     map[string]string `json:"metadata,omitempty"`
	Watches      map[string]int    `json:"watches,omitempty"` // number of names by type
}

func (p *Pages) connections(w http.ResponseWriter, _ *http.Request) {
	out := adsClients{Connected: []adsClient{}}
	for _, proxy := range p.Proxies() {
		one := adsClient{
			ConnectionID: fmt.Sprintf("%s.%s-%d", proxy.Name, proxy.Namespace, proxy.Stream), ConnectedAt: proxy.Connected, PeerAddress: proxy.Peer,
			Watches: map[string]int{},
		}
		if proxy.Proxy != nil {
			one.Labels, one.Metadata = proxy.Proxy.Labels, proxy.Proxy.Metadata
		}
		for i := range proxy.Types {
			if t := &proxy.Types[i]; t.InUse() {
				one.Watches[typeURL(t.Type)] = t.Subscribed
			}
		}
		out.Connected = append(out.Connected, one)
	}
	out.Total = len(out.Connected)
	reply(w, out)
}

func (p *Pages) clusterz(w http.ResponseWriter, _ *http.Request) {
	reply(w, []map[string]string{{"id": defaultCluster, "secretName": "", "syncStatus": "synced", "istioRevision": p.Revision}})
}
