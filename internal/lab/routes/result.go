package routes

// Report is what a run has found. Times are in milliseconds unless their name says more,
// sizes in bytes.
type Report struct {
	Schema  int      `json:"schema"` // 1; grows with what readers must know of
	Begun   string   `json:"begun"`  // RFC 3339
	Took    float64  `json:"took_s"`
	Version string   `json:"version"` // of Moonsail
	Envoy   string   `json:"envoy"`
	CPUs    int      `json:"cpus"`
	Workers int      `json:"workers"`
	Rate    int      `json:"requests_per_s"`
	Changes int      `json:"changes_per_s"` // asked for
	Quick   bool     `json:"quick"`
	Results []Result `json:"results"`
	Keys    []Key    `json:"keys,omitempty"`
}

// Result is one layout with a number of virtual hosts. Percentiles of requests are lower
// quartiles of the phases' percentiles.
type Result struct {
	Layout       string  `json:"layout"`
	Hosts        int     `json:"virtual_hosts"`
	Ready        float64 `json:"ready_ms"` // from Envoy's start to the first answer by a route
	Quiet        Load    `json:"quiet"`
	Changing     Load    `json:"changing"`
	Ratio        float64 `json:"p99_ratio"` // changing to quiet
	ACK          Spread  `json:"ack_ms"`
	Rate         float64 `json:"changes_per_s"` // that were made
	Bytes        float64 `json:"bytes_per_change"`
	MainCPU      float64 `json:"main_cpu_ms_per_change"`
	WorkerCPU    float64 `json:"worker_cpu_ms_per_change"`
	RequestCPU   float64 `json:"worker_cpu_us_per_request"` // while nothing changes
	AddedCPU     float64 `json:"added_cpu_us_per_request"`  // to layout rds
	AddedLatency float64 `json:"added_p50_us"`              // likewise
	Allocated    uint64  `json:"envoy_allocated"`
	RSS          int64   `json:"envoy_rss"`
	Wrong        int     `json:"wrong"` // hosts whose route was not the newest in the end
}

// Load is what requests took.
type Load struct {
	Requests int     `json:"requests"`
	Failed   int     `json:"failed"`
	P50      float64 `json:"p50_ms"`
	P99      float64 `json:"p99_ms"`
}

// Spread is a distribution.
type Spread struct {
	N   int     `json:"n"`
	P50 float64 `json:"p50"`
	P99 float64 `json:"p99"`
	Max float64 `json:"max"`
}

// Key is what a way to compute a scope's key takes.
type Key struct {
	Name  string  `json:"name"`
	About string  `json:"about"`
	CPU   float64 `json:"worker_cpu_us_per_request"`
	Added float64 `json:"added_cpu_us_per_request"` // to routes without scopes
	P50   float64 `json:"p50_us"`
}

// QuietLimit is the p99 in ms above which a machine was too busy, also without changes,
// for the ratio to say anything.
const QuietLimit = 5.0

// Noisy tells that the ratio of a result says nothing.
func (r *Result) Noisy() bool { return r.Quiet.P99 > QuietLimit }

// Limits of the plan.
const (
	RatioLimit = 1.5
	ACKLimit   = 5.0 // ms
	BytesLimit = 3 << 10
)

// Holds tells whether a layout keeps to all limits.
func (r *Result) Holds() bool {
	return !r.Noisy() && r.Ratio <= RatioLimit && r.ACK.P50 <= ACKLimit && r.Bytes <= BytesLimit && r.Wrong == 0
}
