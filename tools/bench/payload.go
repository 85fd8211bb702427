package bench

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
)

// payloadPool is how many random bytes the values of one worker are cut from.
const payloadPool = 256 << 10

// payloadFileMax bounds a payload file, which is held in memory.
const payloadFileMax = 1 << 30

// payload makes the values of records. next returns value number i, which stays unchanged; it is for one goroutine.
type payload struct {
	next func(i int64) []byte
	max  int // bytes of the largest value
}

// payload prepares the values as the options say. Each worker has its own.
func (o ProduceOptions) payload(seed uint64) (payload, error) {
	switch {
	case o.PayloadMonotonic:
		return payload{next: func(i int64) []byte { return strconv.AppendInt(nil, i, 10) }, max: 20}, nil
	case o.PayloadFile != "":
		return o.filePayload(seed)
	default:
		return randomPayload(o.RecordSize, seed), nil
	}
}

// randomPayload cuts values of size letters from a pool, one after the other, so that making them costs next to nothing; once through, it begins
// anew at another place.
func randomPayload(size int, seed uint64) payload {
	rnd := rand.New(rand.NewPCG(seed, uint64(size)))
	pool := make([]byte, size+payloadPool)
	for i := range pool {
		pool[i] = byte('A' + rnd.IntN(26))
	}
	at := 0
	return payload{max: size, next: func(int64) []byte {
		if at+size > len(pool) {
			at = rnd.IntN(min(size, payloadPool))
		}
		value := pool[at : at+size : at+size]
		at += size
		return value
	}}
}

// filePayload picks parts of the file at random, as Kafka's tool does.
func (o ProduceOptions) filePayload(seed uint64) (payload, error) {
	info, err := os.Stat(o.PayloadFile)
	if err != nil {
		return payload{}, err
	}
	if info.Size() > payloadFileMax {
		return payload{}, fmt.Errorf("payload file %s has %d bytes; at most %d are held in memory", o.PayloadFile, info.Size(), payloadFileMax)
	}
	text, err := os.ReadFile(o.PayloadFile)
	if err != nil {
		return payload{}, err
	}
	delimiter := strings.NewReplacer(`\n`, "\n", `\t`, "\t").Replace(o.PayloadDelimiter)
	if delimiter == "" {
		return payload{}, errors.New("--payload-delimiter is empty")
	}
	var parts [][]byte
	longest := 0
	for part := range bytes.SplitSeq(text, []byte(delimiter)) {
		if len(part) > 0 {
			parts, longest = append(parts, part), max(longest, len(part))
		}
	}
	if len(parts) == 0 {
		return payload{}, fmt.Errorf("payload file %s is empty", o.PayloadFile)
	}
	rnd := rand.New(rand.NewPCG(seed, 1))
	return payload{max: longest, next: func(int64) []byte { return parts[rnd.IntN(len(parts))] }}, nil
}
