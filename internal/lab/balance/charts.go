package balance

import (
	"fmt"
	"slices"

	"github.com/moonsail/moonsail/internal/lab/experiment"
)

// addCharts draws, for each protocol and some numbers of connections, the connections of each worker. Workers are
// ordered by their connections, because the busiest is another one each time.
func addCharts(r *experiment.Report, o *Options) {
	for _, n := range o.Connections {
		if n != targetFrom && n != o.Connections[len(o.Connections)-1] {
			continue
		}
		for _, p := range protocols {
			if c := histogram(r, o.Workers, p.name, n); c != nil {
				r.Charts = append(r.Charts, *c)
			}
		}
	}
}

func histogram(r *experiment.Report, workers int, protocol string, connections int) *experiment.Chart {
	c := &experiment.Chart{Title: fmt.Sprintf("Connections of each worker, %s, %d in all", protocol, connections), Y: "",
		About: "Medians over the rounds. Workers are sorted in each round, because the busiest one differs."}
	for rank := range workers {
		c.Bars = append(c.Bars, experiment.ChartBar{Label: rankName(rank)})
	}
	for _, m := range modes() {
		v := r.Variant(nameOf(m.name, protocol, connections))
		if v == nil || len(v.Samples) == 0 {
			return nil
		}
		c.Names = append(c.Names, m.name)
		for rank, n := range ranked(v.Samples, workers) {
			c.Bars[rank].Values = append(c.Bars[rank].Values, n)
		}
	}
	return c
}

func rankName(rank int) string {
	if rank == 0 {
		return "busiest worker"
	}
	return fmt.Sprintf("worker %d", rank+1)
}

// ranked returns medians over the samples: of the most connections of a worker, of the second most, and so on.
func ranked(samples []experiment.Sample, workers int) []float64 {
	byRank := make([][]float64, workers)
	for _, s := range samples {
		counts := make([]float64, workers)
		for i := range counts {
			counts[i] = s[workerKey(i)]
		}
		slices.Sort(counts)
		for i, n := range counts {
			byRank[workers-1-i] = append(byRank[workers-1-i], n)
		}
	}
	out := make([]float64, workers)
	for i, list := range byRank {
		out[i] = experiment.Median(list)
	}
	return out
}
