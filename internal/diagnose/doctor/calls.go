package doctor

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

const (
	// FailingFrom is the share of failed requests above which callers of a service are ill.
	FailingFrom = 0.05
	// fewRequests are too few to judge by their share.
	fewRequests = 20
)

// Call is the last requests of a workload to a service, as its proxies count them. For TCP, requests are connections.
type Call struct {
	From, To string // names for people
	Requests float64
	Errors   float64
	Seconds  float64  // the time in which these were counted
	Failures []string // status and response flags, with numbers, the most frequent first
	Why      string   // the command that explains the call
}

func (c *Call) share() float64 { return c.Errors / c.Requests }

// failingCalls finds calls between services of which many fail now.
func (p *plane) failingCalls() verdict {
	if p.connected == nil {
		return nothing
	}
	enough := slices.DeleteFunc(slices.Clone(p.connected.Calls), func(c Call) bool { return c.Requests < fewRequests })
	if len(enough) == 0 {
		return nothing
	}
	failing := slices.DeleteFunc(enough, func(c Call) bool { return c.share() <= FailingFrom })
	if len(failing) == 0 {
		return checked()
	}
	slices.SortStableFunc(failing, func(a, b Call) int { return cmp.Compare(b.Errors/b.Seconds, a.Errors/a.Seconds) })
	var evidence []string
	for _, c := range failing[:min(len(failing), mostNamed)] {
		evidence = append(evidence, fmt.Sprintf("%s -> %s: %.0f %% of %.0f requests in %.0f s failed: %s", c.From, c.To, 100*c.share(), c.Requests, c.Seconds, strings.Join(c.Failures, ", ")))
	}
	if more := len(failing) - mostNamed; more > 0 {
		evidence = append(evidence, fmt.Sprintf("and %d more", more))
	}
	return checked(Finding{
		Severity: Critical, What: "calls between services fail", Evidence: evidence,
		Advice: []string{
			"see what decides the call with '" + failing[0].Why + "'; if it reaches the service, the service itself or what it calls fails",
			"list all failing calls with 'moonsail dependencies --failing'",
		},
	})
}
