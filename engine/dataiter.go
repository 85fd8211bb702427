package engine

import (
	"bytes"

	"github.com/cockroachdb/pebble/v2"

	"cairn/internal/ids"
)

// dataIter finds data rows by base offset, cheaply when they are asked for in order.
type dataIter struct {
	it     *pebble.Iterator
	placed bool
	key    []byte
}

// seek stands on the row at base; false when there is none.
func (d *dataIter) seek(p ids.PartitionID, base ids.Offset) (bool, error) {
	d.key = appendDataKey(d.key[:0], p, base)
	if d.placed && d.it.Next() && bytes.Equal(d.it.Key(), d.key) {
		return true, nil
	}
	d.placed = d.it.SeekGE(d.key)
	if !d.placed {
		return false, d.it.Error()
	}
	return bytes.Equal(d.it.Key(), d.key), nil
}
