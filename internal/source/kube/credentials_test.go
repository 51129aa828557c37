package kube

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/moonsail/moonsail/internal/config"
	"github.com/moonsail/moonsail/internal/model"
)

func credentialKey(kind model.Kind, name string) model.Key {
	return model.Key{Kind: kind, Namespace: "shop", Name: name}
}

// TestConfigMapsKeepOutNoSecrets checks that references to ConfigMaps displace no watches of Secrets, and that the log names
// once what is left out.
func TestConfigMapsKeepOutNoSecrets(t *testing.T) {
	var log bytes.Buffer
	c := NewCredentials(nil, config.Decoder{}, nil, nil, slog.New(slog.NewTextHandler(&log, nil)))
	wanted := map[model.Key]*secretWatch{credentialKey(model.KindSecret, "web"): {}}
	for i := range maxCredentials + 2 {
		wanted[credentialKey(model.KindConfigMap, fmt.Sprintf("roots-%04d", i))] = &secretWatch{}
	}
	got := c.unwatched(wanted)
	require.Len(t, got, maxCredentials+1)
	require.Contains(t, got, credentialKey(model.KindSecret, "web"))
	require.Contains(t, log.String(), fmt.Sprintf("firstLeftOut=ConfigMap/shop/roots-%04d", maxCredentials))

	for _, key := range got {
		c.watches[key] = &secretWatch{}
	}
	log.Reset()
	wanted[credentialKey(model.KindSecret, "later")] = &secretWatch{}
	require.Equal(t, []model.Key{credentialKey(model.KindSecret, "later")}, c.unwatched(wanted))
	require.Empty(t, log.String(), "it was logged before")
}

// TestNamespaceKeepsOutNoOther checks that references of one namespace, also to Secrets of others, leave room for those of others, and
// that a Secret counts for its own namespace if that refers to it.
func TestNamespaceKeepsOutNoOther(t *testing.T) {
	var log bytes.Buffer
	c := NewCredentials(nil, config.Decoder{}, nil, nil, slog.New(slog.NewTextHandler(&log, nil)))
	wanted := map[model.Key]*secretWatch{}
	for i := range 2 * maxCredentials {
		wantSecret(wanted, "attacker", model.NeededSecret{Key: credentialKey(model.KindSecret, fmt.Sprintf("a-%05d", i))})
	}
	own := []model.Key{credentialKey(model.KindSecret, "a-00007"), credentialKey(model.KindSecret, "zz")}
	for _, key := range own {
		wantSecret(wanted, "shop", model.NeededSecret{Key: key})
		wantSecret(wanted, "attacker", model.NeededSecret{Key: key})
	}
	got := c.unwatched(wanted)
	require.Subset(t, got, own)
	require.Len(t, got, maxOfNamespace+len(own))
	require.Contains(t, log.String(), "namedBy=attacker")
}

// TestMeshConfigIsNoCredential checks that no object can name the mesh's ConfigMap as a credential, which would overwrite it.
func TestMeshConfigIsNoCredential(t *testing.T) {
	wanted := map[model.Key]*secretWatch{}
	for _, name := range []string{model.MeshConfigName, model.MeshConfigName + model.SuffixCA} {
		wantSecret(wanted, "shop", model.NeededSecret{Key: credentialKey(model.KindConfigMap, name)})
	}
	require.Len(t, wanted, 1)
	require.Contains(t, wanted, credentialKey(model.KindConfigMap, "istio-cacert"))
}

// TestForbiddenNamesTheRole checks that messages name the role. The right to ConfigMaps is separate from that to Secrets.
func TestForbiddenNamesTheRole(t *testing.T) {
	c := NewCredentials(nil, config.Decoder{}, nil, nil, slog.New(slog.DiscardHandler))
	for kind, role := range map[model.Kind]string{model.KindSecret: "moonsail-credentials", model.KindConfigMap: "moonsail-authorities"} {
		w := &secretWatch{key: credentialKey(kind, "a")}
		c.record(w, apierrors.NewForbidden(schema.GroupResource{Resource: "a"}, "a", nil))
		_, problem, _ := w.get()
		require.Contains(t, problem, role+" to its service account in namespace shop")
	}
}

// TestAccountsThatAreGoneAreNotReviewed checks that the answer about a removed account is forgotten. Otherwise its review would
// be due for ever.
func TestAccountsThatAreGoneAreNotReviewed(t *testing.T) {
	c := NewCredentials(nil, config.Decoder{}, nil, nil, slog.New(slog.DiscardHandler))
	c.reviews = newReviews(func(context.Context, model.Key, string) (bool, error) { return true, nil }, time.Hour)
	key := credentialKey(model.KindSecret, "web")
	w := &secretWatch{readers: map[string]bool{"gone": true, "trusted": true}}
	c.reviews.renew(t.Context(), []question{{key, "gone"}, {key, "trusted"}})
	require.Equal(t, []string{"gone", "trusted"}, c.readers(key, w))

	w.readers, w.trusted = map[string]bool{"trusted": true}, map[string]bool{"trusted": true}
	require.Equal(t, []string{"trusted"}, c.readers(key, w))
	require.Equal(t, time.Hour, c.reviews.next(time.Now().Add(2*time.Hour)))
}

// TestReviewsRunInParallel checks that a limited number of reviews runs at once, and none of an account whose last answer is
// still valid.
func TestReviewsRunInParallel(t *testing.T) {
	all, asked := make(chan struct{}), make(chan string, 3*maxReviews)
	var begun, running atomic.Int32
	ask := func(_ context.Context, _ model.Key, account string) (bool, error) {
		asked <- account
		assert.LessOrEqual(t, running.Add(1), int32(maxReviews))
		defer running.Add(-1)
		if begun.Add(1) == maxReviews {
			close(all) // this many arrive before the first is answered
		}
		select {
		case <-all:
		case <-time.After(patience):
			assert.Fail(t, "others are not asked about meanwhile")
		}
		if account == "a0" {
			return false, errors.New("away")
		}
		return account != "a1", nil
	}
	r := newReviews(ask, time.Hour)
	key := credentialKey(model.KindSecret, "web")
	var questions []question
	for i := range 2 * maxReviews {
		questions = append(questions, question{key, fmt.Sprintf("a%d", i)})
	}
	r.renew(t.Context(), slices.Clone(questions))
	for _, q := range questions {
		require.Equal(t, q.account != "a0" && q.account != "a1", r.mayRead(key, q.account), q.account)
	}
	require.LessOrEqual(t, r.next(time.Now()), reviewAgain, "an account without an answer")
	require.Len(t, asked, len(questions))
	r.renew(t.Context(), append(questions, question{key, "new"}))
	require.Len(t, asked, len(questions)+1)
}

// TestSlowReviewsDelayNoOtherSecrets checks that a renewal ends although not all reviews have begun, and that the next one
// begins with those that have no answer.
func TestSlowReviewsDelayNoOtherSecrets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := map[string]int{}
		var mu sync.Mutex // guards asked
		r := newReviews(func(_ context.Context, key model.Key, _ string) (bool, error) {
			mu.Lock()
			asked[key.Name]++
			mu.Unlock()
			time.Sleep(reviewTimeout / 2) //nolint:forbidigo // the time is simulated
			return true, nil
		}, time.Minute)
		var questions []question
		for i := range 5 * maxReviews {
			questions = append(questions, question{credentialKey(model.KindSecret, fmt.Sprint(i)), "web"})
		}
		begun := time.Now()
		r.renew(t.Context(), slices.Clone(questions))
		require.Less(t, time.Since(begun), 2*reviewTimeout)
		require.Equal(t, time.Millisecond, r.next(time.Now()), "more are due")
		require.True(t, r.answered(questions[0].key, "web"))
		require.False(t, r.answered(questions[len(questions)-1].key, "web"))
		for range 10 {
			r.renew(t.Context(), slices.Clone(questions))
		}
		for _, q := range questions {
			require.True(t, r.answered(q.key, q.account))
			require.Equal(t, 1, asked[q.key.Name], "answers that apply are not renewed")
		}
		require.Greater(t, r.next(time.Now()), time.Millisecond)
	})
}
