package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"runtime"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

func TestEveryAPIHasALayout(t *testing.T) {
	for _, a := range APIs() {
		if _, ok := requestLayouts[a.Key]; !ok && a.Key != int16(kmsg.Produce) {
			t.Errorf("%s: none, run go generate", a.Name)
		}
	}
}

// The layouts agree with kmsg on where each request ends, in every version.
func TestLayoutsMatchKmsg(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 9))
	for _, api := range APIs() {
		l, ok := requestLayouts[api.Key]
		if !ok {
			continue
		}
		for version := api.Min; version <= api.Max; version++ {
			for range 50 {
				req := kmsg.RequestForKey(api.Key)
				fillRandom(reflect.ValueOf(req).Elem(), rng)
				req.SetVersion(version)
				body := req.AppendTo(nil)
				w := layoutWalk{reader: reader{src: body}, version: version, flexible: version >= l.flexibleFrom, budget: 1 << 20}
				w.walk(l.fields)
				if w.bad || len(w.src) > 0 {
					t.Fatalf("%s v%d: bad %v, %d of %d bytes left", api.Name, version, w.bad, len(w.src), len(body))
				}
			}
		}
	}
}

// hostile makes requests of about size bytes whose elements are as small as they can be, one request for each array
// there is at any depth, and one with unknown tagged fields.
func hostile(key, version int16, size int) map[string][]byte {
	out := map[string][]byte{}
	for _, path := range slicePaths(reflect.TypeOf(kmsg.RequestForKey(key)).Elem()) {
		for _, spread := range []bool{false, true} {
			req := kmsg.RequestForKey(key)
			req.SetVersion(version)
			n := size
			for {
				grow(reflect.ValueOf(req).Elem(), path, n, spread)
				if body := req.AppendTo(nil); len(body) <= size || n < 2 {
					out[fmt.Sprint(path, spread)] = body
					break
				}
				n /= 2
			}
		}
	}
	req := kmsg.RequestForKey(key)
	req.SetVersion(version)
	if req.IsFlexible() {
		body := req.AppendTo(nil)
		n := size / 4
		body = binary.AppendUvarint(body[:len(body)-1], uint64(n))
		for i := range n {
			body = append(binary.AppendUvarint(body, uint64(i+100)), 0)
		}
		out["tags"] = body
	}
	return out
}

// slicePaths lists the ways to slices in a message, as field indices.
func slicePaths(t reflect.Type) (paths [][]int) {
	for i := range t.NumField() {
		f := t.Field(i).Type
		if f.Kind() != reflect.Slice || f.Elem().Kind() == reflect.Uint8 {
			continue
		}
		paths = append(paths, []int{i})
		if f.Elem().Kind() == reflect.Struct {
			for _, p := range slicePaths(f.Elem()) {
				paths = append(paths, append([]int{i}, p...))
			}
		}
	}
	return paths
}

// grow puts n elements into the slice at the end of path: in one parent, or one each in n parents.
func grow(v reflect.Value, path []int, n int, spread bool) {
	f := v.Field(path[0])
	count := n
	if len(path) > 1 && !spread {
		count = 1
	}
	f.Set(reflect.MakeSlice(f.Type(), count, count))
	if len(path) > 1 {
		for i := range count {
			if spread {
				grow(f.Index(i), path[1:], 1, true)
			} else {
				grow(f.Index(i), path[1:], n, false)
			}
		}
	}
}

// encodings are the first and last version of the older and of the flexible encoding.
func encodings(api API) (versions []int16) {
	from := min(max(requestLayouts[api.Key].flexibleFrom, api.Min), api.Max)
	versions = []int16{api.Min, from - 1, from, api.Max}
	slices.Sort(versions)
	versions = slices.Compact(versions)
	return slices.DeleteFunc(versions, func(v int16) bool { return !api.Supports(v) })
}

func totalAlloc(fn func()) int {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	fn()
	runtime.ReadMemStats(&after)
	return int(after.TotalAlloc - before.TotalAlloc)
}

// No frame makes the parser allocate more than the stated multiple of its length, whatever key and version.
func TestHostileFramesCostLittleMemory(t *testing.T) {
	skipUnderRace(t)
	worstKmsg, worst := 0.0, 0.0
	for _, api := range APIs() {
		for _, version := range encodings(api) {
			for name, body := range hostile(api.Key, version, 32<<10) {
				req := kmsg.RequestForKey(api.Key)
				req.SetVersion(version)
				plain := totalAlloc(func() { _ = req.ReadFrom(body) })
				worstKmsg = max(worstKmsg, float64(plain)/float64(len(body)))
				frame := append(withClientID("", req)[:headerMin+2:headerMin+2], 0)
				if !req.IsFlexible() {
					frame = frame[:headerMin+2]
				}
				frame = append(frame, body...)
				var err error
				used := totalAlloc(func() { _, _, err = ParseRequest(frame) })
				limit := max(memoryFloor, memoryPerByte*len(frame))
				worst = max(worst, float64(used)/float64(len(frame)))
				if slack := limit/8 + 4096; used > limit+slack {
					t.Errorf("%s v%d %s: %d bytes made %d, limit %d; %v", api.Name, version, name, len(frame), used, limit, err)
				}
			}
		}
	}
	t.Logf("largest multiple: kmsg alone %.0f, ours %.0f", worstKmsg, worst)
	if worstKmsg < memoryPerByte {
		t.Error("the frames are not hostile")
	}
}

func TestProduceWithAnnouncedCountsOnly(t *testing.T) {
	skipUnderRace(t)
	for version := int16(3); version <= 13; version++ {
		frame := withClientID("", produceRequest(version, 1, 1, make([]byte, 64<<10)))
		for i := headerMin + 2; i < 60; i++ {
			for _, huge := range [][]byte{{0x7f, 0xff, 0xff, 0xff}, {0xff, 0xff, 0xff, 0xff, 0x0f}, {0x00, 0x00, 0x40, 0x00}, {0x80, 0x80, 0x02}} {
				bad := append([]byte(nil), frame...)
				copy(bad[i:], huge)
				if used := totalAlloc(func() { _, _, _ = ParseRequest(bad) }); used > 12*len(bad) {
					t.Fatalf("v%d, %x at %d: %d bytes allocated for %d", version, huge, i, used, len(bad))
				}
			}
		}
	}
}

func TestLongRequestsAreRefused(t *testing.T) {
	req := kmsg.NewPtrFetchRequest()
	req.SetVersion(12)
	topic := kmsg.NewFetchRequestTopic()
	topic.Topic = "orders"
	for range 200_000 {
		topic.Partitions = append(topic.Partitions, kmsg.NewFetchRequestTopicPartition())
	}
	req.Topics = append(req.Topics, topic)
	if _, _, err := ParseRequest(withClientID("c", req)); err != nil {
		t.Errorf("200,000 partitions: %v", err)
	}
	req.Topics[0].Partitions = append(topic.Partitions, topic.Partitions...)
	if _, _, err := ParseRequest(withClientID("c", req)); !errors.Is(err, ErrMalformed) {
		t.Errorf("400,000 partitions: %v", err)
	}
}

// What honest clients send in bulk is far from the bound.
func TestHonestRequestsOfManyShortNamesPass(t *testing.T) {
	metadata := kmsg.NewPtrMetadataRequest()
	configs := kmsg.NewPtrDescribeConfigsRequest()
	find := kmsg.NewPtrFindCoordinatorRequest()
	for i := range 10_000 {
		name := fmt.Sprintf("%04d", i)
		metadata.Topics = append(metadata.Topics, kmsg.MetadataRequestTopic{Topic: &name})
		r := kmsg.NewDescribeConfigsRequestResource()
		r.ResourceName = name
		configs.Resources = append(configs.Resources, r)
		find.CoordinatorKeys = append(find.CoordinatorKeys, name)
	}
	for _, req := range []kmsg.Request{metadata, configs, find} {
		api, _ := standard.Lookup(req.Key())
		for version := api.Min; version <= api.Max; version++ {
			req.SetVersion(version)
			if _, _, err := ParseRequest(withClientID("c", req)); err != nil {
				t.Errorf("%s v%d: %v", api.Name, version, err)
			}
		}
	}
}

// BenchmarkParseRequest shows what measuring costs beside decoding.
func BenchmarkParseRequest(b *testing.B) {
	metadata := kmsg.NewPtrMetadataRequest()
	metadata.SetVersion(12)
	for i := range 20 {
		metadata.Topics = append(metadata.Topics, kmsg.MetadataRequestTopic{Topic: kmsg.StringPtr(fmt.Sprintf("topic-%d", i))})
	}
	for name, req := range map[string]kmsg.Request{
		"produce/1": produceRequest(9, 1, 1, make([]byte, 1<<20)), "produce/100": produceRequest(9, 1, 100, make([]byte, 10<<10)), "metadata": metadata,
	} {
		frame := withClientID("client", req)
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, _, err := ParseRequest(frame); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func skipUnderRace(t *testing.T) {
	t.Helper()
	if raceEnabled {
		t.Skip("memory is not measured under the race detector")
	}
}
