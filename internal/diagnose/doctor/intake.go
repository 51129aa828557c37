package doctor

import "fmt"

// deepQueue is the number of waiting changes above which there is a finding.
const deepQueue = 100

func (p *plane) intakeQueue() verdict {
	const label = "queueID"
	if !p.now.Has("pilot_worker_queue_depth") {
		if !p.istiod() {
			return nothing
		}
		return checked(Finding{
			Severity: Unknown, What: "unknown how many changes wait in istiod's queues",
			Evidence: []string{"metric pilot_worker_queue_depth: missing"},
			Advice:   []string{"set ISTIO_ENABLE_CONTROLLER_QUEUE_METRICS=true on istiod"},
		})
	}
	evidence := listed("pilot_worker_queue_depth", label, p.now.By("pilot_worker_queue_depth", label), deepQueue)
	severity := Warning
	h, when := p.histogram("pilot_worker_queue_latency")
	if text := late("pilot_worker_queue_latency", h, when, slowFrom); text != "" {
		evidence = append(evidence, text)
		severity = severe(h)
	}
	if len(evidence) == 0 {
		return checked()
	}
	if h, when := p.histogram("pilot_worker_queue_duration"); h != nil && h.Count > 0 {
		evidence = append(evidence, fmt.Sprintf("pilot_worker_queue_duration: %s at the mean of %.0f, %s", seconds(h.Mean()), h.Count, when))
	}
	advice := "add CPU to the control plane, and find the source of the changes: pilot_k8s_reg_events and pilot_k8s_cfg_events by type"
	if p.istiod() {
		advice = "lower PILOT_PUSH_THROTTLE: pushes hold the lock that endpoints wait for; " + advice
	}
	return checked(Finding{Severity: severity, What: "changes wait in the intake queue", Evidence: evidence, Advice: []string{advice}})
}
