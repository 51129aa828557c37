// Package experiment runs an experiment of the lab and writes its report.
//
// An experiment compares Variants. All variants start before the first measurement; a started variant is a
// Subject. Each round then measures every variant once, in an order that changes from round to round, so that a
// disturbance of the machine affects all of them. The first round is a warm-up and is not reported. The run ends
// after the last round, or when the time budget does not suffice for another one. Subjects are stopped at the end,
// also after an interruption.
//
// Each measurement is a Sample: a number for each Metric. Report.Conclude computes medians, spreads, comparisons
// and targets from the samples alone, so that they can be computed again from report.json.
//
// Comparisons are paired: a variant's sample is divided by the base's sample of the same round, or the difference is
// taken if the metric is Absolute. The report has the median of these numbers, and an interval that contains the
// true median with a confidence of at least 90 %. The interval uses order statistics and assumes no distribution.
// The verdict is "within noise" if the interval contains "no difference", and "too few rounds" if fewer than five
// rounds allow no interval of that confidence.
//
// To write a new experiment, return an Experiment from a function, as packages throughput and filters do. Package
// pair runs sidecars to measure.
package experiment
