package assignor

import (
	"fmt"
	"testing"

	"cairn/internal/ids"
)

// large is 1,000 members over 10,000 partitions of 100 topics; when mixed, each member leaves out one topic.
func large(mixed bool) Group {
	g := Group{Topics: map[ids.UUID]int32{}}
	for i := range 100 {
		g.Topics[topicID(i)] = 100
	}
	for i := range 1000 {
		m := Member{ID: fmt.Sprintf("member-%04d", i)}
		for n := range 100 {
			if !mixed || n != i%100 {
				m.Topics = append(m.Topics, topicID(n))
			}
		}
		g.Members = append(g.Members, m)
	}
	return g
}

func BenchmarkAssign1000x10000(b *testing.B) {
	for _, c := range []struct {
		name  string
		mixed bool
	}{{Uniform, false}, {Uniform, true}, {Range, false}} {
		assign, _ := Lookup(c.name)
		g := large(c.mixed)
		follow(&g, assign(g))
		g.Members = g.Members[1:] // one has left
		b.Run(fmt.Sprintf("%s/mixed=%v", c.name, c.mixed), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				assign(g)
			}
		})
	}
}
