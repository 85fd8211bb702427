package wire

import (
	"errors"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// ping is a private request as another package would define it, and its own response.
type ping struct {
	version int16
	text    string
}

func (*ping) Key() int16                 { return PrivateKeyMin + 1 }
func (*ping) MaxVersion() int16          { return 1 }
func (p *ping) SetVersion(v int16)       { p.version = v }
func (p *ping) GetVersion() int16        { return p.version }
func (*ping) IsFlexible() bool           { return true }
func (p *ping) AppendTo(b []byte) []byte { return append(b, p.text...) }
func (p *ping) ReadFrom(b []byte) error {
	p.text = string(b)
	return nil
}
func (*ping) ResponseKind() kmsg.Response { return new(pong) }

type pong struct{ ping }

func (p *pong) RequestKind() kmsg.Request { return new(ping) }

func pingTable(t *testing.T) *Table {
	table, err := NewTable(PrivateAPI{Key: PrivateKeyMin + 1, Name: "Ping", MaxVersion: 1, New: func() kmsg.Request { return new(ping) }})
	if err != nil {
		t.Fatal(err)
	}
	return table
}

func TestPrivateRequests(t *testing.T) {
	table := pingTable(t)
	frame := withClientID("node-1", &ping{version: 1, text: "hello"})
	h, req, err := table.ParseRequest(frame)
	if err != nil || req.(*ping).text != "hello" || h.Version != 1 {
		t.Fatalf("%+v, %v, %v", h, req, err)
	}
	if _, _, err := ParseRequest(frame); !errors.Is(err, ErrUnknownKey) {
		t.Errorf("without the table: %v", err)
	}
	frame[3] = 2
	if _, _, err := table.ParseRequest(frame); !errors.Is(err, ErrUnsupportedVersion) {
		t.Errorf("version 2: %v", err)
	}
	a, ok := table.Lookup(PrivateKeyMin + 1)
	if !ok || !a.Internal || !a.Controller || a.Name != "Ping" || len(table.APIs()) != len(APIs())+1 {
		t.Errorf("row %+v", a)
	}
	if _, _, err := table.ParseRequest(withClientID("c", kmsg.NewPtrMetadataRequest())); err != nil {
		t.Errorf("Kafka's request in the same table: %v", err)
	}
}

func TestPrivateRequestsOverConn(t *testing.T) {
	table := pingTable(t)
	c, p := newPeer(t, ConnConfig{})
	go func() {
		frame, err := ReadFrame(p.r, 1000, nil)
		if err != nil {
			t.Error(err)
			return
		}
		h, req, err := table.ParseRequest(frame)
		if err != nil {
			t.Error(err)
			return
		}
		if _, err := p.nc.Write(AppendResponse(nil, h, &pong{ping{text: req.(*ping).text + " back"}})); err != nil {
			t.Error(err)
		}
	}()
	resp, err := c.RoundTrip(t.Context(), &ping{text: "hello"})
	if err != nil || resp.(*pong).text != "hello back" {
		t.Errorf("%+v, %v", resp, err)
	}
}

func TestNewTableRefuses(t *testing.T) {
	newPing := func() kmsg.Request { return new(ping) }
	for name, apis := range map[string][]PrivateAPI{
		"a key of Kafka's": {{Key: 3, New: newPing}},
		"a key twice":      {{Key: PrivateKeyMin, New: newPing}, {Key: PrivateKeyMin, New: newPing}},
		"no constructor":   {{Key: PrivateKeyMin}},
		"no version":       {{Key: PrivateKeyMin, MaxVersion: -1, New: newPing}},
	} {
		if _, err := NewTable(apis...); err == nil {
			t.Errorf("%s passes", name)
		}
	}
}
