package http2

import "time"

// What peers are told of, and held to.
const (
	streamWindow  = 256 << 10 // bytes that a peer may send on a stream before they were taken
	connWindow    = 1 << 20   // the same for a connection
	maxFrame      = 16 << 10  // of a frame's payload, both ways: what every peer takes
	maxStreams    = 100       // open at the same time on a connection
	maxHeaderList = 64 << 10  // as HTTP/2 counts: names, values and 32 for each
	maxBlock      = 4 * maxHeaderList
	firstWindow   = 65535 // of HTTP/2, before anything is agreed on
	maxWindow     = 1<<31 - 1
)

// What strangers are held to: peers that have not shown who they are, where that matters.
const (
	strangerStreams = 10      // open at the same time on a connection
	strangerMessage = 1 << 20 // bytes of messages that are unfinished or kept, on all of a connection's streams
)

// A connection has a budget of frames that cost us more than its peer: pings, settings,
// resets, empty DATA, new streams, small credits. It is a rate, so that those of years of
// keep-alive do not add up.
const (
	budgetMost   = 1000 // saved up at most
	budgetRefill = 200  // a second
	smallCredit  = 512  // bytes: a WINDOW_UPDATE below that is one of them
	maxControl   = 64 << 10
)

// Bounds in time.
const (
	defaultHandshake   = 10 * time.Second // until TLS, preface and settings are there
	defaultKeepalive   = 30 * time.Second // without a byte, until a ping
	defaultPingTimeout = 20 * time.Second // without a byte after it, until the end
	defaultFrameTime   = 20 * time.Second // for a header block, or another frame that is no DATA
	refusedTime        = 10 * time.Second // for the rest of a request that was refused
	lingerTime         = time.Second      // to take what the peer sent before it learned of the end
	lingerBytes        = 1 << 20
	defaultTick        = time.Second
	sweep              = 4 // ticks, in which each connection is looked at closely once
	defaultMaxMessage  = 32 << 20
)
