package wire_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"cairn/wire"
	"cairn/wire/internal/capture"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

var (
	update      = flag.Bool("update", false, "record testdata/session-kgo.txt anew")
	sessionPort = flag.Int("session-port", 0, "record testdata/session-java.txt on this port, from batch/testdata/Golden.java")
)

// A session file has a line per frame, without length prefix: > for requests, < for responses, then hex.

func writeSession(name string, frames []capture.Frame) error {
	var b bytes.Buffer
	for _, f := range frames {
		direction := "<"
		if f.Request {
			direction = ">"
		}
		fmt.Fprintf(&b, "%s %x\n", direction, f.Bytes)
	}
	return os.WriteFile(filepath.Join("testdata", name), b.Bytes(), 0o644)
}

// TestUpdateSessions records franz-go producing, then consuming, with -update.
func TestUpdateSessions(t *testing.T) {
	if !*update {
		t.Skip("without -update")
	}
	records, err := os.ReadFile("batch/testdata/kgo-gzip.bin")
	if err != nil {
		t.Fatal(err)
	}
	b, err := capture.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b.FetchRecords = records
	err = errors.Join(kgoSession(b.Addr().String()), b.Close())
	if err != nil {
		t.Fatal(err)
	}
	if err := writeSession("session-kgo.txt", b.Frames()); err != nil {
		t.Fatal(err)
	}
}

func kgoSession(addr string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	cl, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.ClientID("golden"), kgo.ConsumeTopics("golden"), kgo.DisableFetchSessions())
	if err != nil {
		return err
	}
	defer cl.Close()
	r := &kgo.Record{Topic: "golden", Key: []byte("key"), Value: []byte("value"), Timestamp: time.UnixMilli(1_700_000_000_000)}
	if err := cl.ProduceSync(ctx, r).FirstErr(); err != nil {
		return err
	}
	fetches := cl.PollFetches(ctx)
	if fetches.NumRecords() == 0 {
		return fmt.Errorf("no records: %v", fetches.Errors())
	}
	return nil
}

// TestUpdateJavaSession records Kafka's producer, with -session-port.
func TestUpdateJavaSession(t *testing.T) {
	if *sessionPort == 0 {
		t.Skip("without -session-port")
	}
	b, err := capture.Listen(fmt.Sprintf("127.0.0.1:%d", *sessionPort))
	if err != nil {
		t.Fatal(err)
	}
	<-b.Produced
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if err := writeSession("session-java.txt", b.Frames()); err != nil {
		t.Fatal(err)
	}
}

func TestGoldenSessions(t *testing.T) {
	paths, err := filepath.Glob("testdata/session-*.txt")
	if err != nil || len(paths) < 2 {
		t.Fatalf("sessions: %v, %v", paths, err)
	}
	for _, path := range paths {
		t.Run(filepath.Base(path), func(t *testing.T) { replay(t, path) })
	}
}

// replay parses each frame of a session and encodes it again, which must give the same bytes.
func replay(t *testing.T, path string) {
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	open := map[int32]wire.Header{} // requests by correlation id; the sessions use none twice at a time
	seen := map[int16]int{}
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 4<<20)
	for lines.Scan() {
		direction, text, _ := strings.Cut(lines.Text(), " ")
		frame, err := hex.DecodeString(text)
		if err != nil {
			t.Fatal(err)
		}
		id := int32(binary.BigEndian.Uint32(frame))
		if direction == "<" {
			h, ok := open[id]
			if !ok {
				t.Fatalf("response to no request: %x", frame)
			}
			checkResponse(t, h, frame)
			continue
		}
		h, req, err := wire.ParseRequest(frame)
		if errors.Is(err, wire.ErrUnsupportedVersion) && h.Key == int16(kmsg.ApiVersions) {
			open[h.CorrelationID] = h
			continue
		}
		if err != nil {
			t.Fatalf("%+v: %v", h, err)
		}
		open[h.CorrelationID] = h
		seen[h.Key]++
		again := kmsg.NewRequestFormatter(kmsg.FormatterClientID(h.ClientID)).AppendRequest(nil, req, h.CorrelationID)[4:]
		if !bytes.Equal(again, frame) {
			t.Errorf("%+v:\n%x\nwas\n%x", h, again, frame)
		}
	}
	if lines.Err() != nil || seen[int16(kmsg.Produce)] == 0 || seen[int16(kmsg.Metadata)] == 0 {
		t.Errorf("requests by key: %v, %v", seen, lines.Err())
	}
}

func checkResponse(t *testing.T, h wire.Header, frame []byte) {
	t.Helper()
	resp := kmsg.ResponseForKey(h.Key)
	resp.SetVersion(h.Version)
	body := frame[4:]
	if h.Key == int16(kmsg.ApiVersions) {
		if a := apiOf(t, h.Key); !a.Supports(h.Version) {
			resp.SetVersion(0)
		}
	} else if resp.IsFlexible() {
		body = body[1:]
	}
	if err := resp.ReadFrom(body); err != nil {
		t.Fatalf("response to %+v: %v", h, err)
	}
	if again := wire.AppendResponse(nil, h, resp)[4:]; !bytes.Equal(again, frame) {
		t.Errorf("response to %+v:\n%x\nwas\n%x", h, again, frame)
	}
}

func apiOf(t *testing.T, key int16) wire.API {
	t.Helper()
	for _, a := range wire.APIs() {
		if a.Key == key {
			return a
		}
	}
	t.Fatalf("no API %d", key)
	return wire.API{}
}
