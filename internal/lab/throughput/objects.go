package throughput

import "github.com/moonsail/moonsail/internal/lab/pair"

// slow is a filter that spends some 10 ms of CPU time on each request, a defect that a report must show: load on the
// machine during a phase of a fifth of a second does not hide it.
var slow = pair.BeforeRouter("slow", "slow", `        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.http.lua.v3.Lua
          default_source_code:
            inline_string: |
              function envoy_on_request(handle)
                local n = 0
                for i = 1, 2000000 do n = n + i % 7 end
                handle:headers():add("x-slow", tostring(n))
              end`)
