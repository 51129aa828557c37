package throughput

import "github.com/moonsail/moonsail/internal/lab/pair"

// slow is a filter that takes time with each request: a defect that a report must show.
var slow = pair.BeforeRouter("slow", "slow", `        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.http.lua.v3.Lua
          default_source_code:
            inline_string: |
              function envoy_on_request(handle)
                local n = 0
                for i = 1, 200000 do n = n + i % 7 end
                handle:headers():add("x-slow", tostring(n))
              end`)
