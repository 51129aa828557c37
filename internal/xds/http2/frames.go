package http2

import (
	"errors"
	"io"

	xhttp2 "golang.org/x/net/http2"
)

// spendBudget takes one frame from the budget of expensive frames.
func (fr *frameReader) spendBudget() error {
	if fr.budget.Add(-1) < 0 {
		return errFlood
	}
	return nil
}

func protocolError() error { return xhttp2.ConnectionError(xhttp2.ErrCodeProtocol) }

// frame processes a frame other than DATA.
func (fr *frameReader) frame(fh xhttp2.FrameHeader) error {
	f, err := fr.framer.ReadFrameForHeader(fh)
	if err != nil {
		return fr.refuseHeaders(fh, err)
	}
	switch f := f.(type) {
	case *xhttp2.MetaHeadersFrame:
		return fr.headers(f)
	case *xhttp2.SettingsFrame:
		return fr.moreSettings(f)
	case *xhttp2.PingFrame:
		return fr.ping(f)
	case *xhttp2.WindowUpdateFrame:
		return fr.windowUpdate(f)
	case *xhttp2.RSTStreamFrame:
		return fr.reset(f)
	case *xhttp2.PriorityFrame:
		if f.StreamDep == f.StreamID {
			return xhttp2.StreamError{StreamID: f.StreamID, Code: xhttp2.ErrCodeProtocol}
		}
	case *xhttp2.PushPromiseFrame:
		return protocolError()
	}
	return fr.spendBudget()
}

// refuseHeaders processes a frame with an error. A stream with malformed headers counts as begun,
// so that later frames of it are not taken for frames of an idle stream.
func (fr *frameReader) refuseHeaders(fh xhttp2.FrameHeader, err error) error {
	if errors.Is(err, io.ErrUnexpectedEOF) && fr.in.err == nil {
		return protocolError() // the content is shorter than the flags require; the peer has not ended the connection
	}
	var se xhttp2.StreamError
	if fh.Type == xhttp2.FrameHeaders && errors.As(err, &se) {
		if fh.StreamID%2 == 0 {
			return protocolError()
		}
		fr.lastID = max(fr.lastID, fh.StreamID)
	}
	return err
}

// streamError resets a stream. It spends the budget of expensive frames.
func (fr *frameReader) streamError(e xhttp2.StreamError) error {
	if err := fr.spendBudget(); err != nil {
		return err
	}
	if st := fr.find(e.StreamID); st != nil {
		fr.resetStream(st, e.Code)
		return nil
	}
	return fr.output.sendControl(func(b []byte) []byte { return appendReset(b, e.StreamID, e.Code) })
}

func (fr *frameReader) moreSettings(f *xhttp2.SettingsFrame) error {
	if f.IsAck() {
		return fr.spendBudget()
	}
	if err := fr.spendBudget(); err != nil {
		return err
	}
	return fr.settings(f)
}

// settings applies the peer's settings in their order, and acknowledges them.
func (fr *frameReader) settings(f *xhttp2.SettingsFrame) error {
	fr.mu.Lock()
	err := f.ForeachSetting(fr.setting)
	fr.mu.Unlock()
	if err != nil {
		return err
	}
	return fr.output.sendControl(func(b []byte) []byte { return appendFrame(b, 0, xhttp2.FrameSettings, xhttp2.FlagSettingsAck, 0) })
}

// setting applies one setting. conn.mu is held.
func (fr *frameReader) setting(s xhttp2.Setting) error {
	if err := s.Valid(); err != nil {
		return err
	}
	switch s.ID {
	case xhttp2.SettingHeaderTableSize:
		fr.output.resized = true
	case xhttp2.SettingMaxFrameSize:
		fr.output.largest = min(int(s.Val), maxFrame)
	case xhttp2.SettingInitialWindowSize:
		grown := int(s.Val) - fr.output.initial
		fr.output.initial = int(s.Val)
		for _, st := range fr.streams {
			if st.window += grown; st.window > maxWindow {
				return xhttp2.ConnectionError(xhttp2.ErrCodeFlowControl)
			}
			fr.output.queue(st)
		}
	}
	return nil
}

func (fr *frameReader) ping(f *xhttp2.PingFrame) error {
	if !f.IsAck() {
		if err := fr.spendBudget(); err != nil {
			return err
		}
		return fr.output.sendControl(func(b []byte) []byte { return appendPing(b, xhttp2.FlagPingAck, f.Data) })
	}
	if f.Data == gracePing {
		return fr.lifetime.lastStream()
	}
	if f.Data == keepPing {
		return nil
	}
	return fr.spendBudget()
}

func (fr *frameReader) windowUpdate(f *xhttp2.WindowUpdateFrame) error {
	if f.StreamID > fr.lastID {
		return protocolError() // the stream is idle
	}
	fr.mu.Lock()
	defer fr.mu.Unlock()
	st := fr.lookup(f.StreamID)
	if f.Increment < smallCredit || f.StreamID != 0 && st == nil {
		if err := fr.spendBudget(); err != nil {
			return err
		}
	}
	if f.StreamID == 0 {
		if fr.output.window += int(f.Increment); fr.output.window > maxWindow {
			return xhttp2.ConnectionError(xhttp2.ErrCodeFlowControl)
		}
		for _, st := range fr.streams {
			fr.output.queue(st)
		}
	} else if st != nil {
		if st.window += int(f.Increment); st.window > maxWindow {
			return xhttp2.StreamError{StreamID: f.StreamID, Code: xhttp2.ErrCodeFlowControl}
		}
		fr.output.queue(st)
	}
	fr.output.pump()
	return nil
}

// reset processes the peer's reset of a stream.
func (fr *frameReader) reset(f *xhttp2.RSTStreamFrame) error {
	if f.StreamID > fr.lastID {
		return protocolError() // the stream is idle
	}
	if err := fr.spendBudget(); err != nil {
		return err
	}
	if st := fr.find(f.StreamID); st != nil {
		fr.drop(st)
		st.end()
	}
	return nil
}
