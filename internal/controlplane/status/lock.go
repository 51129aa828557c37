package status

import (
	"context"
	"log/slog"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// lock is a Lease that says, once, why it cannot be had: client-go's own log is dropped, as
// it says so each time. The elector's goroutine alone uses it.
type lock struct {
	resourcelock.Interface
	log  *slog.Logger
	told string
}

// Get implements resourcelock.Interface.
func (l *lock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	record, raw, err := l.Interface.Get(ctx)
	if err != nil && !apierrors.IsNotFound(err) { // what is not there is made next
		l.tell(ctx, err)
	}
	return record, raw, err
}

// Create implements resourcelock.Interface.
func (l *lock) Create(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	err := l.Interface.Create(ctx, r)
	l.tell(ctx, err)
	return err
}

// Update implements resourcelock.Interface.
func (l *lock) Update(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	err := l.Interface.Update(ctx, r)
	l.tell(ctx, err)
	return err
}

func (l *lock) tell(ctx context.Context, err error) {
	switch {
	case err == nil:
		l.told = ""
	case ctx.Err() == nil && !apierrors.IsConflict(err) && l.told != err.Error():
		l.told = err.Error()
		l.log.Warn("no statuses are written by this control plane: the Lease of who does cannot be had", "lease", l.Describe(), "error", err)
	}
}
