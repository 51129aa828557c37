package pair

import "context"

// Resumed waits until a request is answered.
func (p *Pair) Resumed(ctx context.Context) error { return p.await(ctx) }
