package debug

import (
	"net/http"

	"github.com/moonsail/moonsail/internal/controlplane/traffic"
)

func (h *handler) traffic(w http.ResponseWriter, r *http.Request) {
	if h.stages.Traffic == nil {
		absent(w, "traffic")
		return
	}
	g := h.stages.Traffic.Graph()
	switch {
	case g.Source == traffic.SourcePrometheus:
		aboutAll(w) // it has the metrics of all proxies
	case h.everywhere(r):
		aboutAll(w)
		for _, s := range askAll[traffic.Graph](r.Context(), askTimeout, h.stages.Peers, MethodTraffic, struct{}{}) {
			if s.Answer != nil {
				g.Join(s.Answer)
			} else {
				g.Complete = false
				g.Failures = append(g.Failures, "control plane "+s.ControlPlane+": "+s.Silent)
			}
		}
	}
	reply(w, g)
}

// traffic is the graph of the proxies of this control plane.
func (pq *PeerQueries) traffic() *traffic.Graph {
	if pq.Traffic == nil {
		return &traffic.Graph{}
	}
	g := pq.Traffic.Graph()
	list, leftOut := fitting(g.Edges, maxTold)
	g.Edges, g.LeftOut = list, g.LeftOut+leftOut
	return g
}
