package routes

import "time"

// threads is the CPU time that an Envoy has used.
type threads struct{ main, workers time.Duration }

func (t threads) sub(o threads) threads { return threads{t.main - o.main, t.workers - o.workers} }
