package kube

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/moonsail/moonsail/internal/base/clock"
	"github.com/moonsail/moonsail/internal/config"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/store"
)

// Credentials reads Secrets, and ConfigMaps with CAs: only those to which a DestinationRule, BackendTLSPolicy, Sidecar,
// Gateway or WasmPlugin refers, each with a separate watch, so that the control plane needs no permission for others. It
// determines which service accounts may read each one, and puts both into the intake. A missing or unreadable one goes
// into the intake with its problem. Run's goroutine does all work except where noted.
type Credentials struct {
	// Set before Run.
	Client   *Client
	Decoder  config.Decoder
	Intake   *store.Intake
	Snapshot func() *store.Snapshot
	Log      *slog.Logger
	// Recheck is how often readers are checked again; 0: each minute.
	Recheck time.Duration

	wake    chan struct{} // holds one token after a change
	settled chan struct{} // closed by settle
	settle  func()        // admits proxies; may be called repeatedly, from anywhere

	// Used by Run's goroutine only.
	watches map[model.Key]*secretWatch
	reviews *reviews
	full    map[share]bool // the log has reported that there are too many
}

// Bounds and intervals.
const (
	maxCredentials   = 3000 // watches for each kind; further objects are not read
	maxOfNamespace   = 1000 // of these, those to which the objects of one namespace refer
	credentialsEvery = 100 * time.Millisecond
	settleIn         = 5 * time.Second // how long proxies wait for the first Secrets after a start
	recheckEvery     = time.Minute
)

// NewCredentials returns Credentials. Call Run once.
func NewCredentials(c *Client, d config.Decoder, in *store.Intake, snapshot func() *store.Snapshot, log *slog.Logger) *Credentials {
	out := &Credentials{
		Client: c, Decoder: d, Intake: in, Snapshot: snapshot, Log: log,
		wake: make(chan struct{}, 1), settled: make(chan struct{}), watches: map[model.Key]*secretWatch{}, full: map[share]bool{},
	}
	out.settle = sync.OnceFunc(func() { close(out.settled) })
	return out
}

// Applied reports a batch that is in the store. It does not block.
func (c *Credentials) Applied(changes []store.Change) {
	if slices.ContainsFunc(changes, func(ch store.Change) bool { return concerns(ch.Key.Kind) }) {
		c.poke()
	}
}

// concerns reports whether objects of a kind refer to Secrets or ConfigMaps, or are workloads with the service accounts
// of readers.
func concerns(k model.Kind) bool {
	switch k {
	case model.KindDestinationRule, model.KindBackendTLSPolicy, model.KindSidecar, model.KindWasmPlugin, model.KindGateway, model.KindKubernetesGateway,
		model.KindListenerSet, model.KindIngress, model.KindIngressClass, model.KindNamespace, model.KindReferenceGrant, model.KindPod, model.KindWorkloadEntry, model.KindSecret, model.KindConfigMap:
		return true
	}
	return false
}

func (c *Credentials) poke() {
	select {
	case c.wake <- struct{}{}:
	default: // a token already waits
	}
}

// Wait waits for the first Secrets after a start, or the reasons why there are none, so that proxies do not lose them. It
// waits at most settleIn from when the sources have loaded.
func (c *Credentials) Wait(ctx context.Context) error {
	select {
	case <-c.settled:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Run works until ctx ends. loaded is closed when the store has the sources' first objects.
func (c *Credentials) Run(ctx context.Context, loaded <-chan struct{}) error {
	defer c.stopAll()
	defer c.settle()
	asks, err := c.Client.accessReviews()
	if err != nil {
		return err
	}
	c.reviews = newReviews(asks, c.Recheck)
	select {
	case <-loaded:
	case <-ctx.Done():
		return nil
	}
	defer time.AfterFunc(settleIn, c.settle).Stop() // also while reviews are slow
	for {
		c.look(ctx)
		c.tellAll(ctx)
		if c.isSettled() {
			c.settle()
		}
		if !c.rest(ctx) {
			return nil
		}
	}
}

// rest waits for the next change or check; false: ctx has ended. Many changes of Pods wake it at most ten times a
// second.
func (c *Credentials) rest(ctx context.Context) bool {
	if clock.Sleep(ctx, credentialsEvery) != nil {
		return false
	}
	timer := time.NewTimer(c.due())
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-c.wake:
	case <-timer.C:
	}
	return true
}

// due returns the time until the next check.
func (c *Credentials) due() time.Duration {
	select {
	case <-c.settled:
	default:
		return time.Millisecond
	}
	if len(c.watches) == 0 {
		return time.Hour
	}
	return c.reviews.next(time.Now())
}

// look applies the present references.
func (c *Credentials) look(ctx context.Context) {
	wanted := c.wanted()
	for key, w := range c.watches {
		if wanted[key] == nil {
			c.forget(key, w)
		}
	}
	for _, key := range c.unwatched(wanted) {
		c.watches[key] = c.watch(ctx, key)
	}
	for key, w := range c.watches {
		w.author, w.keyAsked, w.readers, w.trusted = wanted[key].author, wanted[key].keyAsked, wanted[key].readers, wanted[key].trusted
	}
}

// share is what the watches of one kind for one namespace count for; without a namespace, those of all.
type share struct {
	kind      model.Kind
	namespace string
}

// unwatched returns the referenced objects without a watch, as far as there is room. Secrets and ConfigMaps have
// separate limits. One namespace cannot use the room of all.
func (c *Credentials) unwatched(wanted map[model.Key]*secretWatch) []model.Key {
	var out []model.Key
	count := map[share]int{}
	add := func(key model.Key, w *secretWatch) {
		count[share{key.Kind, ""}]++
		if w.author != "" {
			count[share{key.Kind, w.author}]++
		}
	}
	for key, w := range c.watches {
		add(key, w)
	}
	for _, key := range slices.SortedFunc(maps.Keys(wanted), model.Key.Compare) {
		w := wanted[key]
		switch all, own := (share{key.Kind, ""}), (share{key.Kind, w.author}); {
		case c.watches[key] != nil:
		case count[all] >= maxCredentials:
			c.tooMany(key, all, maxCredentials)
		case w.author != "" && count[own] >= maxOfNamespace:
			c.tooMany(key, own, maxOfNamespace)
		default:
			add(key, w)
			out = append(out, key)
		}
	}
	return out
}

// tooMany logs once for each kind and namespace the first object without a watch.
func (c *Credentials) tooMany(key model.Key, of share, limit int) {
	if !c.full[of] {
		c.Log.Warn("more are named as credentials than are read", "kind", key.Kind, "namedBy", cmp.Or(of.namespace, "all namespaces"), "read", limit, "firstLeftOut", key.String())
	}
	c.full[of] = true
}

// tellAll puts the known Secrets into the intake. A Secret waits until it is known which accounts may read it.
func (c *Credentials) tellAll(ctx context.Context) {
	var known []model.Key
	var questions []question
	for key, w := range c.watches {
		if _, _, ok := w.get(); !ok {
			continue
		}
		known = append(known, key)
		for account := range w.readers {
			if !w.trusted[account] {
				questions = append(questions, question{key, account})
			}
		}
	}
	c.reviews.renew(ctx, questions)
	for _, key := range known {
		if w := c.watches[key]; c.reviewed(key, w) {
			c.send(key, w)
		}
	}
}

// reviewed reports whether all reviews of a Secret's readers have an answer.
func (c *Credentials) reviewed(key model.Key, w *secretWatch) bool {
	for account := range w.readers {
		if !w.trusted[account] && !c.reviews.answered(key, account) {
			return false
		}
	}
	return true
}

// send puts a Secret into the intake if it has changed.
func (c *Credentials) send(key model.Key, w *secretWatch) {
	secret, problem, _ := w.get()
	now := &model.Secret{Meta: model.Meta{Key: key, Origin: "kubernetes"}}
	switch {
	case problem != "":
		now.Problem, now.CAProblem = problem, problem
	case secret == nil:
		now.Problem, now.CAProblem = model.NoSecret, model.NoSecret
	default:
		*now = *secret
		if !w.keyAsked { // an unreferenced object is not stored
			now.Certificate, now.OCSPStaple, now.PrivateKey, now.Login = "", "", model.PrivateKey{}, model.PrivateKey{}
		}
	}
	now.Readers = c.readers(key, w)
	if w.sent != nil && same(w.sent, now) {
		return
	}
	// The readers are not part of the API server's version.
	w.serial++
	now.ResourceVersion += "." + strconv.FormatUint(w.serial, 10)
	w.sent = now
	c.Intake.Put(store.Event{Key: key, Object: now, Observed: time.Now()})
}

// readers returns the service accounts that may read a Secret; never nil.
func (c *Credentials) readers(key model.Key, w *secretWatch) []string {
	out := []string{}
	for _, account := range slices.Sorted(maps.Keys(w.readers)) {
		if w.trusted[account] || c.reviews.mayRead(key, account) {
			out = append(out, account)
		}
	}
	c.reviews.keep(key, func(account string) bool { return w.readers[account] && !w.trusted[account] })
	return out
}

func (c *Credentials) forget(key model.Key, w *secretWatch) {
	delete(c.watches, key)
	c.reviews.forget(key)
	w.stop()
	<-w.ended
	if w.sent != nil {
		c.Intake.Put(store.Event{Key: key, Observed: time.Now()})
	}
}

func (c *Credentials) stopAll() {
	for _, w := range c.watches {
		w.stop()
	}
	for _, w := range c.watches {
		<-w.ended
	}
}

// isSettled reports whether the store has the first Secrets, or the reasons why there are none.
func (c *Credentials) isSettled() bool {
	snap := c.Snapshot()
	for key, w := range c.watches {
		if w.sent == nil || !reflect.DeepEqual(snap.Get(key), model.Object(w.sent)) {
			return false
		}
	}
	return true
}
