package changelog

import "github.com/prometheus/client_golang/prometheus"

// ControlPlanes registers the metrics of the other control planes of the mesh. count gives those
// that are known, of these those that answer, and those that are silent for too long to be waited
// for; failed counts a question to one of them that was not answered.
func (m *Metrics) ControlPlanes(count func() (known, answering, silent int)) (failed func(question string)) {
	states := map[string]func() int{
		"known":     func() int { known, _, _ := count(); return known },
		"answering": func() int { _, answering, _ := count(); return answering },
		"silent":    func() int { _, _, silent := count(); return silent },
	}
	for state, value := range states {
		m.Registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "moonsail_control_planes", Help: "Other control planes of the mesh: all that are known, and of these those that answer, and those that do not.",
			ConstLabels: prometheus.Labels{"state": state},
		}, func() float64 { return float64(value()) }))
	}
	questions := m.counterVec("moonsail_control_plane_questions_failed_total", "Questions to other control planes that were not answered.", "question")
	return func(question string) { questions.WithLabelValues(question).Inc() }
}
