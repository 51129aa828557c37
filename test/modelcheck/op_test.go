package modelcheck

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

// opKind is what an operation does.
type opKind int

const (
	opEvents     opKind = iota // random events of all kinds, some invalid
	opBurst                    // hundreds of them
	opFlap                     // a change and a deletion of one object
	opRelist                   // a watch lists everything again
	opRepeat                   // a watch delivers an event again
	opHold                     // the watch of a kind lags
	opRelease                  // all watches catch up
	opDeny                     // a policy of the model is created
	opAllow                    // one is deleted
	opStep                     // an Envoy reads and answers some messages
	opRead                     // an Envoy reads and answers all messages
	opDisconnect               // a stream breaks
	opConnect                  // an Envoy connects, with what it has
	opReplace                  // an Envoy is replaced by a new process, which may use the other protocol
	opPass                     // time passes
	opRestart                  // the control plane is replaced by a new one
	opCalm                     // everything is delivered, and checked
	opKinds
)

// weights are how often operations occur, of their sum.
var weights = [opKinds]int{
	opEvents: 300, opBurst: 8, opFlap: 20, opRelist: 6, opRepeat: 12, opHold: 16, opRelease: 16, opDeny: 20, opAllow: 14, opStep: 300, opRead: 160,
	opDisconnect: 24, opConnect: 40, opReplace: 12, opPass: 20, opRestart: 8, opCalm: 20,
}

var opNames = [opKinds]string{
	"events", "burst", "flap", "relist", "repeat", "hold", "release", "deny", "allow", "step", "read", "disconnect", "connect", "replace", "pass", "restart", "calm",
}

// op is one operation. Its choices depend on its own seed only, so that it does the same in a shortened run.
type op struct {
	kind   opKind
	seed   uint64
	client int
	n      int  // of events, messages or seconds
	rush   bool // the next operation begins before this one has had its effects
}

func (o op) String() string {
	s := fmt.Sprintf("%s client=%d n=%d seed=%d", opNames[o.kind], o.client, o.n, o.seed)
	if o.rush {
		s += " rush"
	}
	return s
}

// plan is a run: its circumstances and its operations.
type plan struct {
	seed     uint64
	sharding bool // some route configurations are divided into shards
	picky    bool // every second Envoy refuses some resources
	// selective: discovery selectors hide namespaces, perhaps that of the model's policies, which are then not checked.
	selective bool
	ops       []op
}

func (p *plan) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "seed %d, sharding=%t, picky=%t, selective=%t, %d operations:\n", p.seed, p.sharding, p.picky, p.selective, len(p.ops))
	for i, o := range p.ops {
		fmt.Fprintf(&b, "  %d %s\n", i, o)
	}
	return b.String()
}

// clients is the number of Envoys of a run.
const clients = 8

// newPlan returns the run of a seed. bursts multiplies the size of bursts.
func newPlan(seed uint64, length, bursts int) *plan {
	r := rand.New(rand.NewPCG(seed, 25))
	p := &plan{seed: seed, sharding: seed%3 == 1, picky: seed%4 == 2, selective: seed%5 == 3}
	total := 0
	for _, w := range weights {
		total += w
	}
	for range length {
		o := op{seed: r.Uint64(), client: r.IntN(clients), n: 1 + r.IntN(4), rush: r.IntN(4) == 0}
		for at := r.IntN(total); at >= weights[o.kind]; o.kind++ {
			at -= weights[o.kind]
		}
		switch o.kind {
		case opBurst: // one by one, so that a shortened run can leave some out
			for range bursts * (100 + r.IntN(300)) {
				p.ops = append(p.ops, op{kind: opEvents, seed: r.Uint64(), n: 1, rush: true})
			}
			continue
		case opPass:
			o.n = 1 + r.IntN(60)
		case opStep, opEvents, opFlap, opRelist, opRepeat, opHold, opRelease, opDeny, opAllow, opRead, opDisconnect, opConnect, opReplace, opRestart, opCalm, opKinds:
		}
		p.ops = append(p.ops, o)
	}
	p.ops = append(p.ops, op{kind: opCalm})
	return p
}
