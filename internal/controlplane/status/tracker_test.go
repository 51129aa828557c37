package status

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/config/problem"
	"github.com/moonsail/moonsail/internal/diagnose/explain"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/store"
	"github.com/moonsail/moonsail/internal/source/kube"
)

// see gives the Tracker a version of an object.
func see(b *Tracker, generation int64, status string, problems ...problem.Problem) {
	s := &kube.Seen{Key: key("web"), Resource: virtualServices, Version: fmt.Sprint(generation), Generation: generation, Problems: problems}
	if status != "" {
		s.Status = json.RawMessage(status)
	}
	b.Seen(s)
}

func problemOf(s problem.Severity, text string) problem.Problem {
	return problem.Problem{Severity: s, Object: key("web"), Message: text}
}

// planned returns the reason that an object's status should have; empty: it stays as it is.
func planned(t *testing.T, b *Tracker) string {
	t.Helper()
	u, err := b.update(key("web"), time.Unix(0, 0))
	require.NoError(t, err)
	if u == nil {
		return ""
	}
	var p struct{ Status json.RawMessage }
	require.NoError(t, json.Unmarshal(u.patch, &p))
	c := parse(p.Status)
	return c.reconciled()["reason"].(string)
}

func TestWhatAStatusShouldSay(t *testing.T) {
	const ours = `{"conditions":[{"type":"Reconciled","status":"True","reason":"Accepted","message":"","observedGeneration":1}]}`
	const refused = `{"conditions":[{"type":"Reconciled","status":"False","reason":"RefusedByProxies","message":"m","observedGeneration":1}]}`
	bad, warning, info := problemOf(problem.SeverityError, "bad"), problemOf(problem.SeverityWarning, "odd"), problemOf(problem.SeverityInfo, "so so")
	tests := []struct {
		name string
		do   func(*Tracker)
		want string
	}{
		{"correct, without a status", func(b *Tracker) { see(b, 1, "") }, ""},
		{"fine, with conditions of others only", func(b *Tracker) { see(b, 1, `{"conditions":[{"type":"Other"}]}`) }, ""},
		{"an info", func(b *Tracker) { see(b, 1, "", info) }, ""},
		{"an error", func(b *Tracker) { see(b, 1, "", warning, bad) }, ReasonInvalid},
		{"a warning", func(b *Tracker) { see(b, 1, "", warning) }, ReasonWarnings},
		{"fine, with that status", func(b *Tracker) { see(b, 1, ours) }, ""},
		{"fine, with the status of an earlier generation", func(b *Tracker) { see(b, 2, ours) }, ReasonAccepted},
		{"it does not fit", func(b *Tracker) {
			see(b, 1, "")
			b.setCrossChecks(map[model.Key]problem.List{key("web"): {bad}})
		}, ReasonWarnings},
		{"it fits again", func(b *Tracker) {
			see(b, 1, "")
			b.setCrossChecks(map[model.Key]problem.List{key("web"): {bad}})
			b.setCrossChecks(nil)
		}, ""},
		{"refused", func(b *Tracker) {
			see(b, 1, "")
			b.setRefused(map[model.Key]refusal{key("web"): {what: "CDS x", message: "no", proxies: 2}})
		}, ReasonRefused},
		{"refused, and its next generation is invalid", func(b *Tracker) {
			see(b, 1, "", bad)
			b.setRefused(map[model.Key]refusal{key("web"): {what: "CDS x", message: "no", proxies: 2}})
		}, ReasonInvalid},
		{"was refused, and it is unknown whether it is accepted", func(b *Tracker) { see(b, 2, refused) }, ""},
		{"was refused, and is accepted", func(b *Tracker) {
			see(b, 2, refused)
			b.accept(key("web"))
		}, ReasonAccepted},
		{"was accepted, and is changed again", func(b *Tracker) {
			see(b, 2, refused)
			b.accept(key("web"))
			see(b, 3, refused)
		}, ""},
		{"was refused, and is invalid now", func(b *Tracker) { see(b, 2, refused, bad) }, ReasonInvalid},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := NewTracker()
			tt.do(b)
			require.Equal(t, tt.want, planned(t, b))
			_, queued := b.pop()
			require.Equal(t, tt.want != "", queued)
		})
	}
}

func TestDoubtfulAreThoseThatWereRefused(t *testing.T) {
	b := NewTracker()
	see(b, 2, `{"conditions":[{"type":"Reconciled","status":"False","reason":"RefusedByProxies","observedGeneration":1}]}`)
	require.Equal(t, []doubtful{{key("web"), true}}, b.doubtful())
	b.setRefused(map[model.Key]refusal{key("web"): {what: "CDS x", proxies: 1}})
	require.Empty(t, b.doubtful())
	b.setRefused(nil)
	b.accept(key("web"))
	require.Empty(t, b.doubtful())
}

func TestQueueIsBoundedByObjects(t *testing.T) {
	b := NewTracker()
	for range 100 {
		see(b, 1, "", problemOf(problem.SeverityError, "bad"))
		b.Gone(key("web"))
	}
	require.Zero(t, b.Queued(), "objects that are gone leave the queue")
	_, ok := b.pop()
	require.False(t, ok)
}

func TestMessagesAreBounded(t *testing.T) {
	var f facts
	for range 100 {
		f.problems = append(f.problems, problemOf(problem.SeverityError, strings.Repeat("ä", 100)))
	}
	v := f.judge()
	require.Len(t, v.messages, maxMessages)
	require.LessOrEqual(t, len(v.message), maxText)
	require.True(t, strings.HasSuffix(v.message, " ..."))
	require.Equal(t, v.message, strings.ToValidUTF8(v.message, "?"))
}

// TestStatusNamesWhatIsInForce checks that the status says what is in force, beside the errors.
func TestStatusNamesWhatIsInForce(t *testing.T) {
	invalid := problem.List{problemOf(problem.SeverityError, "bad")}
	for want, f := range map[string]facts{
		"not used\n": {problems: invalid},
		"not used; its last valid version stays in force\n": {problems: invalid, inForce: true},
		"used in part\n": {problems: invalid, partial: true},
	} {
		v := f.judge()
		require.Equal(t, ReasonInvalid, v.reason)
		require.True(t, strings.HasPrefix(v.message, want), v.message)
	}
}

func TestTransitionTimeIsKeptWhileTheStatusIs(t *testing.T) {
	have := parse(json.RawMessage(`{"conditions":[{"type":"Reconciled","status":"False","lastTransitionTime":"2020-01-01T00:00:00Z"}]}`))
	for _, ok := range []bool{false, true} {
		status := map[string]any{}
		have.judged(status, &verdict{ok: ok}, 1, time.Unix(0, 0))
		require.Equal(t, !ok, strings.Contains(fmt.Sprint(status), "2020-01-01T00:00:00Z"))
	}
}

func TestRefusalsOfOneObjectAreJoined(t *testing.T) {
	a, b := refusal{what: "CDS a", message: "no", proxies: 1}, refusal{what: "CDS b", message: "never", proxies: 3}
	want := refusal{what: "CDS a", message: "no", proxies: 3, others: 1}
	require.Equal(t, want, joined(joined(refusal{}, a), b))
	require.Equal(t, want, joined(joined(refusal{}, b), a))
	require.Equal(t, "3 proxies refuse CDS a and 1 more, and their last accepted version stays in force: no", want.String())
	for r, says := range map[refusal]string{
		{doubt: true}:                           " (this object may be the cause)",
		{doubt: true, mesh: true}:               " (this object may be the cause, or the mesh's configuration)",
		{doubt: true, changed: true, shared: 2}: " (this object was changed since their last accepted version, and may be the cause, or one of 2 others)",
	} {
		require.Equal(t, says, r.doubts())
	}
}

// TestRefusalsOfSeveralControlPlanes checks that one resource counts once with the proxies of all, and that
// refusals of another form of the object do not count.
func TestRefusalsOfSeveralControlPlanes(t *testing.T) {
	st := store.New()
	o := &model.VirtualService{Meta: model.Meta{Key: key("web"), ResourceVersion: "1"}}
	snap, _ := st.Apply([]store.Event{{Key: o.Key, Object: o}})
	all := map[model.Key]refusal{o.Key: {what: "RDS 80", message: "no", proxies: 2}}
	r := &report{Refused: []refusedObject{{Object: o.Key, Content: explain.Content(o), What: "RDS 80", Message: "never", Proxies: 3}}}
	r.add(all, snap)
	require.Equal(t, refusal{what: "RDS 80", message: "never", proxies: 5}, all[o.Key])
	r.Refused[0].What = "CDS a"
	r.add(all, snap)
	require.Equal(t, refusal{what: "CDS a", message: "never", proxies: 5, others: 1}, all[o.Key])
	r.Refused[0].Content = "other"
	r.add(all, snap)
	require.Equal(t, 5, all[o.Key].proxies)

	c := &checker{}
	here := objectState{Content: "x", Known: true, Counts: explain.Counts{Acked: 1}, Concerned: 1}
	there := here
	require.True(t, c.accepted(doubtful{}, []objectState{here, there}))
	there.Counts.Refused = 1
	require.False(t, c.accepted(doubtful{}, []objectState{here, there}))
	there = here
	there.Content = "y"
	require.False(t, c.accepted(doubtful{}, []objectState{here, there}), "it has not seen what this one has")
	require.False(t, c.accepted(doubtful{}, []objectState{here, {Content: "x"}}))
	none := objectState{Content: "x", Known: true}
	require.False(t, c.accepted(doubtful{}, []objectState{none, none}))
	require.True(t, c.accepted(doubtful{changed: true}, []objectState{none, none}))
	there = here
	there.Counts.Behind = 1
	require.False(t, c.accepted(doubtful{}, []objectState{here, there}))
	there.AgeMillis = answerWithin.Milliseconds()
	require.True(t, c.accepted(doubtful{}, []objectState{here, there}))
}
