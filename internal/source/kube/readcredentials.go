package kube

import (
	"context"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/moonsail/moonsail/internal/config"
	"github.com/moonsail/moonsail/internal/config/code"
	"github.com/moonsail/moonsail/internal/config/problem"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/store"
)

// ReadCredentials adds the Secrets, and ConfigMaps with CAs, that a cluster's objects refer to, without their keys. An
// object without permission is reported, and counts as valid.
func (c *Client) ReadCredentials(ctx context.Context, d config.Decoder, o *Content) error {
	snap := snapshotOf(o.Objects)
	wanted := wantedIn(snap)
	get, err := c.credentialReader(d)
	if err != nil {
		return err
	}
	ask, err := c.accessReviews()
	if err != nil {
		return err
	}
	for _, key := range slices.SortedFunc(maps.Keys(wanted), model.Key.Compare) {
		if snap.Get(key) != nil {
			continue
		}
		secret, err := get(ctx, key)
		switch {
		case apierrors.IsForbidden(err):
			o.Problems = append(o.Problems, problem.Problem{
				Object: key, Severity: problem.SeverityInfo, Code: code.SecretUnusable, Message: "is not read: " + err.Error(),
			})
		case err != nil:
			return err
		}
		secret.Readers = []string{} // not nil, which means all
		for _, account := range slices.Sorted(maps.Keys(wanted[key].readers)) {
			if wanted[key].trusted[account] {
				secret.Readers = append(secret.Readers, account)
			} else if may, err := ask(ctx, key, account); may || err != nil {
				secret.Readers = append(secret.Readers, account)
			}
		}
		o.Objects = append(o.Objects, secret)
	}
	return nil
}

func snapshotOf(objects []model.Object) *store.Snapshot {
	events := make([]store.Event, 0, len(objects))
	for _, o := range objects {
		events = append(events, store.Event{Key: o.Metadata().Key, Object: o})
	}
	snap, _ := store.New().Apply(events)
	return snap
}

// credentialReader returns a function that reads a Secret, or a ConfigMap with CAs.
func (c *Client) credentialReader(d config.Decoder) (func(context.Context, model.Key) (*model.Secret, error), error) {
	secrets, err := c.secrets()
	if err != nil {
		return nil, err
	}
	configMaps, err := c.configMaps()
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, key model.Key) (*model.Secret, error) {
		var out *model.Secret
		var err error
		if key.Kind == model.KindConfigMap {
			var found *corev1.ConfigMap
			if found, err = configMaps.Get(ctx, key.Namespace, key.Name); err == nil {
				out, _ = d.Authorities(found)
			}
		} else {
			var found *corev1.Secret
			if found, err = secrets.Get(ctx, key.Namespace, key.Name); err == nil {
				out, _ = d.Secret(found)
			}
		}
		none := &model.Secret{Meta: model.Meta{Key: key, Origin: "kubernetes"}}
		switch {
		case apierrors.IsNotFound(err) || err == nil && out == nil:
			none.Problem, none.CAProblem = model.NoSecret, model.NoSecret
			return none, nil
		case err != nil:
			return none, err
		}
		out.PrivateKey, out.Login = model.PrivateKey{}, model.PrivateKey{}
		return out, nil
	}, nil
}
