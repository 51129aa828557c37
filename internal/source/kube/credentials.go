package kube

import (
	"context"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/moonsail/moonsail/internal/istioapi"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/store"
)

// Credentials reads Secrets, and ConfigMaps with CAs: those alone that a DestinationRule, a Sidecar, a Gateway or a WasmPlugin
// names, each by a watch of its own, so that the control plane needs no right to others. Of each it finds out which service
// accounts may read it, and puts it into the intake with that; where there is none, or it may
// not be read, it puts one that says so. One goroutine, Run's, does all that is not said to be
// another's.
type Credentials struct {
	// Fixed.
	Client   *Client
	Decoder  istioapi.Decoder
	Intake   *store.Intake
	Snapshot func() *store.Snapshot
	Log      *slog.Logger
	// Recheck is how often it is asked again who may read; 0: each minute.
	Recheck time.Duration

	wake    chan struct{} // holds one token while there may be something new
	settled chan struct{} // closed when the first Secrets are in the store, or were waited for long enough
	begun   time.Time

	// Touched only by Run's goroutine.
	watches map[model.Key]*secretWatch
	reviews *reviews
	full    map[model.Kind]bool // it was told that there are too many
}

// Bounds and times.
const (
	maxCredentials   = 1000 // that are watched of each kind; those beyond are not read
	credentialsEvery = 100 * time.Millisecond
	settleIn         = 5 * time.Second // how long proxies wait for the first Secrets after a start
	recheckEvery     = time.Minute
)

// NewCredentials makes a keeper. Run must be called once for anything to happen.
func NewCredentials(c *Client, d istioapi.Decoder, in *store.Intake, snapshot func() *store.Snapshot, log *slog.Logger) *Credentials {
	return &Credentials{
		Client: c, Decoder: d, Intake: in, Snapshot: snapshot, Log: log,
		wake: make(chan struct{}, 1), settled: make(chan struct{}), watches: map[model.Key]*secretWatch{}, full: map[model.Kind]bool{},
	}
}

// Applied is told of each batch once it is in the store. It does not block.
func (c *Credentials) Applied(changes []store.Change) {
	if slices.ContainsFunc(changes, func(ch store.Change) bool { return concerns(ch.Key.Kind) }) {
		c.poke()
	}
}

// concerns: rules, Sidecars and Gateways name Secrets, and workloads have the service accounts that are to read them.
func concerns(k model.Kind) bool {
	switch k {
	case model.KindDestinationRule, model.KindSidecar, model.KindWasmPlugin, model.KindGateway, model.KindKubernetesGateway,
		model.KindPod, model.KindWorkloadEntry, model.KindSecret, model.KindConfigMap:
		return true
	}
	return false
}

func (c *Credentials) poke() {
	select {
	case c.wake <- struct{}{}:
	default: // the newest state will be looked at
	}
}

// Wait waits for the first Secrets after a start: proxies are not to be told that there are none.
func (c *Credentials) Wait(ctx context.Context) error {
	select {
	case <-c.settled:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Run works until ctx ends. synced tells whether what the sources had at the start is in the
// store.
func (c *Credentials) Run(ctx context.Context, synced func() bool) error {
	defer c.stopAll()
	defer c.settle(true)
	asks, err := c.Client.accessReviews()
	if err != nil {
		return err
	}
	c.reviews = newReviews(asks, c.Recheck)
	for !synced() {
		if !pause(ctx, 10*time.Millisecond) {
			return nil
		}
	}
	c.begun = time.Now()
	for {
		c.look(ctx)
		for key, w := range c.watches {
			c.tell(ctx, key, w)
		}
		c.settle(false)
		if !c.rest(ctx) {
			return nil
		}
	}
}

// rest waits until there may be something to do; false: ctx has ended. Storms of Pods wake it
// ten times a second at most.
func (c *Credentials) rest(ctx context.Context) bool {
	if !pause(ctx, credentialsEvery) {
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

// due is how long there is nothing to do.
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

func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// secretWatch is a Secret that is watched.
type secretWatch struct {
	key      model.Key
	keyAsked bool            // some rule needs its key
	readers  map[string]bool // service accounts of workloads that need the key
	trusted  map[string]bool // of these, those that may have it without being asked about
	told     *model.Secret   // what the intake was told last; nil: nothing
	serial   uint64
	stop     context.CancelFunc
	ended    chan struct{}

	mu      sync.Mutex // guards what follows: the Reflector writes it
	listed  bool
	secret  *model.Secret // nil: there is none
	problem string        // why it cannot be read
}

// look takes over what rules ask for now.
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
		w.keyAsked, w.readers, w.trusted = wanted[key].keyAsked, wanted[key].readers, wanted[key].trusted
	}
}

// unwatched are the keys that are wanted and not watched yet, as far as there is room for them. Secrets
// and ConfigMaps are counted apart: many of one kind keep out none of the other.
func (c *Credentials) unwatched(wanted map[model.Key]*secretWatch) []model.Key {
	var out []model.Key
	count := map[model.Kind]int{}
	for key := range c.watches {
		count[key.Kind]++
	}
	for _, key := range slices.SortedFunc(maps.Keys(wanted), model.Key.Compare) {
		switch {
		case c.watches[key] != nil:
		case count[key.Kind] >= maxCredentials:
			c.tooMany(key)
		default:
			count[key.Kind]++
			out = append(out, key)
		}
	}
	return out
}

// tooMany says once for each kind which is the first that is left out.
func (c *Credentials) tooMany(key model.Key) {
	if !c.full[key.Kind] {
		c.Log.Warn("more are named as credentials than are read", "kind", key.Kind, "read", maxCredentials, "firstLeftOut", key.String())
	}
	c.full[key.Kind] = true
}

// wanted are the Secrets that rules, Sidecars, Gateways and plugins name, and who is to have their keys.
func (c *Credentials) wanted() map[model.Key]*secretWatch { return wantedIn(c.Snapshot()) }

func wantedIn(snap *store.Snapshot) map[model.Key]*secretWatch {
	out := map[model.Key]*secretWatch{}
	for o := range snap.All(model.KindDestinationRule) {
		r, ok := o.(*model.DestinationRule)
		if !ok {
			continue
		}
		for _, need := range r.Credentials() {
			if need.Kind == model.KindSecret && len(r.WorkloadSelector) == 0 {
				continue // nobody gets it
			}
			if w := wantSecret(out, need); need.PrivateKey {
				addAccounts(snap, r.Namespace, r.WorkloadSelector, w.readers)
			}
		}
	}
	addSidecars(snap, out)
	addGateways(snap, out)
	addPlugins(snap, out)
	return out
}

// addSidecars adds the Secrets that workloads need for their own listeners.
func addSidecars(snap *store.Snapshot, into map[model.Key]*secretWatch) {
	for o := range snap.All(model.KindSidecar) {
		s, ok := o.(*model.Sidecar)
		if !ok {
			continue
		}
		for _, need := range s.Credentials() {
			if w := wantSecret(into, need); need.PrivateKey {
				addAccounts(snap, s.Namespace, s.Selector, w.readers)
			}
		}
	}
}

// addPlugins adds the Secrets that modules of plugins are fetched with.
func addPlugins(snap *store.Snapshot, into map[model.Key]*secretWatch) {
	for o := range snap.All(model.KindWasmPlugin) {
		p, ok := o.(*model.WasmPlugin)
		if !ok {
			continue
		}
		if key, named := p.PullSecretKey(); named {
			w := wantSecret(into, model.NeededSecret{Key: key, PrivateKey: true})
			for _, selector := range model.Selectors(p) {
				addAccounts(snap, p.Namespace, selector, w.readers)
			}
		}
	}
}

// wantSecret adds one, or says more of it. The mesh's configuration is none, whatever names it: what is told of
// it here would stand in its place.
func wantSecret(into map[model.Key]*secretWatch, need model.NeededSecret) *secretWatch {
	w := into[need.Key]
	if w == nil {
		w = &secretWatch{readers: map[string]bool{}, trusted: map[string]bool{}}
	}
	if !need.IsMeshConfig() {
		into[need.Key] = w
	}
	w.keyAsked = w.keyAsked || need.PrivateKey
	return w
}

// addAccounts adds the service accounts of the workloads of a namespace that are selected.
func addAccounts(snap *store.Snapshot, namespace string, selector map[string]string, into map[string]bool) {
	for _, kind := range []model.Kind{model.KindPod, model.KindWorkloadEntry} {
		for o := range snap.All(kind) {
			w, ok := o.(*model.Workload)
			if ok && w.Namespace == namespace && model.SelectorMatches(selector, w.Labels) {
				into[w.Account()] = true
			}
		}
	}
}

// watch begins to watch one Secret.
func (c *Credentials) watch(ctx context.Context, key model.Key) *secretWatch {
	ctx, stop := context.WithCancel(ctx)
	w := &secretWatch{key: key, stop: stop, ended: make(chan struct{})}
	kind := &resource{
		Resource: istioapi.Resource{Kind: string(key.Kind)}, version: "v1", plural: "secrets", example: &corev1.Secret{},
		namespace: key.Namespace, field: "metadata.name=" + key.Name,
	}
	if key.Kind == model.KindConfigMap {
		kind.plural, kind.example = "configmaps", &corev1.ConfigMap{}
	}
	go func() {
		defer close(w.ended)
		lw, err := c.Client.listWatch(kind, func(err error) { c.heard(w, err) })
		if err != nil {
			c.heard(w, err)
			return
		}
		quiet := logr.Discard()
		options := cache.ReflectorOptions{Name: key.String(), TypeDescription: string(key.Kind), Logger: &quiet, Backoff: backoff()}
		cache.NewReflectorWithOptions(lw, kind.example, &secretSink{c, w}, options).RunWithContext(logr.NewContext(ctx, quiet))
	}()
	return w
}

// heard is told how each request went. What was read before stays in force where the API
// server is away, but not where the right to read is.
func (c *Credentials) heard(w *secretWatch, err error) {
	if !apierrors.IsForbidden(err) {
		return
	}
	role := "moonsail-credentials"
	if w.key.Kind == model.KindConfigMap {
		role = "moonsail-authorities"
	}
	w.set(nil, "the control plane may not read it: bind the ClusterRole "+role+" to its service account in namespace "+w.key.Namespace)
	c.poke()
}

func (w *secretWatch) set(s *model.Secret, problem string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.listed, w.secret, w.problem = true, s, problem
}

func (w *secretWatch) get() (s *model.Secret, problem string, known bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.secret, w.problem, w.listed
}

// tell puts a Secret into the intake where it differs from what was told.
func (c *Credentials) tell(ctx context.Context, key model.Key, w *secretWatch) {
	secret, problem, known := w.get()
	if !known {
		return
	}
	now := &model.Secret{Meta: model.Meta{Key: key, Origin: "kubernetes"}}
	switch {
	case problem != "":
		now.Problem, now.CAProblem = problem, problem
	case secret == nil:
		now.Problem, now.CAProblem = model.NoSecret, model.NoSecret
	default:
		*now = *secret
		if !w.keyAsked { // what nobody asks for is not kept
			now.Certificate, now.PrivateKey, now.Login = "", model.PrivateKey{}, model.PrivateKey{}
		}
	}
	now.Readers = c.readers(ctx, key, w)
	if w.told != nil && same(w.told, now) {
		return
	}
	// Who may read it is not part of the API server's version.
	w.serial++
	now.ResourceVersion += "." + strconv.FormatUint(w.serial, 10)
	w.told = now
	c.Intake.Put(store.Event{Key: key, Object: now, Observed: time.Now()})
}

// readers are those service accounts that may read a Secret; never nil.
func (c *Credentials) readers(ctx context.Context, key model.Key, w *secretWatch) []string {
	out := []string{}
	for _, account := range slices.Sorted(maps.Keys(w.readers)) {
		if w.trusted[account] || c.reviews.mayRead(ctx, key, account) {
			out = append(out, account)
		}
	}
	return out
}

func (c *Credentials) forget(key model.Key, w *secretWatch) {
	delete(c.watches, key)
	c.reviews.forget(key)
	w.stop()
	<-w.ended
	if w.told != nil {
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

// settle lets proxies in once the store has the first Secrets, or why there are none.
func (c *Credentials) settle(anyhow bool) {
	select {
	case <-c.settled:
		return
	default:
	}
	if anyhow || time.Since(c.begun) >= settleIn || c.isSettled() {
		close(c.settled)
	}
}

func (c *Credentials) isSettled() bool {
	snap := c.Snapshot()
	for key, w := range c.watches {
		if w.told == nil || !reflect.DeepEqual(snap.Get(key), model.Object(w.told)) {
			return false
		}
	}
	return true
}

// secretSink is where the Reflector of one Secret puts it.
type secretSink struct {
	keeper *Credentials
	watch  *secretWatch
}

func (s *secretSink) take(o any) {
	if m, ok := o.(metav1.Object); !ok || m.GetName() != s.watch.key.Name {
		return
	}
	var decoded *model.Secret
	switch o := o.(type) {
	case *corev1.Secret:
		decoded, _ = s.keeper.Decoder.Secret(o)
	case *corev1.ConfigMap:
		decoded, _ = s.keeper.Decoder.Authorities(o)
	}
	s.watch.set(decoded, "")
	s.keeper.poke()
}

// Add implements cache.ReflectorStore.
func (s *secretSink) Add(o any) error { s.take(o); return nil }

// Update implements cache.ReflectorStore.
func (s *secretSink) Update(o any) error { s.take(o); return nil }

// Delete implements cache.ReflectorStore.
func (s *secretSink) Delete(any) error {
	s.watch.set(nil, "")
	s.keeper.poke()
	return nil
}

// Replace implements cache.ReflectorStore.
func (s *secretSink) Replace(list []any, _ string) error {
	if len(list) == 0 {
		return s.Delete(nil)
	}
	s.take(list[0])
	return nil
}

// Resync implements cache.ReflectorStore; there is nothing to do.
func (s *secretSink) Resync() error { return nil }
