//go:build cairn_faults

package faults

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// lookEvery is the time between two looks at the file.
const lookEvery = 10 * time.Millisecond

// book is what this process has been ordered.
type book struct {
	file   string
	orders atomic.Pointer[Orders]
	left   atomic.Int64 // of Orders.Disk.LeftBytes
	hits   atomic.Int64
}

// taken is the book of this process, which is opened by the first question.
var taken = sync.OnceValue(func() *book { return open(os.Getenv(Env)) })

// open takes the orders of the file to the end of the process.
func open(file string) *book {
	b := &book{file: file}
	b.orders.Store(&Orders{})
	if b.file == "" {
		return b
	}
	b.look()
	if err := os.WriteFile(TakenFile(b.file), nil, 0o600); err != nil {
		panic("faults: " + err.Error())
	}
	go func() {
		for range time.Tick(lookEvery) {
			b.look()
		}
	}()
	return b
}

// read returns what the file orders; no file orders nothing.
func read(file string) (o Orders, err error) {
	text, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) {
		return o, nil
	}
	if err != nil {
		return o, err
	}
	return o, json.Unmarshal(text, &o)
}

// look takes the orders that the file has now.
func (b *book) look() {
	o, err := read(b.file)
	if err != nil {
		panic(fmt.Sprintf("faults: orders in %s: %v", b.file, err))
	}
	if before := b.orders.Load(); o.Disk.Full && !before.Disk.Full {
		b.left.Store(o.Disk.LeftBytes)
	}
	b.orders.Store(&o)
}

// Clock is by how much the wall clock is wrong.
func Clock() time.Duration { return time.Duration(taken().orders.Load().ClockMs) * time.Millisecond }

// Write is asked before so many bytes are written to the file: how many of them can be, and the error of the rest. It takes its time.
func Write(name string, bytes int) (can int, err error) { return taken().write(name, bytes) }

func (b *book) write(name string, bytes int) (can int, err error) {
	d := b.orders.Load().Disk
	wait(d)
	switch {
	case d.Fail == FailWrite:
		return 0, b.fail("write", name)
	case !d.Full:
		return bytes, nil
	}
	if left := b.left.Add(-int64(bytes)); left >= 0 {
		return bytes, nil
	}
	can = max(0, bytes+int(b.left.Swap(0)))
	return min(can, bytes), syscall.ENOSPC
}

// Sync is asked before a file is synced. It takes its time.
func Sync(name string) error { return taken().sync(name) }

func (b *book) sync(name string) error {
	d := b.orders.Load().Disk
	wait(d)
	if d.Fail == FailSync {
		return b.fail("sync", name)
	}
	return nil
}

// Room is how much of what is free there is, and what it says to whoever asks the file system.
func Room(free uint64) uint64 { return taken().room(free) }

func (b *book) room(free uint64) uint64 {
	if d := b.orders.Load().Disk; !d.Full || !d.Told {
		return free
	}
	return min(free, uint64(max(0, b.left.Load())))
}

// Removed is told that a file of that size is gone.
func Removed(bytes int64) { taken().left.Add(bytes) }

// hitsMost is how many failed operations are told.
const hitsMost = 100

// fail tells at what the disk fails, for whoever gave the order: one operation a line.
func (b *book) fail(op, name string) error {
	if b.hits.Add(1) <= hitsMost {
		f, err := os.OpenFile(HitFile(b.file), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err == nil {
			_, err = fmt.Fprintln(f, op, name)
			err = errors.Join(err, f.Close())
		}
		if err != nil {
			panic("faults: " + err.Error())
		}
	}
	return &os.PathError{Op: op, Path: name, Err: syscall.EIO}
}

func wait(d Disk) {
	if d.SlowMs > 0 {
		<-time.After(time.Duration(d.SlowMs) * time.Millisecond)
	}
}
