// Package experiment runs an experiment of the lab and reports on it.
//
// An experiment compares Variants. Each variant starts what it needs (a Subject), all of them
// before anything is measured; then every variant is measured once in each round, in an order
// that differs from round to round, so that what disturbs the machine disturbs all of them.
// The first round warms up and is forgotten. Rounds end when all are done or the time budget
// would not take another one; subjects are stopped in the end, also when the run was
// interrupted.
//
// Each measurement is a Sample: a number for each Metric. Nothing else is kept: the medians,
// spreads, comparisons and bars of a Report are made from its samples (Report.Conclude), and
// can be made again from report.json.
//
// What is compared is paired: a variant's sample is divided by the base's of the same round
// (or taken away from, where a metric says so). Of these numbers the report gives the median
// and an interval that holds the true median with a confidence of at least 90 % (order
// statistics, so nothing is assumed of the distribution). Where "no difference" lies in the
// interval the verdict is "within noise"; with fewer than five rounds no interval is as sure
// as that, and the verdict is "too few rounds".
//
// A new experiment is a function that returns an Experiment: see the packages throughput and
// filters, and package pair for sidecars to measure.
package experiment
