package debug

import (
	"net/http"
	"time"

	"github.com/moonsail/moonsail/internal/controlplane/dependencies"
)

// maxDependencies bounds the workloads of an answer, in bytes.
const maxDependencies = 32 << 20

func (h *handler) dependencies(w http.ResponseWriter, r *http.Request) {
	if h.stages.Dependencies == nil {
		fail(w, http.StatusNotFound, "dependencies: not learned", "start the control plane with --learn-dependencies")
		return
	}
	query := r.URL.Query()
	q := dependencies.Question{Namespace: query.Get("namespace"), Workload: query.Get("workload"), CallersOf: query.Get("callers-of")}
	report := h.stages.Dependencies.Report(q)
	if h.everywhere(r) {
		aboutAll(w)
		for _, s := range askAll[dependencies.Report](r.Context(), askTimeout, h.stages.Peers, MethodDependencies, q) {
			if s.Answer != nil {
				report.Join(s.Answer)
			}
			report.Others = append(report.Others, s.PeerQuery)
		}
	}
	list, leftOut := fitting(report.Workloads, maxDependencies)
	report.Workloads, report.LeftOut, report.LeftOutOf = list, report.LeftOut+leftOut, nil // the others have no use for them
	reply(w, report)
}

// dependencies are those that this control plane knows.
func (pq *PeerQueries) dependencies(q dependencies.Question) *dependencies.Report {
	if pq.Dependencies == nil {
		return &dependencies.Report{Now: time.Now()}
	}
	out := pq.Dependencies.Report(q)
	list, leftOut := fitting(out.Workloads, maxTold)
	var names []dependencies.Workload
	for i := range out.Workloads[len(list):] {
		names = append(names, out.Workloads[len(list)+i].Workload)
	}
	names, _ = fitting(names, maxTold)
	out.Workloads, out.LeftOut, out.LeftOutOf = list, leftOut, names
	return out
}
