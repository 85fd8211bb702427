package txn

import (
	"bytes"
	"encoding/hex"
	"reflect"
	"testing"

	"cairn/broker/coordinator"
)

// The bytes are those that Kafka 4.3 writes for the same values, but for the tag of our own (904e is 10000).
func TestRecordBytes(t *testing.T) {
	tx := Transaction{
		State: Ongoing, ProducerID: 0x1122, Epoch: 3, LastEpoch: noEpoch, PreviousProducerID: 0x1122, NextProducerID: noProducerID,
		TimeoutMs: 60000, Partitions: []Partition{a0, a1, b0}, StartMs: 0x0101, UpdateMs: 0x0202, ClientVersion: Version2,
	}
	rotating := tx
	rotating.State, rotating.NextProducerID, rotating.LastEpoch = PrepareCommit, 0x33, 2
	fresh := Transaction{
		State: Empty, ProducerID: 7, Epoch: 0, LastEpoch: noEpoch, PreviousProducerID: 7, NextProducerID: noProducerID, TimeoutMs: 1,
		StartMs: -1, UpdateMs: 5,
	}
	tests := []struct {
		name  string
		tx    Transaction
		level int16
		want  string
	}{
		{"version 0", tx, Version0, "0000" + "0000000000001122" + "0003" + "0000ea60" + "01" +
			"00000002" + "000161" + "00000002" + "00000000" + "00000001" + "000162" + "00000001" + "00000000" +
			"0000000000000202" + "0000000000000101"},
		{"version 1", tx, Version2, "0001" + "0000000000001122" + "0003" + "0000ea60" + "01" +
			"03" + "0261" + "03" + "00000000" + "00000001" + "00" + "0262" + "02" + "00000000" + "00" +
			"0000000000000202" + "0000000000000101" + "02" + "0008" + "0000000000001122" + "0202" + "0002"},
		{"the next producer id", rotating, Version2, "0001" + "0000000000001122" + "0003" + "0000ea60" + "02" +
			"03" + "0261" + "03" + "00000000" + "00000001" + "00" + "0262" + "02" + "00000000" + "00" +
			"0000000000000202" + "0000000000000101" + "04" + "0008" + "0000000000001122" + "0108" + "0000000000000033" + "0202" + "0002" +
			"904e" + "02" + "0002"},
		{"empty, version 0", fresh, Version0, "0000" + "0000000000000007" + "0000" + "00000001" + "00" + "ffffffff" +
			"0000000000000005" + "ffffffffffffffff"},
		{"empty, version 1", fresh, Version1, "0001" + "0000000000000007" + "0000" + "00000001" + "00" + "00" +
			"0000000000000005" + "ffffffffffffffff" + "01" + "0008" + "0000000000000007"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := encode("id", &tt.tx, tt.level)
			if got := hex.EncodeToString(r.Key); got != "0000"+"0002"+"6964" {
				t.Errorf("key %s", got)
			}
			if got := hex.EncodeToString(r.Value); got != tt.want {
				t.Errorf("value\n%s, want\n%s", got, tt.want)
			}
			back, err := decodeValue(r.Value)
			want := tt.tx
			if tt.level == Version0 { // has no tags
				want.PreviousProducerID, want.NextProducerID, want.LastEpoch, want.ClientVersion = -1, -1, -1, 0
			}
			if err != nil || !reflect.DeepEqual(back, want) {
				t.Errorf("read back as %+v, %v, want %+v", back, err, want)
			}
		})
	}
}

func TestBadRecordsAreErrors(t *testing.T) {
	m := newHost(t, Version2).m
	good := encode("id", &Transaction{State: Ongoing, NextProducerID: -1, PreviousProducerID: -1, LastEpoch: -1}, Version1)
	for name, r := range map[string]coordinator.Record{
		"no key":           {Value: good.Value},
		"key version":      {Key: []byte{0, 9, 0, 1, 'x'}, Value: good.Value},
		"short key":        {Key: good.Key[:4], Value: good.Value},
		"empty value":      {Key: good.Key, Value: []byte{}},
		"value version":    {Key: good.Key, Value: append([]byte{0, 2}, good.Value[2:]...)},
		"short value":      {Key: good.Key, Value: good.Value[:20]},
		"state that is no": {Key: good.Key, Value: bytes.Replace(good.Value, []byte{0, 0, 0, 0, 1}, []byte{0, 0, 0, 0, 6}, 1)},
	} {
		if err := m.Replay(coordinator.Meta{}, r); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
	if m.Len() != 0 {
		t.Errorf("%d ids", m.Len())
	}
}

func FuzzReplay(f *testing.F) {
	tx := Transaction{State: PrepareAbort, ProducerID: 7, NextProducerID: 9, LastEpoch: 4, Partitions: []Partition{a0, b0}, ClientVersion: 2}
	for _, level := range []int16{Version0, Version1} {
		r := encode("id", &tx, level)
		f.Add(r.Key, r.Value)
	}
	f.Add([]byte{0, 0, 0, 1, 'x'}, []byte(nil))
	f.Fuzz(func(t *testing.T, key, value []byte) {
		h := newHost(t, Version2)
		if h.m.Replay(coordinator.Meta{}, coordinator.Record{Key: key, Value: value}) != nil {
			return
		}
		name, err := decodeKey(key)
		if err != nil {
			t.Fatal(err)
		}
		got, known := h.m.Get(name)
		if known == (value == nil) {
			t.Fatalf("known %v, value %v", known, value)
		}
		if !known {
			return
		}
		again := encode(name, &got, Version2)
		back, err := decodeValue(again.Value)
		if got.State == Empty {
			got.Partitions = nil
		}
		if err != nil || !reflect.DeepEqual(got, back) {
			t.Fatalf("%+v comes back as %+v, %v", got, back, err)
		}
	})
}
