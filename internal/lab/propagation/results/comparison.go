package results

// PeerReport has the peer's results in the same scenarios.
type PeerReport struct {
	Name    string   `json:"name"`
	Address string   `json:"address"`
	Results []Result `json:"results"`
	Stopped string   `json:"stopped,omitempty"` // why it ended early; empty: it did not
}

// Pair is one scenario on one mesh, measured with both control planes.
type Pair struct{ Ours, Peer *Result }

// Pairs returns the scenarios that were measured with both, in order.
func (r *Report) Pairs() (out []Pair) {
	if r.Peer == nil {
		return nil
	}
	for i := range r.Results {
		a := &r.Results[i]
		for j := range r.Peer.Results {
			if b := &r.Peer.Results[j]; a.Scenario == b.Scenario && a.MeshName() == b.MeshName() {
				out = append(out, Pair{a, b})
			}
		}
	}
	return out
}

// PairRow is one quantity of a pair.
type PairRow struct {
	What       string
	Ours, Peer float64
	Unit       string
}

// Times returns the peer's value divided by ours, or 0 if ours is 0.
func (p PairRow) Times() float64 { return Ratio(p.Peer, p.Ours) }

// Rows returns the quantities that were measured with both.
func (p Pair) Rows() (out []PairRow) {
	add := func(what, unit string, ours, peer float64) {
		if ours > 0 && peer > 0 {
			out = append(out, PairRow{what, ours, peer, unit})
		}
	}
	a, b := &p.Ours.Subject, &p.Peer.Subject
	add("last proxy's ACK, p50", "ms", a.Last.P50, b.Last.P50)
	add("a proxy's ACK, p99", "ms", a.Proxies.P99, b.Proxies.P99)
	add("CPU a change, p50", "ms", a.CPU.P50, b.CPU.P50)
	add("to a concerned proxy", "B", a.Concerned.Bytes, b.Concerned.Bytes)
	add("peak memory", "MB", float64(a.PeakRSS>>20), float64(b.PeakRSS>>20))
	return out
}
