package kube

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/moonsail/moonsail/internal/model"
)

// TestWhenObjectsWereWritten checks the time of an event, from which delays are measured. It is never the time of another
// version's write.
func TestWhenObjectsWereWritten(t *testing.T) {
	now := time.Now().Truncate(time.Second)
	ago := func(d time.Duration) *metav1.Time { return &metav1.Time{Time: now.Add(-d)} }
	const old, last, recent = 72 * time.Hour, time.Hour, 3 * time.Second
	wrote := func(d time.Duration) func(*corev1.Pod) {
		return func(o *corev1.Pod) {
			o.ManagedFields = append(o.ManagedFields, metav1.ManagedFieldsEntry{Manager: d.String(), Time: ago(d)})
		}
	}
	deleted := func(d time.Duration, grace int64) func(*corev1.Pod) {
		return func(o *corev1.Pod) {
			end := metav1.Time{Time: now.Add(time.Duration(grace)*time.Second - d)}
			o.DeletionTimestamp, o.DeletionGracePeriodSeconds = &end, &grace
		}
	}
	const unknown = time.Duration(-1)
	for name, tt := range map[string]struct {
		change func(*corev1.Pod) // from a version of which the newest write was an hour ago
		want   time.Duration     // before now
	}{
		"a write":                               {wrote(recent), recent},
		"a write of what has no owner":          {func(o *corev1.Pod) { o.Labels["version"] = "v2" }, unknown},
		"a graceful deletion":                   {deleted(recent, 30), recent},
		"a deletion with finalizers":            {deleted(recent, 0), recent},
		"a write long after the deletion":       {func(o *corev1.Pod) { deleted(last+time.Minute, 7200)(o); wrote(recent)(o) }, recent},
		"a change of a Pod that is being ended": {func(o *corev1.Pod) { deleted(last, 7200)(o); o.Labels["version"] = "v2" }, unknown},
	} {
		t.Run(name, func(t *testing.T) {
			k, in, c := testSink(t, model.KindPod)
			o := pod("a", "1", "10.0.0.1")
			o.CreationTimestamp = *ago(old)
			wrote(last)(o)
			require.NoError(t, k.Replace([]any{o}, "1"))
			in.Take()
			require.Empty(t, c.delay(DelayObject), "a list measures no delays")
			o = o.DeepCopy()
			o.ResourceVersion, o.Status.PodIP = "2", "10.0.0.2"
			tt.change(o)
			require.NoError(t, k.upsert(o, now))
			events := in.Take()
			require.Len(t, events, 1)
			if tt.want == unknown {
				require.Empty(t, c.delay(DelayObject))
				require.Zero(t, events[0].Committed)
				return
			}
			require.Equal(t, []time.Duration{tt.want}, c.delay(DelayObject))
			require.WithinDuration(t, now.Add(-tt.want), events[0].Committed, 0)
		})
	}
}
