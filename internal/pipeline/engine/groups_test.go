package engine

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/model"
)

// TestGroupsPerIdentity checks the limit of an identity whose proxies differ on each stream. It affects
// neither other identities nor streams that need no new group.
func TestGroupsPerIdentity(t *testing.T) {
	const limit = 5
	e, in, r := start(t, func(o *Options) { o.GroupsPerIdentity = limit })
	in.Put(service("a", 80))
	in.Synced("test")
	<-r
	next := 0
	of := func(account string, i int) *model.Proxy {
		p := proxy("web", "shop")
		next++
		p.Name, p.ServiceAccount, p.Verified = fmt.Sprint("web-", next), account, account != ""
		p.Labels = map[string]string{"app": fmt.Sprint(account, i)} // another inbound group; the outbound one is shared
		return p
	}
	bind := func(p *model.Proxy) (func(), error) {
		_, release, err := e.Bind(context.Background(), p, nil)
		return release, err
	}
	var releases []func()
	for i := range limit - 1 {
		release, err := bind(of("web", i))
		require.NoError(t, err)
		releases = append(releases, release)
	}
	_, err := bind(of("web", limit))
	var many *TooManyGroups
	require.ErrorAs(t, err, &many)
	require.Equal(t, TooManyGroups{"shop", "web", limit}, *many)
	require.Len(t, e.ProxyGroups(context.Background()), limit)

	release, err := bind(of("web", 0))
	require.NoError(t, err, "the group is open")
	releases = append(releases, release)
	for _, account := range []string{"other", ""} { // the second one has no identity
		for i := range limit {
			release, err := bind(of(account, i))
			require.NoError(t, err)
			releases = append(releases, release)
		}
	}

	releases[1]() // its group would stay open for a while
	release, err = bind(of("web", limit))
	require.NoError(t, err)
	releases[1] = release
	_, err = bind(of("web", limit+1))
	require.ErrorAs(t, err, &many)
	for _, release := range releases {
		release()
	}
	release, err = bind(of("web", limit+2))
	require.NoError(t, err)
	release()
}
