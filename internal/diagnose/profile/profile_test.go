package profile

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/pprof/profile"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/moonsail/moonsail/internal/diagnose/profile/flamegraph"
	"github.com/moonsail/moonsail/internal/sidecar/envoy"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const scripted = `wrk:worker_0    12 
	          4711 [unknown] (/opt/envoy)
	ffffffffa1 tcp_sendmsg ([kernel.kallsyms])
	           891f5 start_thread (/usr/lib/libc.so.6)

my thread 13 
	           891f5 operator new(unsigned long) (/usr/lib/lib c++.so)

envoy 11 
	ffffffffa2 [unknown] ([kernel.kallsyms])

`

func TestScript(t *testing.T) {
	got, err := parseScript(strings.NewReader(scripted))
	require.NoError(t, err)
	require.Equal(t, []Sample{
		{12, "wrk:worker_0", []Frame{{0x4711, "", "/opt/envoy"}, {0xffffffffa1, "tcp_sendmsg", "[kernel.kallsyms]"}, {0x891f5, "start_thread", "/usr/lib/libc.so.6"}}},
		{13, "my thread", []Frame{{0x891f5, "operator new(unsigned long)", "/usr/lib/lib c++.so"}}},
		{11, "envoy", []Frame{{0xffffffffa2, "", "[kernel.kallsyms]"}}},
	}, got)
	for _, text := range []string{"nonsense\n", "a 1\n\tzz sym (dso)\n", "a 1\n\t12 sym\n"} {
		_, err := parseScript(strings.NewReader(text))
		require.ErrorContains(t, err, "perf script, line ", text)
	}
}

// TestFill checks that each sample counts once, under its thread, and that shares are of the whole.
func TestFill(t *testing.T) {
	samples, err := parseScript(strings.NewReader(scripted))
	require.NoError(t, err)
	p := &Profile{PID: 11, Seconds: 10}
	p.fill(samples, newNamer(11, nil),
		map[int]thread{11: {"envoy", time.Second}, 12: {"wrk:worker_0", time.Second}, 14: {"idle", time.Second}},
		map[int]thread{11: {"envoy", time.Second}, 12: {"wrk:worker_0", 6 * time.Second}, 14: {"idle", time.Second}})
	require.EqualValues(t, 3, p.Samples)
	require.InDelta(t, 1.0/3, p.Named, 1e-9)
	require.InDelta(t, 3.0/5, p.Frames, 1e-9)
	var names []string
	var sum int64
	for _, th := range p.Threads {
		names, sum = append(names, th.Name), sum+th.Samples
	}
	require.Equal(t, []string{"wrk:worker_0", "main: envoy", "my thread", "idle"}, names)
	require.Equal(t, p.Samples, sum)
	require.InDelta(t, 0.5, p.Threads[0].CPU, 1e-9)
	require.InDelta(t, -1, p.Threads[2].CPU, 0, "it ended before it was looked at")
	require.Equal(t, []flamegraph.Function{{Name: "envoy" + flamegraph.Unnamed, Self: 1, Total: 1}}, p.Threads[0].Top[:1])
	for _, f := range p.Functions {
		require.NotContains(t, f.Name, "wrk:", "threads are no functions")
	}
}

func TestMaps(t *testing.T) {
	list := parseMaps([]byte(`5586db84a000-5586dd8c7000 r--p 00000000 fe:00 5309244                    /opt/envoy
5586dd8c7000-5586e1a2d000 r-xp 0207d000 fe:00 5309244                    /opt/envoy
7ffd00000000-7ffd00001000 r-xp 00000000 00:00 0                          [vdso]
garbage
`))
	require.Equal(t, []mapping{{0x5586dd8c7000, 0x5586e1a2d000, 0x207d000, "/opt/envoy"}}, list)
	n := newNamer(1, list)
	file, offset := n.place(Frame{Address: 0x5586dd8c7010, Module: "/opt/envoy"})
	require.Equal(t, "/opt/envoy", file)
	require.EqualValues(t, 0x207d010, offset, "perf gave an address in memory")
	_, offset = n.place(Frame{Address: 0x207d010, Module: "/opt/envoy"})
	require.EqualValues(t, 0x207d010, offset, "perf gave an offset of the file")
}

// TestStrippedEnvoy checks that the pinned Envoy, which has no symbols, still has the starts of its
// functions and its classes.
func TestStrippedEnvoy(t *testing.T) {
	binary, err := envoy.Find("")
	require.NoError(t, err)
	p := readProgram(binary.Path)
	require.NotNil(t, p)
	require.Greater(t, len(p.starts), 100_000)
	require.Greater(t, len(p.virtual), 30_000)
	found := map[string]bool{}
	for start, s := range p.virtual {
		found[p.readable(s.class)] = true
		_, name := p.function(p.offset(start))
		require.Equal(t, p.readable(s.class), name[:strings.LastIndex(name, "::v#")])
	}
	for _, class := range []string{"Envoy::Http::ConnectionManagerImpl", "Envoy::Router::Filter", "Envoy::Network::ConnectionImpl"} {
		require.True(t, found[class], class)
	}
	require.Nil(t, readProgram("program_test.go"), "no ELF file")
}

// offset returns the offset of an address in the file.
func (p *program) offset(address uint64) uint64 {
	for i := range p.loads {
		if l := &p.loads[i]; address >= l.Vaddr && address < l.Vaddr+l.Filesz {
			return address - l.Vaddr + l.Off
		}
	}
	return address
}

func TestMangled(t *testing.T) {
	for text, want := range map[string]string{
		"N5Envoy4Http3FooE\x00rest": "N5Envoy4Http3FooE", "*N5Envoy3BarE\x00": "N5Envoy3BarE", "12ServerConfig\x00": "12ServerConfig",
		"Not a name\x00": "", "hello_world\x00": "", "N5\x00": "", "N5Envoy": "",
	} {
		require.Equal(t, want, mangled([]byte(text)), text)
	}
}

func TestFromGo(t *testing.T) {
	f := func(id uint64, name string) *profile.Function { return &profile.Function{ID: id, Name: name} }
	functions := []*profile.Function{f(1, "engine.Run"), f(2, "derive.Apply"), f(3, "inlined"), f(4, "runtime.gcBgMarkWorker")}
	at := func(id uint64, inner ...*profile.Function) *profile.Location {
		l := &profile.Location{ID: id}
		for _, fn := range inner {
			l.Line = append(l.Line, profile.Line{Function: fn})
		}
		return l
	}
	run, apply, gc := at(1, functions[0]), at(2, functions[2], functions[1]), at(3, functions[3])
	g := &profile.Profile{
		SampleType: []*profile.ValueType{{Type: "samples", Unit: "count"}, {Type: "cpu", Unit: "nanoseconds"}},
		PeriodType: &profile.ValueType{Type: "cpu", Unit: "nanoseconds"}, Period: 1e7, DurationNanos: 2e9,
		Function: functions, Location: []*profile.Location{run, apply, gc},
		Sample: []*profile.Sample{
			{Location: []*profile.Location{apply, run}, Value: []int64{30, 3e8}},
			{Location: []*profile.Location{run}, Value: []int64{10, 1e8}},
			{Location: []*profile.Location{gc}, Value: []int64{20, 2e8}},
		},
	}
	var b bytes.Buffer
	require.NoError(t, g.Write(&b))
	p, err := FromGo(b.Bytes())
	require.NoError(t, err)
	require.EqualValues(t, 60, p.Samples)
	require.Equal(t, 100, p.Frequency)
	require.Equal(t, "engine.Run", p.Threads[0].Name)
	require.InDelta(t, 0.2, p.Threads[0].CPU, 1e-9)
	require.Equal(t, []flamegraph.Function{{Name: "inlined", Self: 30, Total: 30}, {Name: "runtime.gcBgMarkWorker", Self: 20, Total: 20},
		{Name: "engine.Run", Self: 10, Total: 40}, {Name: "derive.Apply", Self: 0, Total: 30}}, p.Functions)

	dir := filepath.Join(t.TempDir(), "new", "dir")
	require.NoError(t, p.Save(dir, b.Bytes()))
	folded, err := os.ReadFile(filepath.Join(dir, "stacks.folded"))
	require.NoError(t, err)
	require.Equal(t, "engine.Run 10\nengine.Run;derive.Apply;inlined 30\nruntime.gcBgMarkWorker 20\n", string(folded))
	for _, name := range []string{"profile.svg", "profile.json", "cpu.pprof"} {
		require.FileExists(t, filepath.Join(dir, name))
	}
}

func TestFromGoRefuses(t *testing.T) {
	_, err := FromGo([]byte("no profile"))
	require.ErrorContains(t, err, "CPU profile: ")
	heap := &profile.Profile{SampleType: []*profile.ValueType{{Type: "inuse_space", Unit: "bytes"}}}
	var b bytes.Buffer
	require.NoError(t, heap.Write(&b))
	_, err = FromGo(b.Bytes())
	require.ErrorContains(t, err, "not in counts and nanoseconds")
}
