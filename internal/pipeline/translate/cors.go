package translate

import (
	"fmt"
	"strconv"
	"strings"

	corsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/cors/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/moonsail/moonsail/internal/model"
)

func cors(c *model.CORS) (*corsv3.CorsPolicy, error) {
	out := &corsv3.CorsPolicy{
		AllowMethods:  strings.Join(c.AllowMethods, ","),
		AllowHeaders:  strings.Join(c.AllowHeaders, ","),
		ExposeHeaders: strings.Join(c.ExposeHeaders, ","),
	}
	for i := range c.AllowOrigins {
		m, err := stringMatcher(&c.AllowOrigins[i])
		if err != nil {
			return nil, fmt.Errorf("allowOrigins[%d]: %w", i, err)
		}
		if m == nil {
			if m, err = stringMatcher(&model.StringMatch{Kind: model.MatchRegex, Value: ".*"}); err != nil {
				return nil, err
			}
		}
		out.AllowOriginStringMatch = append(out.AllowOriginStringMatch, m)
	}
	if c.MaxAge != nil {
		out.MaxAge = strconv.FormatInt(int64(c.MaxAge.Seconds()), 10)
	}
	if c.AllowCredentials != nil {
		out.AllowCredentials = wrapperspb.Bool(*c.AllowCredentials)
	}
	if c.ForwardUnmatched != nil && !*c.ForwardUnmatched {
		out.ForwardNotMatchingPreflights = no
	}
	return out, nil
}
