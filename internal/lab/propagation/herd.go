package propagation

import "context"

// Limits of the plan for herds.
const (
	connectLimit    = 10.0 // seconds
	connectCPULimit = 2.0  // x floor
	memoryLimit     = 20.0 // KiB beyond the floor's
)

// connectHerd tells of the herd with which the session began.
func connectHerd(_ context.Context, s *session) (*Result, error) {
	r := s.connected
	r.bar("all configured", r.Subject.Last.P50/1000, connectLimit, "s")
	if r.Floor != nil {
		r.bar("CPU / floor", ratio(r.Subject.CPU.P50, r.Floor.CPU.P50), connectCPULimit, "x")
		r.bar("memory of a proxy beyond the floor's", (r.Subject.ProxyMemory-r.Floor.ProxyMemory)/1024, memoryLimit, "KiB")
	}
	return &r, nil
}
